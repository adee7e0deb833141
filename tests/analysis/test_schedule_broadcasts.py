"""Broadcasts and constants: read at their source, or made where that cannot be."""

from __future__ import annotations

import torch
from torch import fx

from tests.analysis.planning import check, kinds, names, ops_of, traced

aten = torch.ops.aten


def elided(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in check(gm).elided]


def test_an_elementwise_reader_takes_the_source():
    gm = traced(lambda x, row: x + row.expand(4, 6), (4, 6), (6,))
    (item,) = check(gm)
    assert elided(gm) == ["expand"]
    assert item.resources.external_operand_count == 2
    assert item.resources.static_read_bytes == (24 + 6) * 4


def test_products_and_reductions_take_the_source_as_well():
    gm = traced(lambda a, row: (a @ row.expand(6, 8)).amax(1), (4, 6), (8,))
    assert kinds(check(gm)) == ["dot_general", "reduction"]
    assert elided(gm) == ["expand"]


def test_a_shape_reader_needs_the_whole_tensor():
    gm = traced(lambda row: row.expand(4, 6).flip(0), (6,))
    result = check(gm)
    assert kinds(result) == ["shape", "shape"]
    assert [names(item) for item in result] == [["expand"], ["flip"]]
    assert result[0].resources.static_read_bytes == 6 * 4
    assert result[0].resources.static_write_bytes == 24 * 4


def test_scans_and_kernels_need_the_whole_tensor():
    assert kinds(check(traced(lambda row: row.expand(4, 6).cumsum(0), (6,)))) == ["shape", "scan"]
    assert kinds(check(traced(lambda row: row.expand(4, 6).sort(0), (6,)))) == ["shape", "kernel_call"]


def test_a_returned_broadcast_is_made():
    assert kinds(check(traced(lambda row: row.expand(4, 6), (6,)))) == ["shape"]


def test_one_that_is_absorbed_and_returned_is_made_once_and_read_at_its_source():
    gm = traced(lambda x, row: ((y := row.expand(4, 6)), x + y), (4, 6), (6,))
    result = check(gm)
    assert kinds(result) == ["shape", "elementwise_single"]
    assert result[1].resources.static_read_bytes == (24 + 6) * 4


def test_a_reader_sees_through_one_broadcast_and_the_second_is_made():
    gm = traced(lambda x, row: x + row.expand(4, 6).expand(2, 4, 6), (2, 4, 6), (6,))
    result = check(gm)
    assert [names(item) for item in result] == [["expand"], ["add"]]
    assert elided(gm) == ["expand_1"]
    assert result[1].resources.static_read_bytes == (48 + 24) * 4


def test_a_chain_of_broadcasts_is_made_from_its_start():
    result = check(traced(lambda row: row.expand(4, 6).expand(2, 4, 6), (6,)))
    assert [names(item) for item in result] == [["expand"], ["expand_1"]]


def test_producers_of_an_absorbed_source_come_first():
    """The sum stands before its broadcast's source is made only if the broadcast is taken for an edge."""
    gm = traced(lambda x, row: x + row.exp().expand(4, 6), (4, 6), (6,))
    assert [names(item) for item in check(gm)] == [["exp"], ["add"]]


def test_a_constant_is_an_immediate():
    gm = traced(lambda x: x + torch.full((4, 6), 2.0), (4, 6))
    (item,) = check(gm)
    assert elided(gm) == ["full"]
    assert item.resources.external_operand_count == 1
    assert item.resources.static_read_bytes == 24 * 4


def test_a_broadcast_constant_is_an_immediate():
    gm = traced(lambda x: x + torch.full((6,), 2.0).expand(4, 6), (4, 6))
    assert kinds(check(gm)) == ["elementwise_single"]
    assert elided(gm) == ["full", "expand"]


def test_a_constant_is_made_where_it_is_needed_whole():
    assert kinds(check(traced(lambda: torch.zeros(4, 6)))) == ["shape"]
    assert kinds(check(traced(lambda x: torch.cat([x, torch.zeros(4, 6)]), (4, 6)))) == ["shape", "shape"]


def test_a_constant_behind_a_broadcast_that_is_made_stays_an_immediate():
    gm = traced(lambda: torch.full((6,), 2.0).expand(4, 6))
    (expand,) = ops_of(gm, aten.expand.default)
    (item,) = check(gm)
    assert item.root is expand
    assert elided(gm) == ["full"]


def test_like_fills_read_nothing():
    (item,) = check(traced(lambda x: torch.zeros_like(x), (4, 6)))
    assert item.kind.value == "elementwise_single"
    assert item.resources.external_operand_count == 1
    assert item.resources.static_read_bytes == 0
    assert item.resources.static_write_bytes == 96

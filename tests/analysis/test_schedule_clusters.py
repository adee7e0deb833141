"""Which ops run as one: elementwise clusters, products with what follows, reductions with what comes before."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.analysis.planning import check, kinds, names, traced

S = (4, 6)


def test_a_chain_fuses():
    (item,) = check(traced(lambda x: x.exp().sin().cos(), S))
    assert names(item) == ["exp", "sin", "cos"]


def test_a_value_read_elsewhere_ends_a_chain():
    result = check(traced(lambda x: ((y := x.exp()).sin().cos(), y.view(6, 4)), S))
    assert kinds(result) == ["elementwise_single", "shape", "elementwise_fusion"] or kinds(result) == [
        "elementwise_single",
        "elementwise_fusion",
        "shape",
    ]
    assert ["exp"] in [names(item) for item in result]


def test_two_readers_that_do_not_meet_are_not_one():
    result = check(traced(lambda x: ((y := x.exp()).sin(), y.cos()), S))
    assert kinds(result) == ["elementwise_single"] * 3


def test_branches_that_meet_are_one_however_wide():
    def wide(x):
        y = x.exp()
        return sum(y * factor for factor in range(1, 9))

    (item,) = check(traced(wide, S))
    assert item.op_count == 1 + 8 + 8
    assert item.resources.chain_operand_count == 8 + 15  # the sum starts from the number 0
    assert item.resources.external_operand_count == 1


def test_ops_of_another_shape_are_not_fused():
    result = check(traced(lambda x, row: x + row.exp(), S, (6,)))
    assert kinds(result) == ["elementwise_single", "elementwise_single"]
    assert result[1].resources.static_read_bytes == (24 + 6) * 4


def test_a_cast_fuses_and_the_item_has_the_dtype_of_its_root():
    (item,) = check(traced(lambda x: (x.to(torch.float16) * 2).to(torch.float64), S))
    assert item.op_count == 3
    assert item.dtype is torch.float64
    assert item.resources.element_size == 8
    assert item.resources.static_read_bytes == 24 * 4


def test_unread_ops_are_planned_too():
    def dead(x):
        x.exp()
        return x.sin()

    assert kinds(check(traced(dead, S))) == ["elementwise_single", "elementwise_single"]


def test_a_product_takes_its_epilogue():
    (item,) = check(traced(lambda a, b, c: ((a @ b) + c).relu(), S, (6, 8), (8,)))
    assert item.kind.value == "dot_general"
    assert names(item) == ["mm", "add", "relu"]
    assert item.resources.estimated_element_ops == 2 * 4 * 6 * 8 + 2 * 4 * 8
    assert item.resources.static_read_bytes == (24 + 48 + 8) * 4
    assert item.resources.static_write_bytes == 4 * 8 * 4


def test_a_view_between_a_product_and_its_epilogue_costs_nothing():
    gm = traced(lambda a, b: torch.relu(torch.nn.functional.linear(a, b)), (2, 4, 6), (8, 6))
    item = next(item for item in check(gm) if item.kind.value == "dot_general")
    assert names(item) == ["mm", "relu"]
    assert [view.name for view in item.elided] == ["_unsafe_view"]
    assert item.shape == (2, 4, 8)
    assert item.resources.chain_operand_count == 1


def test_a_transposing_view_ends_the_epilogue():
    result = check(traced(lambda a, b: (a @ b).t().relu(), S, (6, 8)))
    assert kinds(result) == ["dot_general", "shape", "elementwise_single"]


def test_one_product_to_an_epilogue():
    result = check(traced(lambda a, b, c: torch.relu(a @ b + a @ c), S, (6, 8), (6, 8)))
    assert [names(item) for item in result] == [["mm"], ["mm_1", "add", "relu"]]


def test_a_product_that_is_returned_keeps_its_epilogue_out():
    result = check(traced(lambda a, b: ((y := a @ b), y.relu()), S, (6, 8)))
    assert kinds(result) == ["dot_general", "elementwise_single"]


def test_what_makes_a_factor_stays_outside_of_the_product():
    result = check(traced(lambda a, b: (a.exp() @ b).relu(), (4, 4), (4, 4)))
    assert [names(item) for item in result] == [["exp"], ["mm", "relu"]]


def test_a_reduction_takes_what_makes_its_input():
    (item,) = check(traced(lambda x, y: ((x - y) * (x - y)).sum(1), S, S))
    assert item.kind.value == "reduction"
    assert names(item) == ["sub", "sub_1", "mul", "sum_1"]
    assert item.shape == (4,)
    assert item.resources.element_count == 24
    assert item.resources.estimated_element_ops == 4 * 24
    assert item.resources.static_read_bytes == 4 * 24 * 4
    assert item.resources.static_write_bytes == 4 * 4


def test_a_product_does_not_go_into_a_reduction():
    result = check(traced(lambda a, b: (a @ b).relu().sum(1), S, (6, 8)))
    assert [names(item) for item in result] == [["mm"], ["relu", "sum_1"]]


def test_a_value_that_is_written_later_is_read_where_it_stands():
    """Moving ``exp`` to its reader would read ``x`` after it was overwritten."""

    def overwritten(x, y):
        old = x.exp()
        x.copy_(y)
        return old + x.sin()

    assert [names(item) for item in check(traced(overwritten, S, S))] == [["exp"], ["copy_"], ["sin", "add"]]


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x.view(-1)[:8], lambda x: x.split(2)[0]])
def test_a_view_of_a_written_value_counts_as_written(view):
    def overwritten(x):
        old = view(x).exp()
        x.copy_(x * 2)
        return old * 3

    gm = make_fx(overwritten, tracing_mode="fake")(torch.empty(4, 6))
    assert "elementwise_fusion" not in kinds(check(gm))

"""The tensors that trips work on."""

from __future__ import annotations

import torch

import spyre_fx
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.pieces import Piece, pieces_of
from spyre_fx.transforms.auto.regions import grow
from spyre_fx.transforms.auto.sizes import ROW_VALUES
from spyre_fx.transforms.auto.tree import tree_of
from tests.transforms.auto_cases import facts, node


def pieces(known: Facts, name: str, dim: int) -> list[Piece]:
    """Of one loop over a dim of a value."""
    op = node(known, name)
    region = grow(known, op, known.refined.results[op][0][dim][0], lambda op: True)
    tree = tree_of(known, region)
    assert tree is not None
    return list(pieces_of(tree, known.flow, known.accumulate))


def test_tiles_and_whole_values():
    known = facts(lambda x, w: (x @ w).relu(), (64, 16), (16, 32))
    found = {(piece.value.node.name, piece.is_input): piece for piece in pieces(known, "mm", 0)}
    x, w, product, result = (found[key] for key in (("x", True), ("w", True), ("mm", False), ("relu", False)))
    assert [piece.cut_by for piece in (x, w, product, result)] == [(0,), (), (0,), (0,)]
    assert [piece.size((0.25,)) for piece in (x, w, product)] == [1024, 2048, 2048]
    assert (product.leaves, result.leaves) == (False, True)
    assert (x.packed_by, w.packed_by, product.packed_by) == (((0,),), ((0,),), ())
    assert result.left_bytes == 64 * 32 * 4
    assert product.left_bytes == 0


def test_an_elementwise_result_moves_into_an_operand_that_dies():
    alone = facts(lambda x: x.exp().tanh().sin(), (8, 4))
    both = facts(lambda x: (y := x.exp()).tanh() + y, (8, 4))
    first, second = (
        next(piece for piece in pieces(known, "exp", 0) if piece.value.node.name == "tanh") for known in (alone, both)
    )
    assert first.first == 2  # counted from where exp is no more
    assert second.first == 1


def test_views_of_inputs_are_the_inputs():
    known = facts(lambda x, y: x.t().exp() + y, (8, 4), (4, 8))
    found = [piece for piece in pieces(known, "exp", 0) if piece.is_input]
    assert [(piece.value.node.name, piece.cut_by) for piece in found] == [("x", (0,)), ("y", (0,))]


def test_a_running_sum_in_half_precision_is_wide():
    x, w = torch.ones(64, 16, dtype=torch.float16), torch.ones(16, 32, dtype=torch.float16)
    known = Facts(spyre_fx.capture(lambda x, w: x.exp() @ w, x, w))
    found = pieces(known, "exp", 1)
    (total,) = [piece for piece in found if piece.summed_by]
    assert (total.byte_size, total.is_wide, total.leaves, total.cut_by) == (64 * 32 * 4, True, True, ())
    assert (total.left_bytes, total.drained_bytes) == (
        64 * 32 * 2,
        64 * 32 * (4 + 4),
    )  # read and rounded after the loop
    assert all(piece.summed_by for piece in found if piece.value.node.name == "mm")  # products are added to it in place
    widened = [piece.byte_size for piece in found if piece.value.node.name in ("exp", "w") and not piece.is_input]
    assert sorted(widened) == sorted([64 * 16 * 2, 64 * 16 * 4, 16 * 32 * 4])


def test_a_running_sum_may_keep_half_precision():
    x, w = torch.ones(64, 16, dtype=torch.float16), torch.ones(16, 32, dtype=torch.float16)
    known = Facts(spyre_fx.capture(lambda x, w: x.exp() @ w, x, w), "operand")
    found = pieces(known, "exp", 1)
    (total,) = [piece for piece in found if piece.summed_by]
    assert (total.byte_size, total.is_wide, total.left_bytes, total.drained_bytes) == (
        64 * 32 * 2,
        False,
        64 * 32 * 2,
        0,
    )
    assert [piece.byte_size for piece in found if piece.value.node.name == "exp"] == [64 * 16 * 2]  # nothing is widened


def test_weights_in_half_precision_move_into_their_scores():
    """Those of a log softmax do not: the loss reads the scores as well."""
    args = torch.ones(8, 4).half(), torch.ones(4, 16).half()
    for function, shares in ((lambda q, k: torch.softmax(q @ k, -1).sum(-1), True), (losses_of_first, False)):
        known = Facts(spyre_fx.capture(function, *args), "operand")
        *_, rows, weights = [p for p in pieces(known, "mm", 1) if "softmax" in p.value.node.name]
        assert (rows.byte_size, weights.byte_size) == (8 * 2 * ROW_VALUES, 8 * 16 * 2)
        assert weights.first == 1 + shares  # the second op makes them


def losses_of_first(q, k):
    return torch.log_softmax(q @ k, -1).gather(1, torch.zeros(8, 1, dtype=torch.int64))


def test_an_online_softmax_carries_rows():
    known = facts(lambda q, k: torch.softmax(q @ k, -1).sum(-1), (8, 4), (4, 16))
    found = [piece for piece in pieces(known, "mm", 1) if piece.value.node.name == "_softmax"]
    assert [piece.byte_size for piece in found] == [8 * 4 * ROW_VALUES, 8 * 16 * 4]
    assert [piece.cut_by for piece in found] == [(), (0,)]
    assert not any(piece.summed_by for piece in found)

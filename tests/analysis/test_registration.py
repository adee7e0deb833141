"""Iteration spaces for custom ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from spyre_fx.analysis.iteration import Axis, IterationSpace, Kind, OpCall, SpaceBuilder
from spyre_fx.analysis.iteration_space import space_of_call
from spyre_fx.analysis.registration import register_iteration_space
from spyre_fx.errors import OptionError, SpyreFxError
from tests.analysis.oracle import check


@torch.library.custom_op("spyre_fx_tests::row_norm", mutates_args=())
def row_norm(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=1, keepdim=True)


@torch.library.custom_op("spyre_fx_tests::padded", mutates_args=())
def padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([x, x.new_zeros(rows, 1)], 1)


@torch.library.custom_op("spyre_fx_tests::wrong", mutates_args=())
def wrong(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("spyre_fx_tests::writes", mutates_args=("x",))
def writes(x: torch.Tensor) -> None:
    x.zero_()


def rows_are_free(call: OpCall) -> IterationSpace | None:
    b = SpaceBuilder()
    rows, columns = call.operands[0].shape
    dims = [b.axis(rows), b.sequential(columns)]
    return b.build([dims], [dims])


def test_a_registered_op_is_checked_like_any_other() -> None:
    register_iteration_space(row_norm, rows_are_free)
    x = torch.rand(6, 5)
    call = OpCall(torch.ops.spyre_fx_tests.row_norm.default, (x,), {}, row_norm(x))
    assert space_of_call(call) == IterationSpace((Axis(6), Axis(5, Kind.SEQUENTIAL)), (((0,), (1,)),), (((0,), (1,)),))
    assert check(call) == []
    with pytest.raises(OptionError, match=r"row_norm\.default has an iteration space already"):
        register_iteration_space(row_norm, rows_are_free)


def test_size_arguments_are_rewritten() -> None:
    def rule(call: OpCall) -> IterationSpace | None:
        (x,), (result,) = call.operands, call.results
        b = SpaceBuilder()
        rows = b.axis(x.shape[0])
        return b.build([[rows, b.sequential(x.shape[1])]], [[rows, b.sequential(result.shape[1])]])

    def resize(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (call.args[0], shapes[0][0]), {}

    register_iteration_space(torch.ops.spyre_fx_tests.padded, rule, resize)  # a packet of one overload
    x = torch.rand(6, 5)
    assert check(OpCall(torch.ops.spyre_fx_tests.padded.default, (x, 6), {}, padded(x, 6))) == []


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (torch.add, "cannot be given an iteration space"),
        ("aten::add", "cannot be given an iteration space"),
        (torch.ops.aten.add, r"overloads Tensor, Scalar.*torch\.ops\.aten\.add\.Tensor"),
        (torch.ops.aten.mm.default, "has an iteration space already"),
        (writes, "writes to its operands"),
        (torch.ops.aten.rand_like.default, "draws random numbers"),
    ],
)
def test_what_cannot_be_registered(op: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        register_iteration_space(op, rows_are_free)


@pytest.mark.parametrize(("rule", "resize"), [("rows", None), (rows_are_free, 3)])
def test_rules_are_functions(rule: Any, resize: Any) -> None:
    with pytest.raises(OptionError, match="a function of an OpCall"):
        register_iteration_space(wrong, rule, resize)


def test_wrong_maps_name_the_op_and_the_dim() -> None:
    answers: list[Any] = []
    register_iteration_space(wrong, lambda call: answers[-1])
    x = torch.ones(4, 6)
    call = OpCall(torch.ops.spyre_fx_tests.wrong.default, (x,), {}, wrong(x))

    def message(space: Any) -> str:
        answers.append(space)
        with pytest.raises(SpyreFxError) as error:
            space_of_call(call)
        return str(error.value)

    full = (((0,), (1,)),)
    both = (Axis(4), Axis(6))
    assert "wrong.default has extent 5 for dim 1 of operand 0, whose size is 6" in message(
        IterationSpace((Axis(4), Axis(5)), full, full)
    )
    assert "2 operand maps for 1 operand tensors" in message(IterationSpace(both, full * 2, full))
    assert "a map of 1 dims for result 0, which has 2" in message(IterationSpace(both, full, (((0,),),)))
    assert "where there are 2 axes" in message(IterationSpace(both, (((0,), (2,)),), full))
    assert "axes out of order" in message(IterationSpace((Axis(6), Axis(4)), (((1,), (0,)),), (((1,), (0,)),)))
    assert "appears twice" in message(IterationSpace((Axis(4), Axis(6), Axis(1)), full, (((0, 2), (1, 2)),)))
    assert "a dim of size 1 has no axis" in message(IterationSpace((*both, Axis(1)), (((0, 2), (1,)),), full))
    assert "gave 'rows'" in message("rows")
    assert "[4, 6]" in message(IterationSpace(both, full * 2, full))


def test_none_leaves_the_form_opaque() -> None:
    @torch.library.custom_op("spyre_fx_tests::shy", mutates_args=())
    def shy(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    register_iteration_space(shy, lambda call: None)
    x = torch.ones(4)
    assert space_of_call(OpCall(torch.ops.spyre_fx_tests.shy.default, (x,), {}, shy(x))) is None

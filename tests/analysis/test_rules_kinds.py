"""The axes, kinds and maps of the ops that people tile most."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spyre_fx.analysis.iteration import Axis, IterationSpace, Kind, OpCall
from spyre_fx.analysis.iteration_space import space_of_call

aten = torch.ops.aten


def space_of(op: Any, *args: Any, **kwargs: Any) -> IterationSpace:
    space = space_of_call(OpCall(op, args, kwargs, op(*args, **kwargs)))
    assert space is not None
    return space


def test_mm() -> None:
    space = space_of(aten.mm.default, torch.ones(4, 6), torch.ones(6, 8))
    assert space == IterationSpace(
        axes=(Axis(4), Axis(8), Axis(6, Kind.REDUCTION, "matmul")),
        operands=(((0,), (2,)), ((2,), (1,))),
        results=(((0,), (1,)),),
    )


def test_a_size_one_or_missing_dim_has_no_axis() -> None:
    space = space_of(aten.add.Tensor, torch.ones(4, 1, 6), torch.ones(3, 6))
    assert space.operands == (((0,), (), (2,)), ((1,), (2,)))
    assert space.results == (((0,), (1,), (2,)),)


def test_bias_of_addmm_broadcasts() -> None:
    assert space_of(aten.addmm.default, torch.ones(8), torch.ones(4, 6), torch.ones(6, 8)).operands[0] == ((1,),)
    assert space_of(aten.addmm.default, torch.ones(4, 1), torch.ones(4, 6), torch.ones(6, 8)).operands[0] == ((0,), ())


@pytest.mark.parametrize("dims", [None, [], [0, 1, 2]])
def test_no_dims_means_all(dims: list[int] | None) -> None:
    space = space_of(aten.sum.dim_IntList, torch.ones(2, 3, 4), dims)
    assert [axis.combine for axis in space.axes] == ["sum"] * 3
    assert space.results == ((),)


def test_kept_dims_have_no_axis() -> None:
    space = space_of(aten.mean.dim, torch.ones(2, 3, 4), [-2], True)
    assert space.results == (((0,), (), (1,)),)
    assert space.axes[2] == Axis(3, Kind.REDUCTION, "mean")


def test_positions_are_result_dims_then_reduced_axes() -> None:
    space = space_of(aten.sum.dim_IntList, torch.ones(2, 3, 4, 5), [0, 2])
    assert space.positions == ((0,), (1,), (2,), (3,))
    assert [axis.extent for axis in space.axes] == [3, 5, 2, 4]
    kept = space_of(aten.sum.dim_IntList, torch.ones(2, 3), [0], True)
    assert kept.positions == ((), (0,), (1,))  # the kept dim has a number, but nothing to tile


@pytest.mark.parametrize("dim", [0, None])
def test_a_flattened_index_counts_over_all_dims(dim: int | None) -> None:
    found = [axis.combine for axis in space_of(aten.argmax.default, torch.ones(3, 4), dim).axes]
    assert found == (["", "argmax"] if dim == 0 else ["argmax", "argmax"])
    assert space_of(aten.argmax.default, torch.ones(3), None).axes[0].combine == "argmax"


@pytest.mark.parametrize(
    ("op", "combine"), [(aten._softmax.default, "softmax"), (aten._log_softmax.default, "log_softmax")]
)
def test_the_normalised_axis_is_reduced_and_kept(op: Any, combine: str) -> None:
    space = space_of(op, torch.ones(3, 4), -1, False)
    assert space.axes == (Axis(3), Axis(4, Kind.REDUCTION, combine))
    assert space.operands == space.results


def test_layer_norm() -> None:
    space = space_of(aten.native_layer_norm.default, torch.ones(2, 3, 4), [4], torch.ones(4), torch.ones(4), 1e-5)
    assert space.axes == (Axis(2), Axis(3), Axis(4, Kind.REDUCTION, "layer_norm"))
    assert space.operands == (((0,), (1,), (2,)), ((2,),), ((2,),))
    assert space.results == (((0,), (1,), (2,)), ((0,), (1,), ()), ((0,), (1,), ()))


def test_gradients_of_parameters_sum_over_the_leading_dims() -> None:
    x, mean, w = torch.ones(3, 4), torch.ones(3, 1), torch.ones(4)
    args = (x, x, [4], mean, mean, w, w)
    data = space_of(aten.native_layer_norm_backward.default, *args, [True, False, False])
    both = space_of(aten.native_layer_norm_backward.default, *args, [True, True, True])
    assert data.axes[0] == Axis(3)
    assert both.axes[0] == Axis(3, Kind.REDUCTION, "layer_norm_backward")


def test_convolution() -> None:
    x, w = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
    args = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    space = space_of(aten.convolution.default, x, w, torch.ones(4), *args)
    kinds = [[space.axes[a].kind.value for a in dim] for dim in space.results[0]]
    assert kinds == [["parallel"], ["parallel"], ["sequential"], ["sequential"]]
    assert space.operands[0][1] == space.operands[1][1]  # input channels, summed over
    assert space.operands[1][0] == space.operands[2][0] == space.results[0][1]


def test_a_window_of_one_element_leaves_space_free() -> None:
    args = ([1], [0], [1], False, [0], 1)
    space = space_of(aten.convolution.default, torch.ones(2, 3, 8), torch.ones(4, 3, 1), None, *args)
    assert space.operands[0][2] == space.results[0][2]
    strided = space_of(aten.convolution.default, torch.ones(2, 3, 8), torch.ones(4, 3, 1), None, [2], *args[1:])
    assert strided.operands[0][2] != strided.results[0][2]


def test_channels_of_a_grouped_convolution() -> None:
    args = ([1], [0], [1], False, [0], 3)
    space = space_of(aten.convolution.default, torch.ones(2, 6, 8), torch.ones(9, 2, 3), None, *args)
    group, per_group = space.results[0][1]
    assert (space.axes[group].extent, space.axes[per_group].extent) == (3, 3)
    assert space.operands[0][1][0] == space.operands[1][0][0] == group


def test_only_what_a_causal_mask_counts_is_uncut() -> None:
    q = torch.ones(2, 3, 4, 8)
    op = aten._scaled_dot_product_flash_attention_for_cpu.default
    free, causal = space_of(op, q, q, q), space_of(op, q, q, q, 0.0, True)
    assert [axis.kind for axis in free.axes[:3]] == [Kind.PARALLEL] * 3
    assert [axis.kind for axis in causal.axes[:3]] == [Kind.PARALLEL, Kind.PARALLEL, Kind.REDUCTION]


def test_index_dims_stand_where_the_indexed_ones_did() -> None:
    x, i = torch.ones(5, 4, 6), torch.tensor([0, 1, 2])
    beside = space_of(aten.index.Tensor, x, [None, i, i])
    apart = space_of(aten.index.Tensor, x, [i, None, i])
    assert beside.results == (((0,), (1,)),)
    assert beside.operands == (((0,), (2,), (3,)), ((1,),), ((1,),))
    assert apart.results[0][0] == apart.operands[1][0]  # in front


def test_statistics_make_batch_and_space_uncut() -> None:
    x, c = torch.ones(2, 3, 4), torch.ones(3)
    evaluating = space_of(aten._native_batch_norm_legit_no_training.default, x, c, c, c, c, 0.1, 1e-5)
    training = space_of(aten._native_batch_norm_legit.no_stats, x, c, c, True, 0.1, 1e-5)
    assert [axis.kind for axis in evaluating.axes[:3]] == [Kind.PARALLEL] * 3
    assert [axis.kind for axis in training.axes] == [Kind.REDUCTION, Kind.PARALLEL, Kind.REDUCTION]


def test_repeats_stand_outside_and_interleaved_copies_inside() -> None:
    repeated = space_of(aten.repeat.default, torch.ones(3), [2])
    interleaved = space_of(aten.repeat_interleave.self_int, torch.ones(3), 2)
    assert (repeated.results, repeated.operands) == ((((0, 1),),), (((1,),),))
    assert (interleaved.results, interleaved.operands) == ((((0, 1),),), (((0,),),))

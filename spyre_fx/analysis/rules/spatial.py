"""Ops on images and signals: the trailing dims are windows over space, batch and channels are free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import batched, replaced, shared
from spyre_fx.analysis.rules.table import Rule, resize, rule
from spyre_fx.analysis.sizes import divides, known

aten = torch.ops.aten

_UPSAMPLE_BACKWARDS = {
    1: (
        aten._upsample_nearest_exact1d_backward.default,
        aten.upsample_linear1d_backward.default,
        aten.upsample_nearest1d_backward.default,
    ),
    2: (
        aten._upsample_bicubic2d_aa_backward.default,
        aten._upsample_bilinear2d_aa_backward.default,
        aten._upsample_nearest_exact2d_backward.default,
        aten.upsample_bicubic2d_backward.default,
        aten.upsample_bilinear2d_backward.default,
        aten.upsample_nearest2d_backward.default,
    ),
    3: (
        aten._upsample_nearest_exact3d_backward.default,
        aten.upsample_nearest3d_backward.default,
        aten.upsample_trilinear3d_backward.default,
    ),
}

# number of spatial dims -> the ops whose operands and results all have them last
_WINDOWED = {
    1: (
        aten._upsample_nearest_exact1d.default,
        aten.adaptive_avg_pool1d.default,
        aten.avg_pool1d.default,
        aten.reflection_pad1d.default,
        aten.reflection_pad1d_backward.default,
        aten.replication_pad1d.default,
        aten.replication_pad1d_backward.default,
        aten.upsample_linear1d.default,
        aten.upsample_nearest1d.default,
    ),
    2: (
        aten._adaptive_avg_pool2d.default,
        aten._adaptive_avg_pool2d_backward.default,
        aten._upsample_bicubic2d_aa.default,
        aten._upsample_bilinear2d_aa.default,
        aten._upsample_nearest_exact2d.default,
        aten.adaptive_avg_pool2d.default,
        aten.adaptive_max_pool2d.default,
        aten.adaptive_max_pool2d_backward.default,
        aten.avg_pool2d.default,
        aten.avg_pool2d_backward.default,
        aten.max_pool2d.default,
        aten.max_pool2d_with_indices.default,
        aten.max_pool2d_with_indices_backward.default,
        aten.max_unpool2d.default,
        aten.reflection_pad2d.default,
        aten.reflection_pad2d_backward.default,
        aten.replication_pad2d.default,
        aten.replication_pad2d_backward.default,
        aten.upsample_bicubic2d.default,
        aten.upsample_bilinear2d.default,
        aten.upsample_bilinear2d.vec,
        aten.upsample_nearest2d.default,
        aten.upsample_nearest2d.vec,
    ),
    3: (
        aten._adaptive_avg_pool3d.default,
        aten._adaptive_avg_pool3d_backward.default,
        aten._upsample_nearest_exact3d.default,
        aten.adaptive_max_pool3d.default,
        aten.avg_pool3d.default,
        aten.avg_pool3d_backward.default,
        aten.max_pool3d_with_indices.default,
        aten.max_pool3d_with_indices_backward.default,
        aten.max_unpool3d.default,
        aten.reflection_pad3d.default,
        aten.reflection_pad3d_backward.default,
        aten.replication_pad3d.default,
        aten.replication_pad3d_backward.default,
        aten.upsample_nearest3d.default,
        aten.upsample_trilinear3d.default,
    ),
}


def _windowed(count: int) -> Rule:
    def windowed(call: OpCall) -> IterationSpace | None:
        return batched(call, f"{count}->{count}")

    return windowed


for _count in _WINDOWED:
    rule(*_WINDOWED[_count], *_UPSAMPLE_BACKWARDS[_count])(_windowed(_count))


@resize(*(op for ops in _UPSAMPLE_BACKWARDS.values() for op in ops))
def upsample_input_size(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return replaced(call, input_size=list(shapes[0]))


@rule(aten.constant_pad_nd.default, aten.pad.default)
def pad(call: OpCall) -> IterationSpace | None:
    """Amounts come in pairs, last dim first; a dim with none is not touched."""
    rank, amounts = call.operands[0].dim(), call.argument("pad")
    pairs = zip(range(rank)[::-1], amounts[::2], amounts[1::2], strict=False)
    return shared(call, [dim for dim, before, after in pairs if not (known(before == 0) and known(after == 0))])


@rule(aten.fractional_max_pool2d.default)
def fractional_max_pool2d(call: OpCall) -> IterationSpace | None:
    """The random places of each plane are an operand with one core dim."""
    return batched(call, "2,1->2")


@rule(aten.fractional_max_pool3d.default)
def fractional_max_pool3d(call: OpCall) -> IterationSpace | None:
    return batched(call, "3,1->3")


@rule(
    aten.adaptive_max_pool3d_backward.default,
    aten.fractional_max_pool2d_backward.default,
    aten.fractional_max_pool3d_backward.default,
)
def pool_backward_dense(call: OpCall) -> IterationSpace | None:
    """These kernels ignore the strides of the gradient, so only the outermost dim, whose slices are dense, is cut."""
    rank = call.results[0].dim()
    return batched(call, f"{rank - 1}->{rank - 1}")


@rule(aten.im2col.default)
def im2col(call: OpCall) -> IterationSpace | None:
    """The rows of the result are channel by place in the window."""
    (image,), (columns,) = call.operands, call.results
    b = SpaceBuilder()
    batch, channel = [b.axis(size) for size in image.shape[:-3]], b.axis(image.shape[-3])
    space, blocks = [b.sequential(size) for size in image.shape[-2:]], b.sequential(columns.shape[-1])
    return b.build([[*batch, channel, *space]], [[*batch, (channel, _window(b, call)), blocks]])


@rule(aten.col2im.default)
def col2im(call: OpCall) -> IterationSpace | None:
    (columns,), (image,) = call.operands, call.results
    b = SpaceBuilder()
    batch, channel = [b.axis(size) for size in image.shape[:-3]], b.axis(image.shape[-3])
    space, blocks = [b.sequential(size) for size in image.shape[-2:]], b.sequential(columns.shape[-1])
    return b.build([[*batch, (channel, _window(b, call)), blocks]], [[*batch, channel, *space]])


def _window(b: SpaceBuilder, call: OpCall) -> int:
    height, width = call.argument("kernel_size")
    return b.sequential(height * width)


@rule(aten.pixel_shuffle.default)
def pixel_shuffle(call: OpCall) -> IterationSpace | None:
    """Channels ``(c, y, x)`` of ``(h, w)`` become channel ``c`` of ``((h, y), (w, x))``."""
    return _pixels(call, call.operands[0], call.results[0], call.argument("upscale_factor"), shuffle=True)


@rule(aten.pixel_unshuffle.default)
def pixel_unshuffle(call: OpCall) -> IterationSpace | None:
    return _pixels(call, call.results[0], call.operands[0], call.argument("downscale_factor"), shuffle=False)


def _pixels(call: OpCall, deep: torch.Tensor, wide: torch.Tensor, factor: int, *, shuffle: bool) -> IterationSpace:
    b = SpaceBuilder()
    batch = [b.axis(size) for size in deep.shape[:-3]]
    c, h, w = b.axis(wide.shape[-3]), b.axis(deep.shape[-2]), b.axis(deep.shape[-1])
    y, x = b.sequential(factor), b.sequential(factor)
    deep_map, wide_map = [*batch, (c, y, x), h, w], [*batch, c, (h, y), (w, x)]
    return b.build([deep_map], [wide_map]) if shuffle else b.build([wide_map], [deep_map])


@rule(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(call: OpCall) -> IterationSpace | None:
    """Channels ``(group, c)`` become ``(c, group)``."""
    (x,), groups = call.operands, call.argument("groups")
    if not divides(groups, x.shape[1]):
        return None
    b = SpaceBuilder()
    batch, group, c = b.axis(x.shape[0]), b.sequential(groups), b.axis(x.shape[1] // groups)
    rest = [b.axis(size) for size in x.shape[2:]]
    return b.build([[batch, (group, c), *rest]], [[batch, (c, group), *rest]])


@rule(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(call: OpCall) -> IterationSpace | None:
    """Each output place reads anywhere in its image, at coordinates in the last dim of the grid."""
    image, grid = call.operands
    b = SpaceBuilder()
    batch, channel = b.axis(image.shape[0]), b.axis(image.shape[1])
    places = [b.axis(size) for size in grid.shape[1:-1]]
    space = [b.sequential(size) for size in image.shape[2:]]
    return b.build(
        [[batch, channel, *space], [batch, *places, b.sequential(grid.shape[-1])]], [[batch, channel, *places]]
    )


@rule(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(call: OpCall) -> IterationSpace | None:
    return batched(call, f"{call.operands[1].dim() - 1}->{call.operands[1].dim() - 1}")


@rule(aten.affine_grid_generator.default)
def affine_grid_generator(call: OpCall) -> IterationSpace | None:
    (theta,), (grid,) = call.operands, call.results
    return batched(call, f"{theta.dim() - 1}->{grid.dim() - 1}")


@resize(aten.affine_grid_generator.default)
def affine_grid_size(call: OpCall, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return replaced(call, size=[shapes[0][0], *call.argument("size")[1:]])

"""Take norms over batch, space and groups of channels apart, and the gradients of all norms.

    dx, dw, db = layer_norm_backward(g, x, ...)     ->     n = (x - mean) * scale
                                                           dx = scale * (g w - mean(g w) - n * mean(g w n))
                                                           dw = sum(g n);  db = sum(g)

The gradient of the data sums over the dims that are normalised, those of the parameters over the others, so that any
dim is summed over for one result and kept in another. What is normalised is computed again wherever it is read, so that
no intermediate of the size of the data waits for a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall, tensors
from spyre_fx.transforms.moments import moments
from spyre_fx.transforms.rewriting import Emitter, element_count, rewrites

aten = torch.ops.aten

_OF_GROUP = (2, 3)
"""What a group norm takes together in data of [batch, group, channel of the group, space]."""


@rewrites("batch_norm")
def _batch_norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """With the statistics of the batch; the running ones are results too where the op is functional."""
    x: fx.Node = call.argument("input")
    over = _all_but_channels(x)
    mean, squares = moments(emit, x, over)
    scale = _scale(emit, emit(aten.div.Tensor, squares, element_count(x, over)), call)
    result = emit(aten.mul.Tensor, emit(aten.sub.Tensor, emit.widened(x), mean), scale)
    mean, squares, scale = (emit(aten.squeeze.dims, value, list(over)) for value in (mean, squares, scale))
    results = [_with_parameters(emit, result, call), mean, scale]
    if len(emit.dtypes) == 6:  # with a reserve, which only other devices use
        results.append(emit(aten.full.default, [0], 0, dtype=emit.dtypes[3], device=x.meta["val"].device))
    if len(emit.dtypes) > 3:
        variance = emit(aten.div.Tensor, squares, max(element_count(x, over) - 1, 0))
        results += [_moved(emit, call, "running_mean", mean), _moved(emit, call, "running_var", variance)]
    return emit.rounded(*results)


def _moved(emit: Emitter, call: OpCall, name: str, value: fx.Node) -> fx.Node:
    """A running statistic after one more batch."""
    momentum = call.argument("momentum")
    kept = emit(aten.mul.Tensor, emit.widened(call.argument(name)), 1 - momentum)
    return emit(aten.add.Tensor, kept, emit(aten.mul.Tensor, value, momentum))


@rewrites("group_norm")
def _group_norm(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x = _grouped(emit, call.argument("input"), call)
    mean, squares = moments(emit, x, _OF_GROUP)
    scale = _scale(emit, emit(aten.div.Tensor, squares, element_count(x, _OF_GROUP)), call)
    normal = emit(aten.mul.Tensor, emit(aten.sub.Tensor, emit.widened(x), mean), scale)
    result = emit(aten.reshape.default, normal, list(emit.op.meta["val"][0].shape))
    statistics = (emit(aten.squeeze.dims, value, list(_OF_GROUP)) for value in (mean, scale))
    return emit.rounded(_with_parameters(emit, result, call), *statistics)


@dataclass(frozen=True)
class _Normalised:
    """What the gradients of a norm are computed from; all tensors broadcast to the data."""

    x: fx.Node
    grad: fx.Node
    mean: fx.Node | None
    """None where the norm subtracts none."""
    scale: fx.Node
    weight: fx.Node | None
    over: Sequence[int]
    """The dims that were normalised; none where the statistics are constants."""
    outside: Sequence[int]
    """The dims that parameters do not have."""

    def normal(self, emit: Emitter) -> fx.Node:
        x = emit.widened(self.x)
        x = x if self.mean is None else emit(aten.sub.Tensor, x, emit.widened(self.mean))
        return emit(aten.mul.Tensor, x, emit.widened(self.scale))

    def of_data(self, emit: Emitter) -> fx.Node:
        def grad() -> fx.Node:
            own = emit.widened(self.grad)
            return own if self.weight is None else emit(aten.mul.Tensor, own, emit.widened(self.weight))

        result = grad()
        if self.over:
            along = emit.mean(emit(aten.mul.Tensor, grad(), self.normal(emit)), self.over, True)
            if self.mean is not None:
                result = emit(aten.sub.Tensor, result, emit.mean(grad(), self.over, True))
            result = emit(aten.sub.Tensor, result, emit(aten.mul.Tensor, self.normal(emit), along))
        return emit(aten.mul.Tensor, result, emit.widened(self.scale))

    def of_weight(self, emit: Emitter) -> fx.Node:
        return self._summed(emit, emit(aten.mul.Tensor, emit.widened(self.grad), self.normal(emit)))

    def of_bias(self, emit: Emitter) -> fx.Node:
        return self._summed(emit, emit.widened(self.grad))

    def _summed(self, emit: Emitter, grad: fx.Node) -> fx.Node:
        return emit.sum(grad, self.outside, False) if self.outside else grad

    def gradients(self, emit: Emitter, call: OpCall) -> list[fx.Node]:
        """Those that are wanted, in the shapes of the op's results."""
        makers = (self.of_data, self.of_weight, self.of_bias)
        wanted = [make for make, is_wanted in zip(makers, call.argument("output_mask"), strict=False) if is_wanted]
        shapes = [list(tensor.shape) for tensor in tensors(emit.op.meta["val"])]
        found = [make(emit) for make in wanted]
        return emit.rounded(*(_in_shape(emit, value, shape) for value, shape in zip(found, shapes, strict=True)))


@rewrites("layer_norm_backward")
def _layer_norm_backward(emit: Emitter, call: OpCall) -> list[fx.Node]:
    """Of layer norm, and of RMS norm, which subtracts no mean."""
    x: fx.Node = call.argument("input")
    rank = x.meta["val"].dim()
    split = rank - len(call.argument("normalized_shape"))
    mean, scale, weight = (call.argument(name) for name in ("mean", "rstd", "weight"))
    over, outside = range(split, rank), range(split)
    return _Normalised(x, call.argument("grad_out"), mean, scale, weight, over, outside).gradients(emit, call)


@rewrites("batch_norm_backward")
def _batch_norm_backward(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x: fx.Node = call.argument("input")
    over = _all_but_channels(x)
    training = call.argument("train", call.argument("update"))
    if training:
        mean, scale = call.argument("save_mean"), call.argument("save_invstd", call.argument("save_var"))
    else:
        mean = call.argument("running_mean")
        scale = _scale(emit, emit.widened(call.argument("running_var")), call)
    weight = call.argument("weight")
    mean, scale, weight = (value and _by_channel(emit, value, len(over) + 1) for value in (mean, scale, weight))
    data = _Normalised(x, call.argument("grad_out"), mean, scale, weight, over if training else (), over)
    return data.gradients(emit, call)


@rewrites("group_norm_backward")
def _group_norm_backward(emit: Emitter, call: OpCall) -> list[fx.Node]:
    x, grad = (_grouped(emit, call.argument(name), call) for name in ("input", "grad_out"))
    batch, groups, channels, _ = x.meta["val"].shape
    mean, scale = (_in_shape(emit, call.argument(name), [batch, groups, 1, 1]) for name in ("mean", "rstd"))
    weight = call.argument("weight")
    weight = weight and _in_shape(emit, weight, [1, groups, channels, 1])
    return _Normalised(x, grad, mean, scale, weight, _OF_GROUP, (0, 3)).gradients(emit, call)


# ---- shapes


def _all_but_channels(x: fx.Node) -> tuple[int, ...]:
    return tuple(dim for dim in range(x.meta["val"].dim()) if dim != 1)


def _in_shape(emit: Emitter, value: fx.Node, shape: list[int]) -> fx.Node:
    return value if list(value.meta["val"].shape) == shape else emit(aten.reshape.default, value, shape)


def _by_channel(emit: Emitter, value: fx.Node, rank: int) -> fx.Node:
    return _in_shape(emit, value, [1, *value.meta["val"].shape, *[1] * (rank - 2)])


def _grouped(emit: Emitter, x: fx.Node, call: OpCall) -> fx.Node:
    batch, channels, *space = x.meta["val"].shape
    groups = call.argument("group")
    return emit(aten.reshape.default, x, [batch, groups, channels // groups, math.prod(space)])


def _scale(emit: Emitter, variance: fx.Node, call: OpCall) -> fx.Node:
    return emit(aten.rsqrt.default, emit(aten.add.Scalar, variance, call.argument("eps")))


def _with_parameters(emit: Emitter, x: fx.Node, call: OpCall) -> fx.Node:
    """``x`` with the weight and the bias per channel."""
    for op, name in ((aten.mul.Tensor, "weight"), (aten.add.Tensor, "bias")):
        if (parameter := call.argument(name)) is not None:
            x = emit(op, x, emit.widened(_by_channel(emit, parameter, x.meta["val"].dim())))
    return x

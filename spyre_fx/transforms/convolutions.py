"""Take convolutions apart whose parts reduce different axes.

    y = convolution(x, w, b)                     ->     y = convolution(x, w) + b
    dx, dw, db = convolution_backward(g, ...)    ->     dx = convolution_backward(g, ...)[0];  dw = ...[1];  db = sum(g)

A bias is added once, not once per tile of the input channels; the gradient of the weight sums over the batch, that of
the image over the output channels.
"""

from __future__ import annotations

import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.analysis.rules.shapes import replaced
from spyre_fx.transforms.rewriting import Emitter, rewrites

aten = torch.ops.aten


@rewrites("convolution")
def _with_bias(emit: Emitter, call: OpCall) -> list[fx.Node]:
    args, kwargs = replaced(call, bias=None)
    wide = {node: emit.widened(node) for node in (call.argument("input"), call.argument("weight"))}
    args, kwargs = fx.node.map_arg((args, kwargs), wide.__getitem__)
    result = emit(call.target, *args, **kwargs)
    bias: fx.Node = call.argument("bias")
    shape = [-1, *(1 for _ in result.meta["val"].shape[2:])]
    bias = emit(aten.view.default, emit.widened(bias), [bias.meta["val"].shape[0], *shape[1:]])
    return emit.rounded(emit(aten.add.Tensor, result, bias))


@rewrites("convolution_backward")
def _each_gradient(emit: Emitter, call: OpCall) -> list[fx.Node]:
    image, weight, bias = call.argument("output_mask")
    results = []
    for index in [index for index, wanted in enumerate((image, weight)) if wanted]:
        args, kwargs = replaced(call, output_mask=[position == index for position in range(3)])
        results.append(emit.part(emit(call.target, *args, **kwargs), index))
    if bias:
        grad: fx.Node = call.argument("grad_output")
        dims = [dim for dim in range(grad.meta["val"].dim()) if dim != 1]
        results.append(emit.cast(emit.sum(grad, dims, False), emit.dtypes[-1]))
    return results

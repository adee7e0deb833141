"""Forms that must not be cut, however harmless they look."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spyre_fx.analysis.iteration import Kind, OpCall
from spyre_fx.analysis.iteration_space import space_of_call

aten = torch.ops.aten
X = torch.arange(24.0).reshape(4, 6)


def call_of(op: Any, *args: Any, **kwargs: Any) -> OpCall:
    return OpCall(op, args, kwargs, op(*args, **kwargs))


@pytest.mark.parametrize(
    "call",
    [
        call_of(aten.index.Tensor, X, [X > 3]),  # as many elements as the mask says
        call_of(aten.nonzero.default, X),
        call_of(aten.add_.Tensor, X.clone(), 1),
        call_of(aten.rand.default, [4]),
        call_of(aten.bernoulli.default, X / 24),
        call_of(aten.native_dropout.default, X, 0.5, True),
        call_of(aten._scaled_dot_product_attention_math.default, *[torch.ones(1, 1, 4, 8)] * 3, None, 0.5),
        call_of(aten.native_batch_norm.default, X, None, None, torch.ones(6), torch.ones(6), True, 0.1, 1e-5),
        call_of(aten.as_strided.default, X, [2, 2], [1, 1]),
        call_of(aten._local_scalar_dense.default, X[0, 0]),
        call_of(aten.index_put.default, X, [X > 3], torch.zeros(int((X > 3).sum()))),
        call_of(aten.add.Tensor, X.to_sparse(), X.to_sparse()),
        call_of(aten.repeat.default, X, [0, 1]),
    ],
    ids=lambda call: str(call.target),
)
def test_opaque(call: OpCall) -> None:
    assert space_of_call(call) is None


@pytest.mark.parametrize(
    ("call", "parallel"),
    [
        (call_of(aten.gather.default, X, 1, torch.zeros(2, 3, dtype=torch.int64)), [3]),  # rows pair up from the top
        (call_of(aten.scatter.value, X, 1, torch.zeros(2, 3, dtype=torch.int64), 1.0), []),
        (call_of(aten.roll.default, X, [1]), []),  # without dims it rolls the flattened tensor
        (call_of(aten.mse_loss.default, X, X, 1), []),
        (call_of(aten.mse_loss.default, X, X, 2), []),
        (call_of(aten.mse_loss_backward.default, torch.ones(()), X, X, 1), []),  # divides by the number of elements
        (call_of(aten.arange.default, 8), []),
        (call_of(aten.eye.default, 4), []),
        (call_of(aten.tril.default, X), []),
        (call_of(aten.cumsum.default, X, 0), [6]),
        (call_of(aten.cat.default, [X, X], 0), [6]),
        (call_of(aten.masked_scatter.default, X, X > 3, X), []),
        (call_of(aten.median.default, X), []),
        (call_of(aten.constant_pad_nd.default, X, [0, 0, 1, 1]), [6]),
        (call_of(aten._cdist_forward.default, torch.ones(30, 3), torch.ones(4, 3), 2.0, None), []),
        (call_of(aten._cdist_forward.default, torch.ones(30, 3), torch.ones(4, 3), 2.0, 2), [30, 4]),
        (call_of(aten.native_group_norm.default, torch.ones(2, 6, 3), None, None, 2, 6, 3, 3, 1e-5), [2]),
    ],
    ids=lambda value: str(getattr(value, "target", value)),
)
def test_uncut_axes(call: OpCall, parallel: list[int]) -> None:
    space = space_of_call(call)
    assert space is not None
    assert [axis.extent for axis in space.axes if axis.kind is Kind.PARALLEL] == parallel

"""The ``out=`` overloads that loops use are right, also in memory with gaps and over an operand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.torch_compat import has_kernel
from spyre_fx.transforms.executor.out_forms import out_form, out_overload, writes_any_strides
from tests.transforms.loop_cases import rows

aten = torch.ops.aten
VALUES: dict[str, Any] = {
    "number": 2,
    "float": 0.5,
    "int": 1,
    "bool": True,
    "Optional[Tensor]": None,
    "str": "none",
}


def pointwise_ops() -> Iterator[tuple[OpOverload, OpOverload]]:
    packets = (getattr(aten, name) for name in dir(aten))
    for packet in (packet for packet in packets if hasattr(packet, "overloads")):
        for overload in (getattr(packet, name) for name in packet.overloads()):
            out = out_overload(overload) if torch.Tag.pointwise in overload.tags else None
            if out is not None and has_kernel(out, "cpu"):
                yield overload, out


def arguments_of(op: OpOverload) -> list[Any] | None:
    """Values for the arguments that have no default; None if one of them is of another type."""
    kinds = [str(argument.type) for argument in op._schema.arguments if not argument.has_default_value()]
    if not all(kind == "Tensor" or kind in VALUES for kind in kinds):
        return None
    return [torch.rand(6, 40) * 0.8 + 0.1 if kind == "Tensor" else VALUES[kind] for kind in kinds]


def close(got: Tensor, want: Tensor) -> bool:
    return torch.allclose(got.double(), want.double(), rtol=1e-4, atol=1e-4, equal_nan=True)


def checked(op: OpOverload, out: OpOverload) -> bool:
    """True if ``op`` runs on floats; asserts that its ``out=`` overload is right wherever loops use it."""
    args = arguments_of(op)
    try:
        want = op(*args or ())
    except (RuntimeError, NotImplementedError):
        return False
    if args is None or not isinstance(want, Tensor):
        return False
    (name,) = [argument.name for argument in out._schema.arguments if argument.is_out]
    whole = torch.ones(12, 80, dtype=want.dtype)
    place = whole[::2, ::2] if writes_any_strides(op) else whole.flatten()[: want.numel()].view(want.shape)
    untouched = torch.ones_like(whole, dtype=torch.bool)
    untouched.as_strided(place.shape, place.stride()).fill_(False)
    out(*args, **{name: place})
    assert close(place, want), op
    assert bool((whole[untouched] == 1).all()), op
    for index, arg in enumerate(args):
        if isinstance(arg, Tensor) and arg.dtype == want.dtype:
            fresh = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
            out(*fresh, **{name: fresh[index]})
            assert close(fresh[index], want), op
    return True


@pytest.mark.filterwarnings("ignore")
def test_pointwise_ops() -> None:
    assert sum(checked(op, out) for op, out in pointwise_ops()) > 120


LOSSES = [F.binary_cross_entropy, F.huber_loss, F.mse_loss, F.smooth_l1_loss]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", LOSSES)
def test_reduced_losses_have_memory_of_their_own(loss: Any, reduction: str) -> None:
    """Their kernels write the loss of each element behind a given ``out``, which has one element."""
    x, y = torch.rand(8, 4), torch.rand(8, 4)
    gm = make_fx(lambda x, y: loss(x, y, reduction=reduction), tracing_mode="fake")(x, y)
    (node,) = (node for node in gm.graph.nodes if node.op == "call_function")
    assert out_form(node) is None


@pytest.mark.parametrize("loss", LOSSES)
def test_loops_keep_what_lies_beside_a_loss(loss: Any) -> None:
    x, y = torch.rand(48, 40), torch.rand(48, 40)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        weight, square = x.exp(), y * y
        return loss(x, y, reduction="sum") * weight + square

    wanted = [fn(a, b) for a, b in zip(x.split(12), y.split(12), strict=True)]
    torch.testing.assert_close(rows(fn, (x, y), [0, 0], 0, 12)(x, y), torch.cat(wanted))


def test_gelu_is_not_trusted_with_gaps() -> None:
    assert not writes_any_strides(aten.gelu.default)
    assert not writes_any_strides(aten.tril.default)


@pytest.mark.parametrize("dim", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize(
    "op, name",
    [
        (aten.sum.dim_IntList, "IntList_out"),
        (aten.mean.dim, "out"),
        (aten.amax.default, "out"),
        (aten.amin.default, "out"),
    ],
)
def test_reductions(op: OpOverload, name: str, dim: tuple[int, ...]) -> None:
    assert writes_any_strides(op)
    x = torch.randn(6, 5, 4)
    want = op(x, dim, True)
    whole = torch.ones([2 * size for size in want.shape])
    place = whole[tuple(slice(None, None, 2) for _ in want.shape)]
    getattr(op.overloadpacket, name)(x, dim, True, out=place)
    assert close(place, want)
    place.fill_(1)
    assert bool((whole == 1).all())

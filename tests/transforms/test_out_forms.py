"""Forms of ops that write into memory they are given."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx import CountedLoop, tile

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7, 33), (64, 1000), (3, 5, 257), (4, 20_000), (33, 1), (2, 64, 128)])
def test_softmax_may_be_written_over_its_operands(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, grad = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    for dim in range(len(shape)):
        for op in (aten._softmax, aten._log_softmax):
            written = x.clone()
            op.out(written, dim, False, out=written)
            torch.testing.assert_close(written, op.default(x, dim, False), rtol=0, atol=0)
        for op, name in ((aten._softmax_backward_data, "grad_input"), (aten._log_softmax_backward_data, "out")):
            result = torch.log_softmax(x, dim)
            expected = op.default(grad, result, dim, dtype)
            for position in range(2):
                args = [grad.clone(), result.clone()]
                op.out(*args, dim, dtype, **{name: args[position]})
                torch.testing.assert_close(args[position], expected, rtol=0, atol=0)


def test_a_composite_op_with_a_kernel_makes_memory_of_its_own() -> None:
    x, grad = torch.randn(8, 4), torch.randn(8, 4)

    def function(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(aten.silu_backward.default(grad * 2, x))

    gm = make_fx(function, tracing_mode="fake")(grad, x)
    tiled = tile(gm, [(["mul", "silu_backward", "tanh"], 4)])
    assert tiled.loop_0.count == 4
    torch.testing.assert_close(tiled(grad, x), function(grad, x))


@pytest.mark.parametrize("shape", [(4, 5, 0), (4, 0, 5), (4, 5, 3)])
def test_matrices_without_elements_are_decomposed_as_by_eager(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    gm = make_fx(lambda x: torch.linalg.qr(x))(x)
    tiled = tile(gm, [([node.name for node in gm.graph.nodes if node.op == "call_function"], 2, {"x_1": 0})])
    assert any(isinstance(module, CountedLoop) for module in tiled.modules())
    for found, expected in zip(tiled(x), torch.linalg.qr(x), strict=True):
        torch.testing.assert_close(found, expected)

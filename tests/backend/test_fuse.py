"""``body="inductor"``: kernels in graphs and in loop bodies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx import CountedLoop, LoopGroup, OptionError
from spyre_fx.backend import Backend, clusters, compile, kernels
from spyre_fx.backend.fuse import with_kernels
from spyre_fx.backend.kernels import Kernel, Kernels
from spyre_fx.backend.torch_compat import missing_compiler
from spyre_fx.transforms.executor.lanes import plan_lanes
from spyre_fx.transforms.tile import tile
from tests.backend.helpers import assert_same, tiling

X, W = torch.randn(64, 32), torch.randn(32, 48)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run their ops: what is tested is the graph around them."""
    monkeypatch.setattr(kernels, "compile_kernel", lambda function, args: lambda tensors: function(*tensors))
    monkeypatch.setattr(clusters, "LEAST_BYTES", 1)


def calls(gm: Any) -> list[str]:
    return [
        "kernel" if isinstance(node.target, Kernel) else node.name
        for node in gm.graph.nodes
        if node.op.startswith("call") and "getitem" not in node.name
    ]


def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = x @ w
    z = torch.softmax(F.gelu(y) * 2, -1)
    return z @ w.t(), z.sum(0) + 1


def test_kernels_stand_for_clusters(uncompiled: None) -> None:
    gm = make_fx(function, tracing_mode="fake")(X, W)
    before = str(gm.graph)
    fused = with_kernels(gm, Kernels())
    assert calls(fused) == ["mm", "t", "kernel", "mm_1"]
    assert str(gm.graph) == before
    assert_same(fused(X, W), function(X, W))


def test_bodies_write_through_kernels(uncompiled: None) -> None:
    gm = make_fx(lambda x, w: F.gelu(x @ w) * 2 + 1, tracing_mode="fake")(X, W)
    tiled = tile(gm, [(["mm", "gelu", "mul", "add"], 4)])
    fused = with_kernels(tiled, Kernels())
    loop = fused.loop_0
    assert isinstance(loop, CountedLoop)
    assert calls(loop.main) == ["mm", "kernel"]
    assert calls(tiled.loop_0.main) == ["mm", "gelu", "mul", "add"]
    (phase,) = loop.plan().phases
    assert "(buffer_0, out_0)" in phase.schedule.text  # no temporary, no copy
    assert phase.schedule.text.count("\n") == 3
    assert_same(fused(X, W), F.gelu(X @ W) * 2 + 1)


@pytest.mark.parametrize("body", [["add", "gelu"], [LoopGroup(2, [1], ["add", "gelu"])]])
def test_loops_with_kernels_share_threads(body: Any, uncompiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel keeps the interpreter lock, so that a second lane would wait for the first."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    x = torch.randn(1024, 1024)
    tiled = tile(make_fx(lambda x: F.gelu(x + 1), tracing_mode="fake")(x), [LoopGroup(4, [0], body)])
    fused = with_kernels(tiled, Kernels())
    plans = [gm.loop_0.plan() for gm in (tiled, fused)]
    assert [plan_lanes(plan, x.nbytes) for plan in plans] == [2, 1]
    assert [plan.locks for plan in plans] == [False, True]
    assert_same(fused(x), F.gelu(x + 1))


def test_a_view_that_is_read_inside_and_outside(uncompiled: None) -> None:
    def viewed(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = (x * 2).tanh().t()
        return y.exp() + 1, (y @ x) * y[:, :32]

    gm = make_fx(viewed, tracing_mode="fake")(X, W)
    fused = with_kernels(gm, Kernels())
    assert "kernel" in calls(fused)
    assert_same(fused(X, W), viewed(X, W))


def test_a_remainder_runs_op_by_op(uncompiled: None) -> None:
    gm = make_fx(lambda x, w: F.gelu(x @ w) * 2 + 1, tracing_mode="fake")(X, W)
    fused = with_kernels(tile(gm, [(["mm", "gelu", "mul", "add"], 5)]), Kernels())
    assert calls(fused.loop_0.main) == ["mm", "kernel"]
    assert calls(fused.loop_0.remainder) == ["mm", "gelu", "mul", "add"]
    assert_same(fused(X, W), F.gelu(X @ W) * 2 + 1)


def test_running_values_and_nested_loops(uncompiled: None) -> None:
    def reduced(x: Tensor, w: Tensor) -> Tensor:
        return (F.gelu(x @ w) * 2).sum(0) + 1

    gm = make_fx(reduced, tracing_mode="fake")(X, W)
    tiled = tile(gm, [(["mm", "gelu", "mul", "sum_1"], [(4, [0]), (3, [1])])])
    assert_same(with_kernels(tiled, Kernels())(X, W), reduced(X, W))


def test_writes_to_inputs_come_after_the_reads(uncompiled: None) -> None:
    def update(x: Tensor, w: Tensor) -> Tensor:
        y = (x * 2).tanh()
        x.copy_(y @ torch.ones(32, 32))
        return y.exp() + 1

    gm = make_fx(torch.func.functionalize(update), tracing_mode="fake")(X, W)
    mine, theirs = X.clone(), X.clone()
    assert_same(with_kernels(gm, Kernels())(mine, W), update(theirs, W))
    assert_same(mine, theirs)


def test_models_with_kernels(uncompiled: None) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    x = torch.randn(4, 16, 32)
    backend = Backend(body="inductor", tile=tiling("gelu", "relu"))
    compiled = torch.compile(layer, backend=backend)
    found, expected = compiled(x), layer(x)
    assert_same(found, expected)
    found.square().mean().backward()
    grads = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    layer(x).square().mean().backward()
    assert_same(grads, [parameter.grad for parameter in layer.parameters()])


def test_a_machine_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "missing_compiler", lambda: "No working C++ compiler found")
    with pytest.raises(BackendCompilerFailed, match="body='inductor' on a machine where") as caught:
        torch.compile(F.gelu, backend=Backend(body="inductor"))(X)
    assert isinstance(caught.value.inner_exception, OptionError)


@pytest.mark.skipif(missing_compiler() is not None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # torch's own
def test_inductor_compiles_bodies() -> None:
    x, w = torch.randn(256, 128), torch.randn(128, 256)
    backend = Backend(body="inductor", tile=tiling("mm", "gelu", "mul", "sub"))
    compiled = torch.compile(lambda x, w: F.gelu(x @ w) * 2 - 1, backend=backend)
    assert_same(compiled(x, w), F.gelu(x @ w) * 2 - 1, rtol=1e-4, atol=1e-4)
    assert backend.graphs[0].loops == 1

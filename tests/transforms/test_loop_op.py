"""Every tracer sees a loop as one node, and what it records runs without the module."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.errors import TilingError
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_link import link_loops
from spyre_fx.transforms.loop_op import loop_of as loop_of_key
from spyre_fx.transforms.loop_types import Carried, Slice
from tests.transforms.loop_cases import loop_of, rows

BODY_OPS = (["exp"], ["mm"], ["tanh"])


def nest() -> CountedLoop:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return rows(lambda x, w: (x @ w).exp(), (x, w), [None, 1], 1, 2)(x, w).tanh()

    return rows(fn, (torch.randn(10, 4), torch.randn(4, 6)), [0, None], 0, 4)


class Model(nn.Module):
    """A loop with a parameter among its arguments, between two ops."""

    def __init__(self, loop: CountedLoop) -> None:
        super().__init__()
        self.loop = loop
        self.weight = nn.Parameter(torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.loop(x + 1, self.weight) * 2


def untiled(x: Tensor, w: Tensor) -> Tensor:
    return ((x + 1) @ w).exp().tanh() * 2


def targets(gm: Any) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]


def assert_one_loop(gm: Any) -> None:
    names = targets(gm)
    assert sum("counted_loop" in name for name in names) == 1
    assert not [name for name in names if name.split(".")[1:2] in BODY_OPS]


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model(nest())


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()


X = torch.randn(10, 4)


@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
def test_make_fx(model: Model, tracing_mode: str) -> None:
    weight = model.weight.detach()
    traced = make_fx(lambda x, w: model.loop(x + 1, w) * 2, tracing_mode=tracing_mode)(X, weight)
    assert_one_loop(traced)
    want = untiled(X, weight)
    torch.testing.assert_close(traced(X, weight), want)
    torch.testing.assert_close(copy.deepcopy(traced)(X, weight), want)


def test_symbolic_trace(model: Model) -> None:
    traced = torch.fx.symbolic_trace(model)
    assert_one_loop(traced)
    torch.testing.assert_close(traced(X), model(X))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_export_save_and_load(model: Model, strict: bool) -> None:
    program = torch.export.export(model, (X,), strict=strict)
    assert_one_loop(program)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    want = model(X)
    del model
    assert_one_loop(loaded)
    for module in (program.module(), loaded.module(), copy.deepcopy(loaded).module()):
        torch.testing.assert_close(module(X), want)
    assert_one_loop(program.run_decompositions())


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_another_process_runs_a_saved_program(model: Model, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(model, (X,)), tmp_path / "model.pt2")
    torch.save((X, model(X).detach()), tmp_path / "values.pt")
    script = """
import sys, torch, spyre_fx.transforms
folder = sys.argv[1]
x, want = torch.load(folder + "/values.pt")
torch.testing.assert_close(torch.export.load(folder + "/model.pt2").module()(x), want)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, env=env, timeout=120)


def compiled_graphs(model: nn.Module, x: Tensor, **options: Any) -> tuple[list[GraphModule], Any]:
    graphs: list[GraphModule] = []

    def backend(gm: GraphModule, inputs: Any) -> GraphModule:
        graphs.append(gm)
        return gm

    return graphs, torch.compile(model, backend=backend, fullgraph=True, **options)(x)


def test_dynamo(model: Model) -> None:
    graphs, got = compiled_graphs(model, X)
    (graph,) = graphs
    assert_one_loop(graph)
    torch.testing.assert_close(got, model(X))


def test_dynamo_calls_a_loop_on_other_sizes_with_a_clear_error(model: Model) -> None:
    with pytest.raises(Exception, match=r"shape.*for which the loop was built"):
        torch.compile(model, backend="eager")(torch.randn(7, 4))


def test_aot_autograd_forward_and_backward(model: Model) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[GraphModule] = []

    def keep(gm: GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    x = X.clone().requires_grad_()
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)
    compiled(x).sum().backward()
    forward, backward = graphs
    assert_one_loop(forward)
    assert_one_loop(backward)
    got = x.grad, model.weight.grad
    want = torch.autograd.grad(untiled(x, model.weight).sum(), (x, model.weight))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("grad", [False, True])
def test_aot_eager(model: Model, grad: bool) -> None:
    x = X.clone().requires_grad_(grad)
    with torch.set_grad_enabled(grad):
        got = torch.compile(model, backend="aot_eager")(x)
    torch.testing.assert_close(got, untiled(x, model.weight))
    assert got.requires_grad == grad


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_inductor(model: Model) -> None:
    x = X.clone().requires_grad_()
    got = torch.compile(model)(x)
    torch.testing.assert_close(got, untiled(x, model.weight))
    torch.testing.assert_close(
        torch.autograd.grad(got.sum(), x), torch.autograd.grad(untiled(x, model.weight).sum(), x)
    )


def test_loop_that_is_replayed_in_a_joint_graph() -> None:
    x, start = torch.randn(7, 3), torch.randn(3)
    cuts = [Slice(0, (7,)), None]
    loop = loop_of(lambda x, acc: (torch.maximum(acc, x.amax(0)),), (x, start), cuts, [Carried(1)], [start], 3)
    leaf = x.clone().requires_grad_()
    torch.compile(loop, backend="aot_eager", fullgraph=True)(leaf, start).sum().backward()
    other = x.clone().requires_grad_()
    torch.maximum(start, other.amax(0)).sum().backward()
    assert torch.equal(leaf.grad, other.grad)  # type: ignore[arg-type]

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loop(x, start).sum(), x)[0]

    traced = make_fx(gradient)(x)
    assert sum("counted_loop_replay" in name for name in targets(traced)) == 1
    assert torch.equal(traced(x), other.grad)  # type: ignore[arg-type]


def test_functional_call_and_transforms_of_torch_func(model: Model) -> None:
    weight = torch.randn(4, 6)
    got = torch.func.functional_call(model, {"weight": weight}, (X,))
    torch.testing.assert_close(got, untiled(X, weight))
    got = torch.func.grad(lambda w: model.loop(X + 1, w).sum() * 2)(weight)
    want = torch.func.grad(lambda w: untiled(X, w).sum())(weight)
    torch.testing.assert_close(got, want)
    second = torch.func.grad(lambda w: torch.func.grad(lambda w: model.loop(X, w).sum())(w).pow(2).sum())(weight)
    want = torch.func.grad(lambda w: torch.func.grad(lambda w: (X @ w).exp().tanh().sum())(w).pow(2).sum())(weight)
    torch.testing.assert_close(second, want)
    batch = torch.randn(3, 10, 4)
    got = torch.func.vmap(model.loop, (0, None))(batch, weight)
    torch.testing.assert_close(got, torch.stack([model.loop(x, weight) for x in batch]))


def test_second_derivative_of_a_traced_loop(model: Model) -> None:
    traced = make_fx(lambda x, w: model.loop(x, w))(X, model.weight.detach())
    w = model.weight.detach().requires_grad_()

    def second(fn: Any) -> Tensor:
        (grad,) = torch.autograd.grad(fn(X, w).sum(), w, create_graph=True)
        return torch.autograd.grad((grad * grad).sum(), w)[0]

    torch.testing.assert_close(second(traced), second(lambda x, w: (x @ w).exp().tanh()))


def test_the_schema_and_kernels_agree(model: Model) -> None:
    key = model.loop.key()
    args = ([X.clone().requires_grad_(), model.weight.detach()], [], key)
    torch.library.opcheck(torch.ops.spyre_fx.counted_loop.default, args)


def test_recorded_loops_become_modules_again(model: Model) -> None:
    weight = model.weight.detach()
    traced = link_loops(make_fx(lambda x, w: model.loop(x + 1, w) * 2)(X, weight))
    (call,) = traced.graph.find_nodes(op="call_module", target="loop_0")
    loop = traced.get_submodule(call.target)
    assert isinstance(loop, CountedLoop) and loop.key() == model.loop.key()
    assert call.meta["val"].shape == (10, 6)
    torch.testing.assert_close(traced(X, weight), untiled(X, weight))


def test_the_key_reads_back_as_the_loop(model: Model) -> None:
    loop = loop_of_key(model.loop.key())
    assert loop.key() == model.loop.key()
    assert (loop.phases, loop.arguments, loop.results) == (model.loop.phases, model.loop.arguments, model.loop.results)


@pytest.mark.parametrize("key", ["loop_0:", "loop_0:abc", "nonsense", "x:eJwDAAAAAAE="])
def test_a_damaged_key(key: str) -> None:
    with pytest.raises(TilingError, match="a saved loop holds a damaged key"):
        torch.ops.spyre_fx.counted_loop([X], [], key)

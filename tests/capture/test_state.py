"""Parameters and buffers stay the user's own, whoever holds them; writes land where eager writes."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import fx, nn

from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.capture.state import reachable
from tests.capture.checks import captured, same, targets

LINEAR = nn.Linear(4, 4)
WEIGHT = nn.Parameter(torch.randn(4))
OFFSET = torch.randn(6, 4)


def state_of(gm: fx.GraphModule) -> list[torch.Tensor]:
    return [*gm.parameters(), *gm.buffers()]


def test_parameters_are_shared_and_not_copied() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    gm = captured(net, torch.randn(6, 4))
    assert {id(tensor) for tensor in state_of(gm)} <= {id(tensor) for tensor in (*net.parameters(), *net.buffers())}
    assert dict(gm.named_parameters()).keys() == dict(net.named_parameters()).keys()
    x = torch.randn(6, 4)
    with torch.no_grad():
        net[0].weight.mul_(2)
        net[1].running_mean.add_(1)
        same(net(x), gm(x))


def test_tied_weights_stay_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.out = nn.Linear(4, 5, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.out(self.embed(tokens))

    net, tokens = Tied(), torch.tensor([1, 2, 3])
    gm = captured(net, tokens)
    assert [parameter is net.embed.weight for parameter in gm.parameters()] == [True]
    with torch.no_grad():
        net.embed.weight.mul_(2)
        same(net(tokens), gm(tokens))


def test_plain_tensors_and_buffers_of_a_module() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(3))
            self.register_buffer("hidden", torch.ones(3), persistent=False)
            self.plain = torch.ones(3)
            self.listed = [nn.Linear(3, 3)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.listed[0](x * self.kept + self.hidden - self.plain)

    net, x = Net(), torch.randn(2, 3)
    gm = captured(net, x)
    with torch.no_grad():
        for tensor in (net.kept, net.hidden, net.plain, net.listed[0].weight):
            tensor.mul_(3)
        same(net(x), gm(x))


def by_closure() -> Any:
    layer, scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
    return (lambda x: layer(x) * scale), [layer.weight, layer.bias, scale]


def by_global() -> Any:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return LINEAR(x) * WEIGHT

    return (lambda x: helper(x) + OFFSET), [LINEAR.weight, LINEAR.bias, WEIGHT]


def by_method() -> Any:
    class Model:
        def __init__(self) -> None:
            self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[1](self.layers[0](x))

    model = Model()
    return model.run, [tensor for layer in model.layers for tensor in layer.parameters()]


def by_module_method() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).relu()

    net = Net()
    return net.encode, list(net.parameters())


def by_partial() -> Any:
    layer = nn.Linear(4, 4)
    return functools.partial(lambda layer, x: layer(x), layer), list(layer.parameters())


def by_callable() -> Any:
    class Call:
        def __init__(self) -> None:
            self.layer = nn.Linear(4, 4)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    call = Call()
    return call, list(call.layer.parameters())


def by_default() -> Any:
    layer = nn.Linear(4, 4)

    @torch.no_grad()
    def run(x: torch.Tensor, layer: nn.Linear = layer) -> torch.Tensor:
        return layer(x)

    return run, list(layer.parameters())


@pytest.mark.parametrize(
    "make", [by_closure, by_global, by_method, by_module_method, by_partial, by_callable, by_default]
)
def test_a_functions_parameters_are_found_and_shared(make: Any) -> None:
    function, parameters = make()
    x = torch.randn(6, 4)
    gm = captured(function, x)
    assert {id(parameter) for parameter in gm.parameters()} == {id(parameter) for parameter in parameters}
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(2)
        same(function(x), gm(x))


def test_closed_over_tensors_are_shared() -> None:
    offset = torch.ones(4)
    gm = captured(lambda x: x + offset, torch.zeros(4))
    assert [buffer is offset for buffer in gm.buffers()] == [True]
    offset.mul_(5)
    same(torch.full((4,), 5.0), gm(torch.zeros(4)))


def test_reachable_ends_and_names_things() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    training = nn.ReLU()
    function = lambda x: (cycle, training(x), WEIGHT, torch.relu(x))  # noqa: E731
    found = reachable(function)
    assert list(found.modules) == ["_training"]
    assert list(found.parameters) == ["WEIGHT"]
    assert found.functions == [function]


def test_gradients_reach_the_parameters() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            frozen = LINEAR(x).softmax(-1)
        return (LINEAR(x) * frozen + (x * WEIGHT).detach() * WEIGHT).sum()

    x = torch.randn(6, 4)
    gm = captured(run, x)
    assert targets(gm).count("detach.default") == 2
    parameters = [LINEAR.weight, LINEAR.bias, WEIGHT]
    expected = torch.autograd.grad(run(x), parameters)
    for want, got in zip(expected, torch.autograd.grad(gm(x), parameters), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_mode_outside_changes_no_values(context: Any) -> None:
    x = torch.randn(6, 4)
    with context():
        gm = captured(LINEAR, x)
    assert targets(gm) == ["permute.default", "addmm.default"]
    same(LINEAR(x).detach(), gm(x).detach())


def test_autocast_is_recorded() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return LINEAR(x)

    x = torch.randn(6, 4)
    gm = captured(run, x)
    assert gm.graph.output_node().meta["val"][0].dtype is torch.bfloat16
    same(run(x).detach(), gm(x).detach())


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count += x
        self.last.copy_(self.count)
        old = self.count.clone()
        self.count = self.count * 2
        return x + self.count, old


def test_writes_to_buffers_are_kept() -> None:
    module, x = Counter(), torch.tensor([1.0, 2.0, 3.0])
    gm = captured(module, x)
    assert targets(gm)[-2:] == ["copy_.default"] * 2
    twin = copy.deepcopy(module)
    for _ in range(3):
        same(twin(x), gm(x))
        same(twin.state_dict(), module.state_dict())


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y).mul(2)


def write_row(x: torch.Tensor, y: torch.Tensor) -> None:
    x[0] = y[1]
    x[1:].mul_(3)


def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return x - y


def local_only(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    z = x.clone()
    return [part.mul_(2) for part in z.chunk(2)]


def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    flat = x.view(-1)
    x.relu_()
    return flat, x.t()


@pytest.mark.parametrize("function", [add_in_place, write_row, swap, local_only, views])
def test_writes_to_inputs_are_kept(function: Any) -> None:
    torch.manual_seed(0)
    mine, theirs = ([torch.randn(4, 4), torch.randn(4, 4)] for _ in range(2))
    for a, b in zip(mine, theirs, strict=True):
        b.copy_(a)
    gm = captured(function, *(tensor.clone() for tensor in mine))
    same(function(*mine), gm(*theirs))
    same(mine, theirs)


def test_a_captured_graph_is_fake_already_and_can_be_copied() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    gm = captured(net, torch.randn(2, 4))
    again = ensure_fake(gm)
    for graph in (gm.graph, again.graph):
        assert len({id(node.meta["val"].fake_mode) for node in graph.nodes if node.op != "output"}) == 1
    assert next(iter(again.parameters())) is net[0].weight
    x = torch.randn(2, 4)
    same(gm(x), copy.deepcopy(gm)(x))


def test_a_graph_module_can_be_captured_again() -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    gm = captured(captured(net, x), x)
    assert targets(gm) == ["permute.default", "addmm.default", "relu.default"]
    assert next(iter(gm.parameters())) is net[0].weight
    same(net(x), gm(x))

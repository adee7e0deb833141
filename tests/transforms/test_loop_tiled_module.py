"""A pickled tiled graph is the same graph: names, values, stamps, traces, structure of inputs and outputs."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor

import spyre_fx
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_link import call_loop
from spyre_fx.transforms.tiled_module import TiledGraphModule
from tests.transforms.loop_cases import rows, type_of


class Model(nn.Module):
    """Takes and returns dicts, and holds a parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.register_buffer("shift", torch.randn(4))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        scaled = inputs["x"] * self.weight
        return {"y": self.layers(scaled).tanh() + self.shift, "scaled": scaled}


def tiled() -> tuple[Model, TiledGraphModule]:
    """The captured model with its ``tanh`` in a loop over rows."""
    model = Model()
    gm = spyre_fx.capture(model, {"x": torch.randn(6, 4)})
    result = TiledGraphModule(gm, gm.graph)
    (tanh,) = result.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)
    tanh.meta["val"] = [tanh.meta["val"]]
    with result.graph.inserting_after(tanh):
        item = result.graph.call_function(torch.ops.aten.alias.default, (tanh,))
    tanh.replace_all_uses_with(item)
    item.update_arg(0, tanh)
    call = call_loop(result, tanh, rows(torch.tanh, (torch.randn(6, 4),), [0], 0, 4), [tanh.args[0]])
    call.meta["loop_group_id"] = (0,)
    item.replace_all_uses_with(call)
    result.graph.erase_node(item)
    result.graph.lint()
    result.recompile()
    return model, result


def through_torch_save(module: Any) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_torch_save]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle", "torch.save"])
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_copies_are_the_same_graph(copied: Callable[[Any], Any]) -> None:
    model, old = tiled()
    new = copied(old)
    assert isinstance(new, TiledGraphModule) and type(new).__name__ == type(old).__name__
    x = torch.randn(6, 4)
    torch.testing.assert_close(new({"x": x}), model({"x": x}))
    for a, b in zip(old.graph.nodes, new.graph.nodes, strict=True):
        assert (a.op, a.name, str(a.target), str(a.args)) == (b.op, b.name, str(b.target), str(b.args))
        assert a.stack_trace == b.stack_trace
        assert type_of(a.meta.get("val")) == type_of(b.meta.get("val"))
        assert a.meta.get("loop_group_id") == b.meta.get("loop_group_id")
        assert a.meta is not b.meta
    assert isinstance(new.get_submodule("loop_0"), CountedLoop)
    assert new.get_submodule("loop_0") is not old.get_submodule("loop_0")
    assert [*dict(new.named_parameters())] == [*dict(old.named_parameters())]
    assert [*dict(new.named_buffers())] == [*dict(old.named_buffers())]


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_all_values_of_a_loaded_graph_are_under_one_mode() -> None:
    new = pickle.loads(pickle.dumps(tiled()[1]))
    loop = new.get_submodule("loop_0")
    graphs = [new.graph, *(body.graph for body in loop.bodies.values())]
    values = [node.meta.get("val") for graph in graphs for node in graph.nodes]
    modes = {value.fake_mode for value in values if isinstance(value, FakeTensor)}
    assert len(modes) == 1


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_a_loaded_graph_can_be_copied_again_and_trained() -> None:
    model, old = tiled()
    new = copy.deepcopy(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(old)))))
    x = torch.randn(6, 4)
    new({"x": x})["y"].sum().backward()
    model({"x": x})["y"].sum().backward()
    weights = dict(new.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(weights[name].grad, parameter.grad)

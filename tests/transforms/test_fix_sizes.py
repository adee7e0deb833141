"""Graphs with symbolic sizes at their largest ones."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.errors import LoweringError
from spyre_fx.transforms.fix_sizes import fix_sizes


def traced(function, *args):
    return make_fx(function, tracing_mode="symbolic")(*args)


def shapes(gm):
    return [tuple(node.meta["val"].shape) for node in gm.graph.find_nodes(op="placeholder")]


def test_bounds_of_an_exported_program_are_the_largest_sizes():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.view(x.shape[0] * 4, 8).relu()

    dims = {"x": {0: Dim("batch", max=12)}}
    gm = spyre_fx.capture(torch.export.export(Model(), (torch.ones(3, 4, 8),), dynamic_shapes=dims))
    before = str(gm.graph)
    fixed = fix_sizes(gm)
    assert str(gm.graph) == before
    assert shapes(fixed) == [(12, 4, 8)]
    assert [node.target for node in fixed.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.view.default,
        torch.ops.aten.relu.default,
    ]
    sizes = fixed.meta["launch_sizes"]
    ((name, dim, symbol),) = sizes.inputs
    assert (name, dim, sizes.largest) == ("x", 0, {symbol: 12})
    x = torch.randn(12, 4, 8)
    assert torch.equal(fixed(x), Model()(x))


def test_largest_sizes_may_be_given():
    gm = traced(lambda x, y: (x + y, torch.full((x.shape[0], 2), 3.0)), torch.ones(5, 7), torch.ones(7))
    fixed = fix_sizes(gm, {"x_1": {0: 10, 1: 14}})
    assert shapes(fixed) == [(10, 14), (14,)]
    x, y = torch.randn(10, 14), torch.randn(14)
    one, other = fixed(x, y)
    assert torch.equal(one, x + y) and torch.equal(other, torch.full((10, 2), 3.0))


def test_strides_grow_with_the_sizes():
    fixed = fix_sizes(traced(lambda x: x + 1, torch.ones(5, 7).t()), {"x_1": {0: 14, 1: 10}})
    (x,) = fixed.graph.find_nodes(op="placeholder")
    assert tuple(x.meta["val"].shape) == (14, 10) and tuple(x.meta["val"].stride()) == (1, 14)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x.mean(0), r"aten\.mean.*whose values depend on a size"),
        (lambda x: x * x.shape[0], r"aten\.mul.*whose values depend on a size"),
        (lambda x: x.flip(0), r"aten\.flip.*whose values depend on a size"),
        (lambda x: x.sort(0)[0], r"aten\.sort.*whose values depend on a size"),
        (lambda x: x + torch.arange(x.shape[1]), r"aten\.arange.*whose values depend on a size"),
    ],
)
def test_values_that_depend_on_a_size_are_refused(function, words):
    with pytest.raises(LoweringError, match=words):
        fix_sizes(traced(function, torch.ones(6, 5)), {"x_1": {0: 12, 1: 10}})


def test_sizes_without_a_bound_are_refused():
    with pytest.raises(
        LoweringError, match=r"dim 0 of the input 'x_1'.*no upper bound.*largest=\{'x_1': \{0: \.\.\.\}\}"
    ):
        fix_sizes(traced(lambda x: x + 1, torch.ones(6, 5)), {"x_1": {1: 10}})


def test_sizes_that_an_op_fixed_are_refused():
    graph = traced(lambda x: torch.linspace(0, 1, x.shape[0]) + x[:, 0], torch.ones(6, 5))
    with pytest.raises(LoweringError, match=r"size 6 of dim 0 of the input 'x_1'.*a number, or one symbol"):
        fix_sizes(graph, {"x_1": {0: 12, 1: 10}})


def test_bounds_for_unknown_inputs_are_refused():
    with pytest.raises(LoweringError, match=r"largest sizes for z.*names of inputs: x_1"):
        fix_sizes(traced(lambda x: x + 1, torch.ones(6, 5)), {"x_1": {0: 12, 1: 10}, "z": {0: 3}})


def test_outputs_that_are_sizes_are_refused():
    with pytest.raises(LoweringError, match="an output that is a size"):
        fix_sizes(traced(lambda x: (x + 1, x.shape[0]), torch.ones(6, 5)), {"x_1": {0: 12, 1: 10}})


def test_an_op_may_have_several_results():
    """A norm, whose rows are counted at launch; not one of which the mean runs over them."""
    norm = torch.nn.LayerNorm(8)
    dims = {"input": {0: Dim("batch", max=12)}}
    exported = fix_sizes(spyre_fx.capture(torch.export.export(norm, (torch.ones(3, 8),), dynamic_shapes=dims)))
    assert shapes(exported) == [(12, 8)]
    with pytest.raises(LoweringError, match=r"native_layer_norm.*depend on a size"):
        fix_sizes(
            traced(lambda x: torch.nn.functional.layer_norm(x, (x.shape[1],)), torch.ones(6, 8)),
            {"x_1": {0: 16, 1: 16}},
        )

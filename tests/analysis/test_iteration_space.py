"""Iteration spaces of nodes."""

from __future__ import annotations

import doctest
import operator
from types import ModuleType

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis import iteration, registration
from spyre_fx.analysis import iteration_space as iteration_space_file
from spyre_fx.analysis.iteration import Kind, OpCall
from spyre_fx.analysis.iteration_space import draws_random, iteration_space, space_of, space_of_call
from spyre_fx.analysis.rules import mixed_radix
from spyre_fx.errors import TilingError

aten = torch.ops.aten


@pytest.mark.parametrize(
    "module", [iteration, iteration_space_file, registration, mixed_radix], ids=lambda m: m.__name__
)
def test_examples_in_docstrings(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)


def test_operands_come_in_the_order_of_the_arguments() -> None:
    gm = make_fx(lambda x, y: torch.where(x > 0, y, x))(torch.ones(4, 6), torch.ones(6))
    (where,) = gm.graph.find_nodes(op="call_function", target=aten.where.self)
    assert iteration_space(where).operands == (((0,), (1,)), ((1,),), ((0,), (1,)))


def test_a_list_of_tensors_counts_one_by_one() -> None:
    gm = make_fx(lambda x, y: torch.cat([x, y, x]))(torch.ones(4, 6), torch.ones(3, 6))
    (cat,) = gm.graph.find_nodes(op="call_function", target=aten.cat.default)
    assert len(iteration_space(cat).operands) == 3


def test_getitem_joins_its_producer() -> None:
    gm = make_fx(lambda x: torch.max(x, 1))(torch.ones(4, 6))
    items = gm.graph.find_nodes(op="call_function", target=operator.getitem)
    assert len(items) == 2
    assert all(space_of(item) is None for item in items)
    assert len(iteration_space(items[0].args[0]).results) == 2


def test_an_opaque_op_is_named_with_its_place() -> None:
    gm = make_fx(lambda x: x.nonzero(), tracing_mode="fake")(torch.ones(4, 6))
    (nonzero,) = gm.graph.find_nodes(op="call_function", target=aten.nonzero.default)
    with pytest.raises(
        TilingError, match=r"aten\.nonzero\.default has no iteration space.*register_iteration_space"
    ) as e:
        iteration_space(nonzero)
    assert "%nonzero" in str(e.value)
    assert "[4, 6] float32" in str(e.value)


def test_a_node_without_shapes_is_opaque() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    assert space_of(x) is None
    assert space_of(graph.call_function(aten.relu.default, (x,))) is None


@pytest.mark.parametrize(("dropout", "random"), [(0.0, False), (0.5, True)])
def test_attention_draws_random_numbers_for_its_dropout(dropout: float, random: bool) -> None:
    q = torch.ones(2, 3, 4, 8)
    op = aten._scaled_dot_product_attention_math.default
    call = OpCall(op, (q, q, q, None, dropout), {}, op(q, q, q, None, dropout))
    assert draws_random(call) is random
    assert (space_of_call(call) is None) is random


def test_backward_graphs() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.nn.functional.layer_norm(x @ w, (8,)).relu()
        return torch.autograd.grad(torch.nn.functional.cross_entropy(hidden, target), (x, w))

    x, w = torch.ones(6, 4, requires_grad=True), torch.ones(4, 8, requires_grad=True)
    gm = make_fx(loss)(x, w, torch.tensor([0, 1, 2, 3, 4, 5]))
    calls = [node for node in gm.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    assert [node.name for node in calls if space_of(node) is None] == []
    free = [node.name for node in calls if any(a.kind is Kind.PARALLEL for a in iteration_space(node).axes)]
    assert len(free) > 10

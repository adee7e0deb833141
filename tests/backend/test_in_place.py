"""Writing over dying values: what is written where, and that results and inputs stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from spyre_fx.backend.in_place import in_place
from spyre_fx.backend.write_forms import WRITES
from spyre_fx.transforms.executor import pages
from spyre_fx.transforms.executor.pages import fresh

aten = torch.ops.aten


def functional(function: Callable[..., Any], *args: Tensor) -> fx.GraphModule:
    """The graph that AOTAutograd makes: no in-place ops, except copies to written inputs at the end."""
    return make_fx(torch.func.functionalize(function), tracing_mode="fake")(*args)


def ops(gm: fx.GraphModule) -> list[str]:
    return [str(node.target).removeprefix("aten.") for node in gm.graph.nodes if node.op == "call_function"]


def check(function: Callable[..., Any], *args: Tensor) -> list[str]:
    """The ops of the rewritten graph, after comparing results and inputs with eager."""
    gm = functional(function, *args)
    before = str(gm.graph)
    new = in_place(gm)
    assert str(gm.graph) == before
    mine, theirs = [arg.clone() for arg in args], [arg.clone() for arg in args]
    found, expected = new(*mine), function(*theirs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    memory = {x.untyped_storage().data_ptr() for x in mine}
    results = found if isinstance(found, (tuple, list)) else [found]
    shared = [x for x in results if x.untyped_storage().data_ptr() in memory]
    assert len(shared) == sum(x.untyped_storage().data_ptr() in {t.data_ptr() for t in theirs} for x in _flat(expected))
    return ops(new)


def _flat(values: Any) -> list[Tensor]:
    return [*values] if isinstance(values, (tuple, list)) else [values]


X, Y = torch.randn(8, 8), torch.randn(8, 8)


def test_elementwise_ops_write_over_a_dying_operand() -> None:
    assert check(lambda x, y: F.gelu(x @ y).add(1).relu(), X, Y) == [
        "mm.default",
        "gelu.out",
        "add.out",
        "clamp_min.out",
    ]


def test_the_first_dying_operand_is_taken() -> None:
    assert check(lambda x, y: x + (x @ y), X, Y) == ["mm.default", "add.out"]


def test_inputs_are_not_written() -> None:
    assert check(lambda x: x + 1, X) == ["add.Tensor"]
    assert check(lambda x: x.t() + 1, X) == ["t.default", "add.Tensor"]


def test_a_value_that_is_read_later_is_kept() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        return (y + 1) * y

    assert check(function, X) == ["mul.Tensor", "add.Tensor", "mul.out"]


def test_a_value_that_is_returned_is_kept() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y + 1

    assert check(function, X) == ["mul.Tensor", "add.Tensor"]


def test_a_value_that_a_view_of_it_keeps_alive_is_kept() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y + 1, y[0]

    assert "add.out" not in check(function, X)


def test_another_type_or_order_of_elements_is_not_written_over() -> None:
    assert check(lambda x, y: (x @ y) > 0, X, Y) == ["mm.default", "gt.Scalar"]
    assert check(lambda x, y: (x @ y).to(torch.float64) + 1, X, Y)[-1] == "add.out"
    assert check(lambda x, y: (x @ y) + y[:, :1] @ x[:1], X, Y)[-1] == "add.out"


def test_a_part_of_a_larger_memory_is_not_returned() -> None:
    assert check(lambda x, y: (x @ y)[:2] + 1, X, Y)[-1] == "add.Tensor"


def test_a_value_read_twice_in_other_places_is_not_written_over() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        return y + y.t()

    assert check(function, X)[-1] == "add.Tensor"


def test_a_view_of_all_of_it_may_be_written() -> None:
    assert check(lambda x, y: (x @ y).view(2, 4, 8) + 1, X, Y)[-1] == "add.out"


def test_one_result_of_several_may_be_written_over() -> None:
    assert check(lambda x: F.layer_norm(x, (8,)) + 1, X)[-1] == "add.out"


def test_constants_of_the_module_are_kept() -> None:
    gm = fx.symbolic_trace(torch.nn.Linear(2, 2))
    weight = gm.weight.detach().clone()
    graph = fx.Graph()
    constant = graph.get_attr("weight")
    constant.meta["val"] = weight
    node = graph.call_function(aten.add.Tensor, (constant, 1))
    node.meta["val"] = weight
    graph.output(node)
    new = in_place(fx.GraphModule(gm, graph))
    assert ops(new) == ["add.Tensor"]


def test_a_written_input_is_written_where_it_stands() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1).mul_(2)
        return x + y

    assert check(function, X, Y) == ["add.out", "mul.out", "add.Tensor"]


def test_a_running_average_costs_no_copy() -> None:
    def function(mean: Tensor, x: Tensor) -> Tensor:
        mean.mul_(0.9).add_(x, alpha=0.1)
        return x * 2

    assert check(function, X, Y) == ["mul.out", "add.out", "mul.Tensor"]


def test_an_input_that_is_read_after_its_new_value_is_made_is_copied_to() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        new = x * y
        old = x + 1
        x.copy_(new)
        return old

    found = check(function, X, Y)
    assert "mul.out" not in found
    assert found[-1] == "copy_.default"


def test_a_new_value_that_is_returned_too_is_copied() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        new = x * y
        x.copy_(new)
        return new

    assert check(function, X, Y) == ["mul.Tensor", "copy_.default"]


def test_an_input_written_from_its_own_view_is_not_written_in_place() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.copy_(x.t() * y)
        return y + 1

    assert "mul.out" not in check(function, X, Y)


def test_parts_of_an_input_are_written_alone() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x[:, 2:4] = y[:, :2]
        x[0].add_(3)
        return x @ y

    found = check(function, X, Y)
    assert not any("scatter" in op for op in found)


def test_rows_of_a_cache_are_written_alone() -> None:
    def function(cache: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        cache[rows] = values
        return cache.sum()

    assert check(function, X, torch.tensor([1, 3]), torch.randn(2, 8)) == ["index_put_.default", "sum.default"]


@pytest.mark.parametrize("op", sorted(WRITES, key=str), ids=str)
def test_each_write_gives_what_the_op_gives(op: Any) -> None:
    args = write_arguments()
    expected = op(X, *args[op])
    graph = fx.Graph()
    memory = graph.placeholder("memory")
    given = [graph.placeholder(f"arg_{i}") for i, arg in enumerate(args[op]) if isinstance(arg, (Tensor, list))]
    nodes = iter(given)
    WRITES[op](graph, (memory, *(next(nodes) if isinstance(arg, (Tensor, list)) else arg for arg in args[op])), {})
    graph.output(memory)
    found = X.clone()
    fx.GraphModule({}, graph)(found, *(arg for arg in args[op] if isinstance(arg, (Tensor, list))))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("op", sorted(WRITES, key=str), ids=str)
def test_a_large_result_of_a_write_leaves_its_operand_alone(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LEAST", 1)
    leaves, spec = pytree.tree_flatten(write_arguments()[op])
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def fn(x: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        rest = iter(given)
        arguments = pytree.tree_unflatten([next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)
        return op(x, *arguments), x + 1

    assert any("fresh" in name for name in check(fn, X, *tensors))


def write_arguments() -> dict[Any, tuple[Any, ...]]:
    """For each op that writes, what comes after the operand that it changes."""
    rows, source = torch.tensor([1, 3]), torch.arange(16.0).reshape(2, 8)
    mask, index = X > 0, torch.arange(64).reshape(8, 8) * 3 % 8
    return {
        aten.copy.default: (Y,),
        aten.index_put.default: ([rows], source),
        aten.index_add.default: (0, rows, source),
        aten.index_copy.default: (0, rows, source),
        aten.index_fill.int_Scalar: (0, rows, 2.0),
        aten.masked_scatter.default: (mask, torch.arange(64.0)),
        aten.scatter.src: (0, index, Y),
        aten.scatter.value: (0, index, 2.0),
        aten.scatter_add.default: (0, index, Y),
        aten.scatter_reduce.two: (0, index, Y, "amax"),
        aten.slice_scatter.default: (source, 0, 2, 4),
        aten.select_scatter.default: (Y[0], 1, 3),
        aten.diagonal_scatter.default: (Y[0],),
        aten.as_strided_scatter.default: (Y[:2], (2, 8), (8, 1), 16),
    }


def test_a_loss_whose_out_form_does_not_reduce_is_made_apart() -> None:
    def fn(kept: Tensor, p: Tensor, t: Tensor) -> Tensor:
        torch.mul(F.binary_cross_entropy(p, t), 2, out=kept)
        return p + 1

    assert check(fn, torch.zeros(()), X.sigmoid(), Y.sigmoid())[:2] == ["binary_cross_entropy.default", "mul.out"]


def test_large_values_are_made_in_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LEAST", 1 << 20)
    x, w = torch.randn(1024, 64), torch.randn(64, 512)

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x @ w
        return y.relu().t(), (x @ x.t()).softmax(1), x.sum(1)

    gm = make_fx(fn, tracing_mode="fake")(x, w)
    runnable = in_place(gm)
    made = [node for node in runnable.graph.nodes if node.target is fresh]
    assert [node.args[0] for node in made] == [(1024, 512), (1024, 1024)]  # relu and softmax write over these
    for found, expected in zip(runnable(x, w), fn(x, w), strict=True):
        assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert not gm.graph.find_nodes(op="call_function", target=fresh)

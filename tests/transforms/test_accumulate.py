"""Products that a loop adds to running values: the bodies say so, and values are those of product and sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import spyre_fx
from spyre_fx.analysis.budget import timeline
from spyre_fx.transforms.accumulate import add_in_place
from spyre_fx.transforms.auto.check import peak_bytes
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.gradients.additive import sums_only
from tests.transforms.loop_cases import body_of

aten = torch.ops.aten


def tiled(function: Any, args: tuple[Tensor, ...], levels: list[tuple[int, Any]]) -> fx.GraphModule:
    gm = spyre_fx.capture(function, *args)
    return spyre_fx.tile(gm, [([node.name for node in gm.graph.nodes if node.op == "call_function"], levels)])


def bodies(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    for module in gm.modules():
        if isinstance(module, CountedLoop):
            yield from module.bodies.values()


def targets(gm: fx.GraphModule) -> list[Any]:
    return [node.target for body in bodies(gm) for node in body.graph.nodes if node.op == "call_function"]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(1, 2) * 0.125, -1) @ v


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
@pytest.mark.parametrize("k", [12, 13])
def test_a_product_over_tiles_of_k(dtype: torch.dtype, k: int) -> None:
    a, b = (torch.randn(shape) * 4 for shape in ((5, k), (k, 7)))
    a, b = a.to(dtype), b.to(dtype)
    gm = tiled(torch.mm, (a, b), [(4, [2])])
    found = targets(gm)
    assert aten.addmm.default in found and aten.mm.default not in found and aten.add.Tensor not in found
    wide = torch.float64 if dtype.is_floating_point else dtype
    torch.testing.assert_close(gm(a, b), (a.to(wide) @ b.to(wide)).to(dtype))
    assert all(map(sums_only, (module for module in gm.children() if isinstance(module, CountedLoop))))


def test_batches_of_products_and_nests() -> None:
    a, b = torch.randn(3, 5, 12).half(), torch.randn(3, 12, 8).half()
    gm = tiled(torch.bmm, (a, b), [(3, [0]), (2, [3]), (2, [1])])
    assert aten.baddbmm.default in targets(gm) and aten.bmm.default not in targets(gm)
    torch.testing.assert_close(gm(a, b), a @ b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_what_follows_a_running_maximum_is_scaled_and_added_to_in_place(dtype: torch.dtype, count: int) -> None:
    q, k, v = (torch.randn(2, 24, 8, dtype=dtype) for _ in "qkv")
    gm = tiled(attention, (q, k, v), [(count, {"bmm": 2})])
    found = targets(gm)
    assert found.count(aten.baddbmm.default) == found.count(aten.bmm.default) == len(list(bodies(gm)))
    torch.testing.assert_close(gm(q, k, v), attention(q, k, v), rtol=2e-3, atol=2e-3)
    (loop,) = (module for module in gm.children() if isinstance(module, CountedLoop))
    (total,) = (i for i, kind in enumerate(loop.result_types) if kind.shape == (2, 24, 8))
    for phase in loop.plan().phases:
        assert f"aten_mul_out(out_{total}, " in phase.schedule.text
        assert f"aten_baddbmm_out(out_{total}, " in phase.schedule.text


def test_one_running_sum_is_all_that_a_loop_holds() -> None:
    a, b = torch.randn(64, 96), torch.randn(96, 64)
    gm = tiled(torch.mm, (a, b), [(2, [0]), (4, [2])])
    assert peak_bytes(gm) == 64 * 64 * 4


def test_complex_products_are_added_afterwards() -> None:
    a, b = torch.randn(4, 6, dtype=torch.complex64), torch.randn(6, 5, dtype=torch.complex64)
    gm = tiled(torch.mm, (a, b), [(3, [2])])
    assert aten.mm.default in targets(gm) and aten.addmm.default not in targets(gm)
    torch.testing.assert_close(gm(a, b), a @ b)


def added(function: Any, *args: Tensor) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of ``function`` with its result rewritten, and its ops."""
    body = body_of(lambda *tensors: (function(*tensors),), *args)
    (total,) = body.graph.output_node().args[0]
    add_in_place(total)
    body.graph.lint()
    body.recompile()
    torch.testing.assert_close(body(*args)[0], function(*args))
    return body, [node.target for node in body.graph.nodes if node.op == "call_function"]


X, Y, SUM = torch.randn(4, 6), torch.randn(6, 5), torch.randn(4, 5)


def test_either_way_round() -> None:
    assert added(lambda c, a, b: c + a @ b, SUM, X, Y)[1] == [aten.addmm.default]
    assert added(lambda c, a, b: a @ b + c, SUM, X, Y)[1] == [aten.addmm.default]


@pytest.mark.parametrize(
    "function",
    [
        lambda c, a, b: torch.add(c, a @ b, alpha=2),
        lambda c, a, b: c[0] + a @ b,
        lambda c, a, b: c.double() + a @ b,
        lambda c, a, b: c + (a @ b).relu(),
        lambda c, a, b: (p := a @ b) + p,
        lambda c, a, b: (p := a @ b) + p.relu(),
        lambda c, a, b: c + 1.5,
    ],
    ids=["scaled", "broadcast", "wider", "not a product", "twice", "read again", "a number"],
)
def test_what_is_no_plain_sum_stays(function: Any) -> None:
    _, ops = added(function, SUM, X, Y)
    assert aten.addmm.default not in ops and aten.add.Tensor in ops


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_sums_over_k(dtype: torch.dtype) -> None:
    a, b = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((5, 12), (12, 7)))
    gm = tiled(torch.mm, (a.detach(), b.detach()), [(4, [2])])
    weight = torch.randn(5, 7, dtype=dtype)
    found = torch.autograd.grad((gm(a, b) * weight).sum(), (a, b))
    wanted = torch.autograd.grad(((a @ b) * weight).sum(), (a, b))
    torch.testing.assert_close(found, wanted)


def test_a_running_value_starts_as_one_number_without_memory_of_its_own():
    """``full([8, 16], 0)`` before the loop -> ``expand(full([], 0), [8, 16])``; one number needs no expand."""
    gm = tiled(lambda x, y: (x.t() @ y, x.sum()), (torch.randn(64, 8), torch.randn(64, 16)), [(4, {"x": 0, "y": 0})])
    fills = gm.graph.find_nodes(op="call_function", target=aten.full.default)
    starts = gm.graph.find_nodes(op="call_function", target=aten.expand.default)
    assert [node.args[0] for node in fills] == [[], []]
    assert [(node.args[0], list(node.meta["val"].shape)) for node in starts] == [(fills[0], [8, 16])]
    (moment,) = (one for one in timeline(gm) if one.node.op == "call_module")
    assert moment.live_bytes == 8 * 16 * 4 + 4 + 2 * 4  # the results, and the numbers that they start as
    x, y = torch.randn(64, 8), torch.randn(64, 16)
    product, total = gm(x, y)
    torch.testing.assert_close(product, x.t() @ y)
    torch.testing.assert_close(total, x.sum())

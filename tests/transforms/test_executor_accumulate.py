"""Sums of products: the product of a trip has no memory of its own, and values stay those of product and sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

import spyre_fx
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.plan_types import LoopPlan
from spyre_fx.transforms.loop_types import Assembled, Carried, Slice
from tests.transforms.loop_cases import loop_of, rows
from tests.transforms.test_executor import Storages, matmul_over_k, text_of

PRODUCTS = ("aten_mm", "aten_bmm")
NESTS = [
    [(1, 2)],
    [(1, 3), (2, 4)],
    [(2, 3), (0, 2)],
    [(2, 3), (2, 2)],
    [(0, 2), (1, 2), (2, 5)],
    [(2, 2), (0, 4), (1, 3)],
]


def made(dtype: torch.dtype, *shape: int) -> Tensor:
    whole = not (dtype.is_floating_point or dtype.is_complex)
    return torch.randint(-100, 100, shape, dtype=dtype) if whole else torch.randn(shape, dtype=dtype)


def over_k(function: Callable[..., Tensor], args: Sequence[Tensor], levels: Sequence[tuple[int, int]]) -> CountedLoop:
    """The loop around ``function``, one op; levels are dims and counts, outermost first."""
    gm = spyre_fx.capture(function, *args)
    ops = [node for node in gm.graph.nodes if node.op == "call_function"]
    (loop,) = (m for m in spyre_fx.tile(gm, [(ops, [(count, [dim]) for dim, count in levels])]).children())
    assert isinstance(loop, CountedLoop)
    return loop


def texts(plan: LoopPlan) -> Iterator[str]:
    for phase in plan.phases:
        yield phase.schedule.text
        for child in phase.schedule.children:
            yield from texts(child.plan)


def run(loop: CountedLoop, *args: Tensor) -> Tensor:
    """A K-tiled product from zero, for loops whose first argument is the running value (or that have none)."""
    kind = loop.argument_types[0]
    assert kind is not None
    if len(loop.argument_types) == len(args):
        return loop(*args)
    return loop(torch.zeros(kind.shape, dtype=kind.dtype), *args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8])
@pytest.mark.parametrize("k", [12, 13])
def test_every_real_dtype_is_summed_in_place(dtype: torch.dtype, k: int) -> None:
    a, b = made(dtype, 5, k), made(dtype, k, 7)
    loop = over_k(torch.mm, (a, b), [(2, 5)])
    for text in texts(loop.plan()):
        assert "aten_addmm_out(out_0, " in text and not any(f"{name}_out" in text for name in PRODUCTS)
    want = a.double() @ b.double() if dtype.is_floating_point else a @ b
    got = run(loop, a, b)
    torch.testing.assert_close(got.to(want.dtype), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("levels", NESTS)
def test_nests_of_a_product_need_no_memory_beside_the_result(levels: list[tuple[int, int]]) -> None:
    a, b = torch.randn(5, 11), torch.randn(11, 7)
    loop = over_k(torch.mm, (a, b), levels)
    assert loop.plan().scratch == 0
    assert not any("copy_" in text or "buffer" in text for text in texts(loop.plan()))
    torch.testing.assert_close(run(loop, a, b), a @ b)


@pytest.mark.parametrize(
    "levels",
    [[(3, 3)], [(0, 3), (3, 4)], [(1, 2), (3, 3)], [(2, 2), (3, 3)], [(3, 3), (2, 2)], [(0, 2), (2, 3), (3, 2)]],
)
def test_nests_of_batches_of_products(levels: list[tuple[int, int]]) -> None:
    a, b = torch.randn(3, 5, 11), torch.randn(3, 11, 7)
    loop = over_k(torch.bmm, (a, b), levels)
    assert any("aten_baddbmm_out(" in text for text in texts(loop.plan()))
    torch.testing.assert_close(run(loop, a, b), a @ b)


def test_the_peak_is_the_result_alone() -> None:
    a, b, zero = torch.randn(64, 96), torch.randn(96, 64), torch.zeros(64, 64)
    with Storages(a, b, zero) as storages:
        got = matmul_over_k(a, b, zero, 7)
        assert storages.peak == got.nbytes
    torch.testing.assert_close(got, a @ b)
    inner = over_k(torch.mm, (a, b), [(0, 2), (2, 5)])
    with Storages(a, b) as storages:
        got = run(inner, a, b)
        assert storages.peak == got.nbytes
    torch.testing.assert_close(got, a @ b)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_as_it_is(bad: float) -> None:
    """Also an infinity that meets a zero, in the operands or in the running value."""
    a, b, acc = torch.randn(4, 9), torch.randn(9, 6), torch.randn(4, 6)
    a[0, 5] = a[1, 2] = bad
    b[2, 3], b[5, 1], b[7, 4] = 0.0, 0.0, bad
    acc[2, 2] = acc[3, 4] = bad
    want = acc
    for left, right in zip(a.split(4, 1), b.split(4, 0), strict=True):
        want = want + left @ right
    torch.testing.assert_close(matmul_over_k(a, b, acc, 4), want, equal_nan=True)
    assert not want.isfinite().all()


def test_complex_products_are_added_afterwards() -> None:
    """BLAS would make NaN of the infinite running value."""
    a, b, acc = (made(torch.complex64, *shape) for shape in ((4, 9), (9, 6), (4, 6)))
    acc[1, 1] = complex(math.inf, 1.0)
    loop = loop_of(
        lambda a, b, acc: (acc + a @ b,), (a, b, acc), [Slice(1, (9,)), Slice(0, (9,)), None], [Carried(2)], [acc], 4
    )
    assert "aten_mm_out(" in text_of(loop) and "addmm" not in text_of(loop)
    got = torch.view_as_real(loop(a, b, acc))
    assert got[1, 1, 0] == math.inf and got[1, 1, 1].isfinite()
    torch.testing.assert_close(got, torch.view_as_real(acc + a @ b), rtol=1e-4, atol=1e-4)


def test_several_sums_in_one_loop() -> None:
    x, w, y = torch.randn(13, 4), torch.randn(4, 6), torch.randn(13, 3)
    gm = spyre_fx.capture(lambda x, w, y: (h := (x @ w).relu(), x.t() @ h, y.t() @ h, h.sum(0))[1:], x, w, y)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(ops, 4, {"mm": 0})])
    (loop,) = (module for module in tiled.modules() if isinstance(module, CountedLoop))
    assert text_of(loop).count("aten_addmm_out(") == 2 and text_of(loop).count("aten_mm_out(") == 1
    for got, want in zip(tiled(x, w, y), gm(x, w, y), strict=True):
        torch.testing.assert_close(got, want)


def weight_gradient(
    fn: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]], more: int = 0
) -> tuple[CountedLoop, ...]:
    x, g, acc = torch.randn(10, 4), torch.randn(10, 6), torch.randn(6, 4)
    cut = Slice(0, (10,))
    results = [Carried(2), *[Assembled(cut)] * more]
    loop = loop_of(fn, (x, g, acc), [cut, cut, None], results, [acc, x][: 1 + more], 4)
    found = loop(x, g, acc)
    torch.testing.assert_close(found[0] if more else found, acc + g.t() @ x)
    return (loop,)


@pytest.mark.parametrize(
    "transposed", [lambda p: p.t(), lambda p: p.permute(1, 0), lambda p: p.permute(-1, 0)], ids=["t", "permute", "last"]
)
def test_the_transpose_of_a_product_is_added_in_place(transposed: Callable[[Tensor], Tensor]) -> None:
    (loop,) = weight_gradient(lambda x, g, acc: (acc + transposed(x.t() @ g),))
    assert "addmm_out(out_0, " in text_of(loop) and loop.plan().scratch == 0


def test_a_product_that_somebody_else_reads_is_made() -> None:
    x, acc = torch.randn(10, 4), torch.randn(4, 4)
    cut = Slice(0, (10,))

    def fn(x: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        product = x.t() @ x
        return acc + product.t(), x @ product

    loop = loop_of(fn, (x, acc), [cut, None], [Carried(1), Assembled(cut)], [acc, x], 4)
    assert "addmm" not in text_of(loop)
    total, scaled = loop(x, acc)
    torch.testing.assert_close(total, acc + x.t() @ x)
    torch.testing.assert_close(scaled, torch.cat([tile @ (tile.t() @ tile) for tile in x.split(4)]))


def test_a_scaled_product_is_made() -> None:
    (loop,) = weight_gradient(lambda x, g, acc: (acc + (g.t() @ x) * 0.5 + (g.t() * 0.5) @ x,))
    assert "aten_mm_out(" in text_of(loop)


def test_a_running_value_that_its_own_product_reads() -> None:
    x, acc = torch.randn(6, 3), torch.randn(3, 3)

    def fn(x: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        return (acc + (acc @ x.t() @ x).t(),)

    loop = loop_of(fn, (x, acc), [Slice(0, (6,)), None], [Carried(1)], [acc], 3)
    want = acc
    for tile in x.split(3):
        want = want + (want @ tile.t() @ tile).t()
    torch.testing.assert_close(loop(x, acc), want)


def test_the_gradient_of_a_linear_layer_has_no_partial_sums() -> None:
    x, weight = torch.randn(14, 5), torch.randn(3, 5, requires_grad=True)
    loop = rows(lambda x, w: torch.nn.functional.linear(x, w).tanh(), (x, weight.detach()), [0, None], 0, 4)
    with Storages(x, weight) as storages:
        (got,) = torch.autograd.grad(loop(x, weight).sum(), weight)
    (want,) = torch.autograd.grad(torch.nn.functional.linear(x, weight).tanh().sum(), weight)
    torch.testing.assert_close(got, want)
    assert storages.ops.count("aten.addmm.out") == 4


def summed(x: Tensor, start: Tensor) -> Tensor:
    cut = Slice(1, (x.shape[1],))
    return loop_of(lambda x, acc: (acc + x.sum(1),), (x, start), [cut, None], [Carried(1)], [start], 2)(x, start)


def test_an_inner_loop_begins_in_the_destination() -> None:
    x = torch.randn(7, 5)
    loop = rows(lambda x: summed(x, x.new_zeros(x.shape[0])), (x,), [0], 0, 3)
    assert "fill__Scalar(out_0, 0" in text_of(loop) and "copy_" not in text_of(loop)
    torch.testing.assert_close(loop(x), x.sum(1))


def test_any_value_may_be_what_an_inner_loop_begins_with() -> None:
    x = torch.randn(7, 5)
    loop = rows(lambda x: summed(x, x[:, 0].exp()), (x,), [0], 0, 3)
    assert ", out=out_0)" in text_of(loop) and not loop.plan().phases[0].schedule.children[0].plan.copied
    torch.testing.assert_close(loop(x), x[:, 0].exp() + x.sum(1))


def test_a_beginning_that_is_read_again_has_memory_of_its_own() -> None:
    x = torch.randn(7, 5)
    cut = Slice(0, (7,))

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        start = x[:, 0].exp()
        return summed(x, start), start * 2, summed(x, start.sin())

    loop = loop_of(fn, (x,), [cut], [Assembled(cut)] * 3, [x[:, 0].contiguous()] * 3, 3)
    first = x[:, 0].exp()
    for got, want in zip(loop(x), (first + x.sum(1), first * 2, first.sin() + x.sum(1)), strict=True):
        torch.testing.assert_close(got, want)

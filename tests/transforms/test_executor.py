"""How a loop runs: no temporary where the destination will do, nests that write straight into the full result."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.storage import ALIGNMENT, Lifetime, pack
from spyre_fx.transforms.executor.windows import Window
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.loop_types import Assembled, Carried, Slice
from spyre_fx.transforms.tile import tile
from tests.transforms.loop_cases import loop_of, rows


class Storages(TorchDispatchMode):
    """The ops that ran, and the bytes of each new storage that they made; ``peak`` counts those alive at one time."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.ops: list[str] = []
        self.sizes: list[int] = []
        self.live = self.peak = 0
        self.seen = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.ops.append(str(func))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in self.seen:
                self._add(leaf.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        self.seen.add(storage._cdata)
        self.sizes.append(storage.nbytes())
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._remove, storage._cdata, storage.nbytes())

    def _remove(self, key: int, nbytes: int) -> None:
        self.seen.discard(key)
        self.live -= nbytes


def text_of(loop: CountedLoop) -> str:
    return loop.plan().phases[0].schedule.text


def test_a_chain_needs_one_buffer_and_writes_its_last_op_into_the_destination() -> None:
    x, y = torch.randn(64, 8), torch.randn(64, 8)
    loop = rows(lambda x, y: ((x * y).exp() + y).relu().tanh(), (x, y), [0, 0], 0, 4)
    text = text_of(loop)
    assert len(loop.plan().phases[0].schedule.buffers) == 1
    assert loop.plan().scratch == 4 * 8 * 4
    assert "aten_tanh_out(buffer_0, out=out_0)" in text
    assert "copy_" not in text
    assert text.count("out=buffer_0") == 4


def test_nothing_is_allocated_per_trip() -> None:
    x, w, v = torch.randn(32, 8), torch.randn(8, 16), torch.randn(16, 4)
    loop = rows(lambda x, w, v: torch.softmax(x @ w * 0.5, -1) @ v, (x, w, v), [0, None, None], 0, 4)
    want = torch.softmax(x @ w * 0.5, -1) @ v
    with Storages(x, w, v) as storages:
        got = loop(x, w, v)
    torch.testing.assert_close(got, want)
    assert sorted(storages.sizes)[-2:] == sorted([32 * 4 * 4, loop.plan().scratch])
    assert len([size for size in storages.sizes if size > 8]) == 2  # the rest are numbers as tensors
    assert sum("mm.out" in op for op in storages.ops) == 2 * 8


def test_the_peak_is_the_result_and_one_scratch_block() -> None:
    x = torch.randn(256, 64)
    loop = rows(lambda x: ((x.exp() + 1) * x.sigmoid()).tanh(), (x,), [0], 0, 8)
    with Storages(x) as storages:
        loop(x)
    assert storages.peak <= x.nbytes + 3 * 8 * 64 * 4 + 64


def test_an_op_behind_a_view_takes_over_the_memory_of_its_base() -> None:
    x, scale = torch.randn(8, 6), torch.randn(8, 1, 1)
    loop = rows(lambda x, s: ((x.exp().unsqueeze(1) * s).view(-1, 2, 3) + 1).sin(), (x, scale), [0, 0], 0, 4)
    assert loop.plan().scratch == 2 * ALIGNMENT >= 4 * 6 * 4
    torch.testing.assert_close(loop(x, scale), ((x.exp().unsqueeze(1) * scale).view(-1, 2, 3) + 1).sin())


def test_a_product_goes_to_a_dense_destination_only() -> None:
    q, k = torch.randn(3, 8, 4), torch.randn(3, 4, 5)
    inner = rows(torch.bmm, (q, k), [1, None], 1, 2)
    outer = rows(torch.bmm, (q, k), [0, 0], 0, 1)
    assert "aten_bmm_out(arg0_1, arg1_1, out=out_0)" in text_of(outer)
    assert "aten_bmm_out(arg0_1, arg1_1, out=buffer_0)" in text_of(inner)
    for loop in (inner, outer):
        torch.testing.assert_close(loop(q, k), torch.bmm(q, k))


def test_a_result_behind_a_view_is_written_in_place_too() -> None:
    x = torch.randn(8, 6)
    loop = rows(lambda x: (x * 2).view(-1, 2, 3), (x,), [0], 0, 4)
    assert "copy_" not in text_of(loop)
    assert torch.equal(loop(x), (x * 2).view(-1, 2, 3))


def test_an_accumulator_is_updated_in_place() -> None:
    x, zero = torch.randn(12, 4), torch.zeros(4)
    loop = loop_of(lambda x, acc: (acc + x.sum(0),), (x, zero), [Slice(0, (12,)), None], [Carried(1)], [zero], 3)
    assert "aten_add_out(out_0, buffer_0, out=out_0)" in text_of(loop)
    torch.testing.assert_close(loop(x, zero), x.sum(0))
    assert torch.equal(zero, torch.zeros(4))


def test_an_accumulator_that_is_read_later_is_not_overwritten_early() -> None:
    x, acc = torch.randn(6, 4), torch.randn(4)

    def fn(x: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        new = acc * 0.5 + x.sum(0)
        return new, x * acc

    loop = loop_of(fn, (x, acc), [Slice(0, (6,)), None], [Carried(1), Assembled(Slice(0, (6,)))], [acc, x], 2)
    got, scaled = loop(x, acc)
    running, want = acc, []
    for part in x.split(2):
        new, tile = fn(part, running)
        want.append(tile)
        running = new
    torch.testing.assert_close(got, running)
    torch.testing.assert_close(scaled, torch.cat(want))


def test_a_product_is_added_where_the_sum_is() -> None:
    a, b, acc = torch.randn(5, 12), torch.randn(12, 7), torch.randn(5, 7)
    loop = loop_of(
        lambda a, b, acc: (a @ b + acc,), (a, b, acc), [Slice(1, (12,)), Slice(0, (12,)), None], [Carried(2)], [acc], 5
    )
    assert "aten_addmm_out(out_0, a_1, b_1, out=out_0)" in text_of(loop)
    assert loop.plan().scratch == 0
    torch.testing.assert_close(loop(a, b, acc), acc + a @ b)


def row_slice(n: int) -> Slice:
    return Slice(0, (n,))


@pytest.mark.parametrize("outer, inner", [(4, 2), (5, 2), (4, 3), (7, 4)])
def test_tiles_of_tiles(outer: int, inner: int) -> None:
    x, y = torch.randn(10, 7), torch.randn(10, 7)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return rows(lambda x, y: (x * y).exp() + x, (x, y), [1, 1], 1, inner)(x, y)

    loop = rows(fn, (x, y), [0, 0], 0, outer)
    with Storages(x, y) as storages:
        got = loop(x, y)
    torch.testing.assert_close(got, (x * y).exp() + x)
    scratch = sum(size for size in storages.sizes if size != got.nbytes)
    assert scratch == loop.plan().scratch
    assert scratch <= 64 * math.ceil(outer * inner * 4 / 64)
    assert "copy_" not in text_of(loop) and "run_loop" in text_of(loop)


def test_three_levels() -> None:
    x = torch.randn(6, 5, 4)

    def innermost(x: Tensor) -> Tensor:
        return rows(lambda x: x.sigmoid() * x, (x,), [2], 2, 3)(x)

    def inner(x: Tensor) -> Tensor:
        return rows(innermost, (x,), [1], 1, 2)(x)

    loop = rows(inner, (x,), [0], 0, 4)
    torch.testing.assert_close(loop(x), x.sigmoid() * x)


def matmul_over_k(a: Tensor, b: Tensor, acc: Tensor, tile: int) -> Tensor:
    k = a.shape[1]
    cuts = [Slice(1, (k,)), Slice(0, (k,)), None]
    return loop_of(lambda a, b, acc: (acc + a @ b,), (a, b, acc), cuts, [Carried(2)], [acc], tile)(a, b, acc)


def test_rows_outside_reduction_inside() -> None:
    a, b, zero = torch.randn(10, 12), torch.randn(12, 7), torch.zeros(10, 7)
    loop = rows(lambda a, b, acc: matmul_over_k(a, b, acc, 5), (a, b, zero), [0, None, 0], 0, 4)
    torch.testing.assert_close(loop(a, b, zero), a @ b)
    assert "copy_" not in text_of(loop)


def test_reduction_outside_rows_inside() -> None:
    a, b, zero = torch.randn(10, 12), torch.randn(12, 7), torch.zeros(10, 7)

    def fn(a: Tensor, b: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        return (rows(lambda a, b, acc: acc + a @ b, (a, b, acc), [0, None, 0], 0, 4)(a, b, acc),)

    loop = loop_of(fn, (a, b, zero), [Slice(1, (12,)), Slice(0, (12,)), None], [Carried(2)], [zero], 5)
    torch.testing.assert_close(loop(a, b, zero), a @ b)
    assert loop.plan().phases[0].schedule.children[0].plan.carried == ()
    assert not torch.any(zero)


def test_reductions_at_both_levels() -> None:
    x, zero = torch.randn(10, 8), torch.zeros(())

    def fn(x: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        inner = loop_of(lambda x, acc: (acc + x.sum(),), (x, acc), [Slice(1, (8,)), None], [Carried(1)], [acc], 3)
        return (inner(x, acc),)

    loop = loop_of(fn, (x, zero), [row_slice(10), None], [Carried(1)], [zero], 4)
    torch.testing.assert_close(loop(x, zero), x.sum())
    assert loop.plan().phases[0].schedule.children[0].plan.copied == ()


def test_a_running_value_that_is_used_beside_the_inner_loop_gets_its_own_memory() -> None:
    x, start = torch.randn(6, 4), torch.randn(4)

    def fn(x: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        inner = loop_of(
            lambda x, acc: (acc + x.sum(0),), (x, acc), [row_slice(x.shape[0]), None], [Carried(1)], [acc], 1
        )
        return inner(x, acc), x + acc

    loop = loop_of(fn, (x, start), [row_slice(6), None], [Carried(1), Assembled(row_slice(6))], [start, x], 2)
    got, shifted = loop(x, start)
    torch.testing.assert_close(got, start + x.sum(0))
    before = [start + x[:i].sum(0) for i in (0, 2, 4)]
    torch.testing.assert_close(shifted, torch.cat([part + b for part, b in zip(x.split(2), before, strict=True)]))


def test_inner_results_used_inside_and_outside() -> None:
    x = torch.randn(8, 6)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        inner = rows(torch.exp, (x,), [1], 1, 2)(x)
        return inner, inner.sum(1), rows(lambda y: y + 1, (inner,), [1], 1, 3)(inner)

    results = [Assembled(row_slice(8))] * 3
    want = (x.exp(), x.exp().sum(1), x.exp() + 1)
    for got, wanted in zip(loop_of(fn, (x,), [row_slice(8)], results, want, 3)(x), want, strict=True):
        torch.testing.assert_close(got, wanted)


def test_two_results_do_not_take_over_one_argument() -> None:
    x = torch.randn(8, 6)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp()
        cut = Slice(1, (6,))
        inner = loop_of(lambda y: (y + 1, y * 2), (y,), [cut], [Assembled(cut)] * 2, (y, y), 2)
        a, b = inner(y)
        return (a * b,)

    loop = loop_of(fn, (x,), [row_slice(8)], [Assembled(row_slice(8))], (x,), 4)
    torch.testing.assert_close(loop(x), (x.exp() + 1) * (x.exp() * 2))


@pytest.mark.parametrize("axes, tiles", [((1, 0), (3, 1)), ((0, 1), (1, 2)), ((2, 1), (1, 3)), ((1, 2), (2, 1))])
def test_two_factors_of_one_dim(axes: tuple[int, int], tiles: tuple[int, int]) -> None:
    """The loops cut different factors of a dim, so that the inner tile is no plain view of the result."""
    factors = (2, 6, 3)
    x = torch.randn(3, math.prod(factors))

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        inner = list(factors)
        inner[axes[0]] = x.shape[1] // (math.prod(factors) // factors[axes[0]])
        cut = Slice(1, tuple(inner), axes[1])
        return (loop_of(lambda x: (x.exp() * x,), (x,), [cut], [Assembled(cut)], [x], tiles[1])(x),)

    cut = Slice(1, factors, axes[0])
    loop = loop_of(fn, (x,), [cut], [Assembled(cut)], [x], tiles[0])
    torch.testing.assert_close(loop(x), x.exp() * x)


@given(
    lifetimes=st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 4)).map(
            lambda t: Lifetime(t[0], t[1], t[1] + t[2])
        ),
        max_size=12,
    )
)
@settings(max_examples=50, deadline=None)
def test_values_that_live_at_one_time_do_not_overlap(lifetimes: list[Lifetime]) -> None:
    packing = pack(lifetimes)
    assert packing.nbytes % ALIGNMENT == 0 and packing.nbytes <= sum(-(-t.nbytes // 64) * 64 for t in lifetimes)
    for i, a in enumerate(lifetimes):
        assert packing.offsets[i] % ALIGNMENT == 0 and packing.offsets[i] + a.nbytes <= packing.nbytes
        for j, b in enumerate(lifetimes[:i]):
            apart = (
                packing.offsets[i] + a.nbytes <= packing.offsets[j]
                or packing.offsets[j] + b.nbytes <= packing.offsets[i]
            )
            assert apart or not a.meets(b) or 0 in (a.nbytes, b.nbytes)


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_window_is_the_view_that_slicing_gives(data: st.DataObject) -> None:
    factors = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    size = math.prod(factors)
    base = torch.arange(2 * size * 3).view(2, size, 3)
    window, place, view = Window.of(base.shape, base.stride()), 0, base.view(2, *factors, 3)
    for _ in range(data.draw(st.integers(1, 3))):
        axis = data.draw(st.integers(0, len(factors) - 1))
        tile = data.draw(st.integers(1, factors[axis]))
        start = tile * data.draw(st.integers(0, factors[axis] // tile - 1))
        cut = window.cut(Slice(1, factors, axis), tile)
        assert cut is not None
        window, place = cut.window, place + start // cut.unit * cut.stride
        view = view.narrow(1 + axis, start, tile)
        factors = (*factors[:axis], tile, *factors[axis + 1 :])
    assert torch.equal(base.as_strided(window.shape, window.stride, place).flatten(), view.flatten())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.tril(),
        lambda x: torch.nn.functional.gelu(x),
        lambda x: torch.nn.functional.avg_pool2d(x, 2),
        lambda x: torch.narrow_copy(x, 2, 1, 2),
        lambda x: torch.ops.aten._softmax_backward_data(x, x.softmax(-1), -1, torch.float32),
    ],
)
def test_kernels_that_ignore_the_strides_of_out_write_to_tiles_of_their_own(
    fn: Callable[[Tensor], Tensor],
) -> None:
    x = torch.randn(3, 3, 4, 4)
    gm = make_fx(fn)(x)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = tile(gm, [(ops, 2, {"x_1": 1})])
    assert any(isinstance(module, CountedLoop) for module in tiled.modules())
    torch.testing.assert_close(tiled(x), gm(x))


def test_a_result_in_parts_that_a_second_loop_reads_has_its_plain_shape_there() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.ops.aten._unsafe_view(
            x * 2, [48]
        )  # each outer tile of x is 8 pieces of the result, 2 elements long
        return flat, flat.sum()

    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    gm = make_fx(fn)(x)
    inner = [LoopGroup(2, {"mul": 1}, ["mul", "_unsafe_view"]), LoopGroup(4, {"_unsafe_view": 0}, ["sum_1"])]
    tiled = tile(gm, [LoopGroup(3, {"mul": 1}, inner)])
    assert sum(isinstance(module, CountedLoop) for module in tiled.modules()) == 3
    for found, expected in zip(tiled(x), fn(x), strict=True):
        torch.testing.assert_close(found, expected)

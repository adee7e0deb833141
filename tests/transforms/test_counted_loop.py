"""A loop gives the values, strides and dtypes of the untiled program, and leaves its arguments alone."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spyre_fx.errors import InternalError, TilingError
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Phase, Slice
from tests.transforms.loop_cases import body_of, loop_of, rows, type_of


def chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.tanh((x * y + x).sigmoid() * y - x)


def check(loop: CountedLoop, args: tuple[Any, ...], want: Tensor | tuple[Tensor, ...], atol: float = 1e-6) -> None:
    before = [x.clone() if isinstance(x, Tensor) else x for x in args]
    for _ in range(2):
        got = loop(*args)
        assert isinstance(got, tuple) == isinstance(want, tuple)
        for g, w in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            torch.testing.assert_close(g, w, rtol=0, atol=atol)
            assert g.stride() == w.stride()
            storages = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
            assert g.numel() == 0 or g.untyped_storage().data_ptr() not in storages
    for x, b in zip(args, before, strict=True):
        assert torch.equal(x, b) if isinstance(x, Tensor) else x == b


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("tile", [1, 2, 3, 6, 7])
def test_pointwise_chain(dim: int, tile: int) -> None:
    x, y = torch.randn(6, 6), torch.randn(6, 6)
    if tile <= 6:
        check(rows(chain, (x, y), [dim, dim], dim, tile), (x, y), chain(x, y))


def test_a_remainder_is_a_phase_of_its_own() -> None:
    x, w = torch.randn(10, 4), torch.randn(4, 5)
    loop = rows(lambda x, w: (x @ w).relu(), (x, w), [0, None], 0, 3)
    assert [(p.trips, p.tile) for p in loop.phases] == [(3, 3), (1, 1)]
    check(loop, (x, w), (x @ w).relu())


def test_strides_are_those_recorded() -> None:
    x = torch.randn(4, 6)
    loop = rows(lambda x: x.t() * 2, (x,), [1], 0, 2)
    assert loop(x).stride() == (1, 6)
    check(loop, (x,), x.t() * 2)


def test_arguments_may_have_other_strides_than_recorded() -> None:
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    loop = rows(chain, (x, y), [0, 0], 0, 2)
    for other in (x.t().contiguous().t(), torch.randn(12, 8)[::2, ::2], torch.randn(4).expand(6, 4)):
        assert torch.equal(loop(other, y), chain(other, y))


def test_several_results_also_of_one_value() -> None:
    x = torch.randn(6, 4)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp()
        return y, y, y.t(), x, y + 1, y.view(-1)

    rows_of, cols = Assembled(Slice(0, (6,))), Assembled(Slice(1, (6,)))
    results = [rows_of, rows_of, cols, rows_of, rows_of, Assembled(Slice(0, (6, 4)))]
    want = tuple(value.clone() for value in fn(x))
    check(loop_of(fn, (x,), [Slice(0, (6,))], results, want, 4), (x,), want)


def test_ops_with_several_results() -> None:
    x = torch.randn(6, 5)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        values, indices = x.max(1)
        return values + indices, indices

    want = fn(x)
    check(loop_of(fn, (x,), [Slice(0, (6,))], [Assembled(Slice(0, (6,)))] * 2, want, 2), (x,), want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.randn(6, 4).mul(3).to(dtype)

    def fn(x: Tensor) -> Tensor:
        return (x + x) * (x > 0)

    check(rows(fn, (x,), [0], 0, 4), (x,), fn(x))


def test_casts_fills_and_masks() -> None:
    x = torch.randn(6, 4)

    def fn(x: Tensor) -> Tensor:
        half = (x * 2).to(torch.float16)
        mask = torch.full_like(x, 1.5) > x
        ones = torch.ones(x.shape, dtype=torch.float16)
        return torch.where(mask, half.clone(), ones).masked_fill(x > 1, -1.0) + torch.zeros(4)

    check(rows(fn, (x,), [0], 0, 4), (x,), fn(x))


def test_sum_is_carried() -> None:
    x, start = torch.randn(10, 4), torch.randn(4)

    def fn(x: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        return (acc + x.sum(0),)

    loop = loop_of(fn, (x, start), [Slice(0, (10,)), None], [Carried(1)], [start], 3)
    check(loop, (x, start), start + x.sum(0), atol=1e-5)


def test_matmul_over_its_reduction_axis() -> None:
    a, b, zero = torch.randn(5, 12), torch.randn(12, 7), torch.zeros(5, 7)

    def fn(a: Tensor, b: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        return (acc + a @ b,)

    loop = loop_of(fn, (a, b, zero), [Slice(1, (12,)), Slice(0, (12,)), None], [Carried(2)], [zero], 4)
    check(loop, (a, b, zero), a @ b, atol=1e-5)


def online_softmax(x: Tensor, v: Tensor, m: Tensor, s: Tensor, o: Tensor) -> tuple[Tensor, ...]:
    new = torch.maximum(m, x.amax(1, keepdim=True))
    scale, p = (m - new).exp(), (x - new).exp()
    return new, scale * s + p.sum(1, keepdim=True), scale * o + p @ v


def test_online_softmax_carries_three_values_that_need_each_other() -> None:
    x, v = torch.randn(5, 12), torch.randn(12, 3)
    start = (torch.full((5, 1), -torch.inf), torch.zeros(5, 1), torch.zeros(5, 3))
    arguments = [Slice(1, (12,)), Slice(0, (12,)), None, None, None]
    loop = loop_of(online_softmax, (x, v, *start), arguments, [Carried(2), Carried(3), Carried(4)], start, 4)
    m, s, o = loop(x, v, *start)
    assert torch.equal(m, x.amax(1, keepdim=True))
    torch.testing.assert_close(o / s, torch.softmax(x, 1) @ v)


def test_carried_values_may_change_places() -> None:
    x, a, b = torch.randn(6, 2), torch.randn(2), torch.randn(2)

    def fn(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return b, a, b + x.sum(0)

    loop = loop_of(fn, (x, a, b), [Slice(0, (6,)), None, None], [Carried(1), Carried(2), Last()], [a, b, a], 2)
    check(loop, (x, a, b), (b, a, b + x[4:].sum(0)), atol=1e-6)


def test_the_value_of_the_last_trip() -> None:
    x, w = torch.randn(6, 2), torch.randn(3)

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x * 2, w.exp(), w

    results = [Assembled(Slice(0, (6,))), Last(), Last()]
    loop = loop_of(fn, (x, w), [Slice(0, (6,)), None], results, (x, w, w), 4)
    check(loop, (x, w), (x * 2, w.exp(), w))


@pytest.mark.parametrize("axis, tile", [(0, 1), (1, 1), (1, 2), (1, 4), (2, 1), (2, 3)])
def test_one_factor_of_a_dim(axis: int, tile: int) -> None:
    x = torch.randn(5, 24)
    factors = (2, 4, 3)
    loop = loop_of(
        lambda x: (x.exp() + x,), (x,), [Slice(1, factors, axis)], [Assembled(Slice(1, factors, axis))], [x], tile
    )
    check(loop, (x,), x.exp() + x)


def test_a_size_as_argument() -> None:
    x = torch.randn(6, 2)
    loop = loop_of(lambda x, n: (x * n,), (x, 3), [Slice(0, (6,)), None], [Assembled(Slice(0, (6,)))], [x], 2)
    body = loop.body(loop.phases[0])  # make_fx bakes the number in
    _, size, mul, _ = body.graph.nodes
    mul.update_arg(1, size)
    check(loop, (x, 3), x * 3)
    assert torch.equal(loop(x, 5), x * 5)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_sizes_of_zero(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    dim = shape.index(4)
    check(rows(lambda x: x.exp() * 2, (x,), [dim], dim, 2), (x,), x)


def test_no_results() -> None:
    x = torch.randn(4)
    assert loop_of(lambda x: (), (x,), [Slice(0, (4,))], [], [], 2)(x) == ()


def test_an_argument_that_nobody_reads() -> None:
    x, y = torch.randn(4), torch.randn(4)
    check(rows(lambda x, y: x * 2, (x, y), [0, 0], 0, 2), (x, y), x * 2)


@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 4)),
    dim=st.integers(0, 2),
    tile=st.integers(1, 7),
    order=st.permutations([0, 1, 2]),
)
@settings(max_examples=40, deadline=None)
def test_any_shape_dim_tile_and_stride(shape: tuple[int, ...], dim: int, tile: int, order: list[int]) -> None:
    x, y = torch.randn(shape).permute(order), torch.randn(shape).permute(order)
    loop = rows(chain, (x, y), [dim, dim], dim, min(tile, x.shape[dim]))
    check(loop, (x, y), chain(x, y), atol=1e-6)


COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, lambda loop: pickle.loads(pickle.dumps(loop))]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_copies_run_and_keep_the_meta_of_their_bodies(copied: Callable[[Any], Any]) -> None:
    x, w = torch.randn(10, 4), torch.randn(4, 5)
    loop = rows(lambda x, w: (x @ w).relu(), (x, w), [0, None], 0, 3)
    stamps = {
        "loop_group_id": (0, 1),
        "loop_count": [3],
        "loop_tiled_dims": [[0]],
        "nn_module_stack": {"a": ("a", "M")},
    }
    for node in loop.body(loop.phases[0]).graph.nodes:
        node.meta.update(stamps)
        node.stack_trace = 'File "model.py", line 1, in f\n  y = x @ w'
    loop(x, w)
    other = copied(loop)
    check(other, (x, w), (x @ w).relu())
    for phase in loop.phases:
        pairs = zip(loop.body(phase).graph.nodes, other.body(phase).graph.nodes, strict=True)
        for old, new in pairs:
            assert (old.name, old.op, str(old.target)) == (new.name, new.op, str(new.target))
            assert old.stack_trace == new.stack_trace
            if old.op != "output":
                assert isinstance(new.meta["val"], torch._subclasses.FakeTensor)
                assert type_of(old.meta["val"]) == type_of(new.meta["val"])
            if phase.body == "main":
                assert {key: new.meta[key] for key in stamps} == stamps
    new.meta["mark"] = 1
    assert "mark" not in old.meta


def test_equal_loops_have_equal_keys() -> None:
    x = torch.randn(6, 4)
    loop, other, third = (rows(lambda x: x.exp(), (x,), [0], 0, tile) for tile in (2, 2, 3))
    assert loop.key() == other.key() == copy.deepcopy(loop).key()
    assert loop.key() != third.key()


def test_calls_from_several_threads() -> None:
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    loop = rows(chain, (x, y), [0, 0], 0, 4)
    inputs = [(x + i, y - i) for i in range(16)]
    results: list[Tensor | None] = [None] * len(inputs)

    def run(i: int) -> None:
        results[i] = loop(*inputs[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, args in zip(results, inputs, strict=True):
        assert got is not None
        assert torch.equal(got, chain(*args))


def test_one_loop_called_twice_and_results_stay() -> None:
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    loop = rows(chain, (x, y), [0, 0], 0, 2)
    first = loop(x, y)
    kept = first.clone()
    second = loop(first, y)
    assert torch.equal(first, kept)
    assert torch.equal(second, chain(chain(x, y), y))


def test_inference_mode_and_autocast() -> None:
    x, w = torch.randn(6, 4), torch.randn(4, 4)
    loop = rows(lambda x, w: (x @ w).relu(), (x, w), [0, None], 0, 2)
    want = (x @ w).relu()
    with torch.inference_mode():
        assert torch.equal(loop(x, w), want)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loop(x, w)
    assert got.dtype == torch.float32
    assert torch.equal(got, want)
    weight = torch.randn(3, 4, 1)
    loop = rows(torch.conv1d, (x[:, :, None], weight), [0, None], 0, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loop(x[:, :, None], weight)
    torch.testing.assert_close(got, torch.conv1d(x[:, :, None], weight))


@pytest.mark.parametrize(
    "args, words",
    [
        ((torch.randn(6, 4),), "called with 1 arguments. Expected 2"),
        ((torch.randn(6, 4), 3), "argument 1 of loop_0 is int. Expected a tensor"),
        ((torch.randn(5, 4), torch.randn(6, 4)), r"argument 0 of loop_0 has shape \[5, 4\]. Expected shape \[6, 4\]"),
        ((torch.randn(6), torch.randn(6, 4)), r"shape \[6\]"),
        ((torch.randn(6, 4), torch.randn(6, 4).double()), "dtype torch.float64. Expected dtype torch.float32"),
        ((torch.randn(6, 4), torch.randn(6, 4, device="meta")), "device meta. Expected device cpu"),
    ],
)
def test_arguments_that_do_not_fit(args: tuple[Any, ...], words: str) -> None:
    loop = rows(chain, (torch.randn(6, 4), torch.randn(6, 4)), [0, 0], 0, 2)
    with pytest.raises(TilingError, match=words):
        loop(*args)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"arguments": [Slice(0, (5,))]}, "factors"),
        ({"arguments": []}, "0 arguments with 1 types"),
        ({"phases": [Phase(0, 3, 2, "other")]}, "no body named 'other'"),
        ({"result_types": []}, "1 results with 0 types"),
        ({"results": [Carried(0)]}, "carried and sliced"),
        ({"result_types": [type_of(torch.zeros(1, 4).expand(6, 4))]}, "overlapping"),
    ],
)
def test_parts_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    x = torch.randn(6, 4)
    parts = {
        "count": 3,
        "phases": [Phase(0, 3, 2, "main")],
        "bodies": {"main": body_of(lambda x: (x.exp(),), x[:2])},
        "arguments": [Slice(0, (6,))],
        "results": [Assembled(Slice(0, (6,)))],
        "argument_types": [type_of(x)],
        "result_types": [type_of(x)],
    }
    with pytest.raises(InternalError, match=words):
        CountedLoop(**{**parts, **change})

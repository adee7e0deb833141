"""Trips without the columns that a mask rules out: the values of eager, also where these are NaN, and less work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor import lanes, spans
from spyre_fx.transforms.executor.columns import Out
from spyre_fx.transforms.executor.spans import span_of
from tests.transforms.loop_cases import rows

N, DEPTH, TILE = 512, 16, 64
INF, NAN = math.inf, math.nan
ALL = None
CAUSAL = [(0, TILE * (trip + 1)) for trip in range(N // TILE - 1)] + [ALL]
"""What a causal mask leaves of each trip."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Trips in their order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The columns of each trip that ran."""
    found: list[Any] = []
    inner = spans.Spans.span

    def span(self: Any, narrowed: Any, row: Any) -> Any:
        found.append(inner(self, narrowed, row))
        return found[-1]

    monkeypatch.setattr(spans.Spans, "span", span)
    return found


def operands(heads: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(heads, N, DEPTH).to(dtype) for _ in range(3)]


def causal(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((N, N), -INF).triu(1).to(dtype)


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(1, 2) * DEPTH**-0.5


def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) + mask, -1) @ v


def filled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(scores(q, k).masked_fill(mask, -INF), -1) @ v


def chosen(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(torch.where(mask, scores(q, k), -INF), -1) @ v


def filled_twice(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(scores(q, k).masked_fill(~mask, -INF), -1).masked_fill(~mask, 0.0) @ v


def capped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(scores(q, k)).masked_fill(mask, -INF), -1) @ v


FORMS: dict[Callable[..., Tensor], Callable[[Tensor], Tensor]] = {
    added: lambda mask: mask,
    filled: lambda mask: mask.isinf(),
    chosen: lambda mask: ~mask.isinf(),
    filled_twice: lambda mask: ~mask.isinf(),
    capped: lambda mask: mask.isinf(),
}
"""Forms of attention with the mask that each takes, made from one that is added."""


def by_rows(form: Callable[..., Tensor], *args: Tensor) -> CountedLoop:
    loop = rows(form, args, [1, None, None, 0], 1, TILE)
    assert loop.count == N // TILE
    return loop


def check(form: Callable[..., Tensor], *args: Tensor, **tolerance: float) -> None:
    torch.testing.assert_close(by_rows(form, *args)(*args), form(*args), equal_nan=True, **tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_a_causal_mask_leaves_each_trip_the_columns_up_to_its_last_row(form: Any, seen: list[Any]) -> None:
    check(form, *operands(), FORMS[form](causal()))
    assert seen == CAUSAL


@pytest.mark.parametrize("form", FORMS)
def test_a_window_leaves_out_columns_on_both_sides(form: Any, seen: list[Any]) -> None:
    mask = causal() + torch.full((N, N), -INF).tril(-TILE)
    check(form, *operands(), FORMS[form](mask))
    assert seen == [(0, 64), *((TILE * trip, 2 * TILE) for trip in range(N // TILE - 1))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [0.0, 0.5, 0.999, 1.0])
def test_any_mask(form: Any, part: float, seen: list[Any]) -> None:
    mask = torch.where(torch.rand(N, N) < part, -INF, 0.0)
    check(form, *operands(), FORMS[form](mask))
    assert len(seen) == N // TILE
    assert set(seen) == ({(0, 64)} if part == 1 else {ALL})


@pytest.mark.parametrize("form", FORMS)
def test_rows_and_trips_with_nothing_left(form: Any, seen: list[Any]) -> None:
    mask = causal()
    mask[5] = mask[TILE + 3 : 3 * TILE + 1] = -INF
    check(form, *operands(), FORMS[form](mask))
    assert seen == [(0, 64), (0, 128), (0, 64), *CAUSAL[3:]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", [0, 1, 2], ids="qkv")
@pytest.mark.parametrize("number", [INF, -INF, NAN])
def test_what_is_not_finite_shows_as_in_eager(form: Any, which: int, number: float, seen: list[Any]) -> None:
    args = operands()
    args[which][1, N - 3, 4] = number
    mask = FORMS[form](causal())
    expected = form(*args, mask)
    check(form, *args, mask)
    assert expected.isnan().any() or form is capped
    must_see_all = which == 2 or form is added  # other masks put -inf over whatever the scores are
    assert seen == ([ALL] * (N // TILE) if must_see_all else CAUSAL)


def test_scores_that_may_overflow_are_made(seen: list[Any]) -> None:
    q, k, v = operands()
    q[0, 0], k[0, -1] = 1e20, 1e20  # q @ k is inf, and inf + -inf is NaN
    assert added(q, k, v, causal())[0, 0].isnan().all()
    check(added, q, k, v, causal())
    assert seen == [ALL] * (N // TILE)


def test_a_mask_that_is_not_a_number_somewhere(seen: list[Any]) -> None:
    mask = causal()
    mask[1, N - 1] = NAN
    mask[TILE, N - 1] = INF
    check(added, *operands(), mask)
    assert seen == [ALL, ALL, *CAUSAL[2:]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype, seen: list[Any]) -> None:
    check(
        added, *operands(dtype=dtype), causal(dtype), **({} if dtype is torch.float64 else {"atol": 2e-2, "rtol": 2e-2})
    )
    assert seen == CAUSAL


def test_float16_where_scores_come_near_its_largest_number(seen: list[Any]) -> None:
    q, k, v = operands(dtype=torch.float16)
    q[0, 0], k[0, -1] = 100, 100
    assert added(q, k, v, causal(torch.float16))[0, 0].isnan().all()
    check(added, q, k, v, causal(torch.float16), atol=2e-2, rtol=2e-2)
    assert ALL in seen and seen.count(ALL) == N // TILE


def test_columns_that_do_not_come_in_grains(seen: list[Any]) -> None:
    q, k, v = operands()
    k, v = (torch.cat([x, x[:, :1]], 1) for x in (k, v))
    mask = torch.full((N, N + 1), -INF)
    mask[:, N] = 0
    check(added, q, k, v, mask)
    assert seen == [(N + 1 - 64, 64)] * (N // TILE)


def test_a_mask_of_keys_alone(seen: list[Any]) -> None:
    keys = torch.zeros(N)
    keys[: N // 2] = -INF

    def form(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores(q, k) + mask[None, None], -1) @ v

    args = (*operands(), keys)
    loop = rows(form, args, [1, None, None, None], 1, TILE)
    torch.testing.assert_close(loop(*args), form(*args))
    assert seen == [(N // 2, N // 2)] * (N // TILE)


def test_a_second_mask_must_be_finite(seen: list[Any]) -> None:
    def form(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, more: Tensor) -> Tensor:
        return torch.softmax(scores(q, k) + mask + more, -1) @ v

    bias = torch.randn(N, N)
    for more, expected in ((bias, CAUSAL), (torch.where(bias > 0, -INF, 0.0), [ALL] * (N // TILE))):
        args = (*operands(), causal(), more)
        loop = rows(form, args, [1, None, None, 0, 0], 1, TILE)
        torch.testing.assert_close(loop(*args), form(*args), equal_nan=True)
        assert seen == expected
        seen.clear()


@pytest.fixture
def in_lanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lanes, "WORTHWHILE", 0)
    torch.set_num_threads(2)
    yield


def nested(form: Callable[..., Tensor], *args: Tensor) -> CountedLoop:
    """Rows inside of heads."""
    return rows(lambda *tiles: by_rows(form, *tiles)(*tiles), args, [0, 0, 0, None], 0, 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_is_looked_at_once_for_all_heads(
    form: Any, in_lanes: None, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []
    monkeypatch.setattr(spans, "span_of", lambda *args: looked.append(None) or span_of(*args))
    args = (*operands(heads=8), FORMS[form](causal()))
    loop = nested(form, *args)
    seen.clear()
    looked.clear()
    torch.testing.assert_close(loop(*args), form(*args))
    assert Counter(seen) == Counter(8 * CAUSAL)
    assert len(looked) <= 2 * len(CAUSAL)  # two lanes may look at the same time


def test_a_mask_that_each_head_makes_for_itself(in_lanes: None, seen: list[Any]) -> None:
    def mask_of(slope: Tensor, bias: Tensor) -> Tensor:
        return torch.where(slope * bias > 1, -INF, 0.0)

    def form(q: Tensor, k: Tensor, v: Tensor, slope: Tensor, bias: Tensor) -> Tensor:
        args = q, k, v, mask_of(slope, bias)
        return rows(added, args, [1, None, None, 1], 1, TILE)(*args)

    q, k, v = operands(heads=4)
    slopes, bias = torch.tensor([1.0, 4.0, 0.1, 2.0]).view(4, 1, 1), torch.arange(N).expand(N, N) * (2.0 / N) + 1e-3
    args = q, k, v, slopes, bias
    loop = rows(form, args, [0, 0, 0, 0, None], 0, 1)
    seen.clear()
    torch.testing.assert_close(loop(*args), added(q, k, v, mask_of(slopes, bias)))
    assert Counter(seen) == dict.fromkeys([(0, N // 2), (0, N // 8), ALL, (0, N // 4)], N // TILE)


def test_operands_that_change_between_calls(seen: list[Any]) -> None:
    q, k, v = operands()
    mask = causal()
    loop = by_rows(added, q, k, v, mask)
    for _ in range(2):
        torch.testing.assert_close(loop(q, k, v, mask), added(q, k, v, mask), equal_nan=True)
        mask.zero_()
    assert seen == CAUSAL + [ALL] * len(CAUSAL)
    v[0, -1] = NAN
    mask.copy_(causal())
    torch.testing.assert_close(loop(q, k, v, mask), added(q, k, v, mask), equal_nan=True)
    assert seen[2 * len(CAUSAL) :] == [ALL] * len(CAUSAL)


def test_gradients(seen: list[Any]) -> None:
    found, expected = ([x.requires_grad_() for x in operands()] for _ in range(2))
    mask = causal()
    by_rows(added, *found, mask)(*found, mask).sin().sum().backward()
    added(*expected, mask).sin().sum().backward()
    assert seen[: len(CAUSAL)] == CAUSAL
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_mode_sees_all_columns(seen: list[Any]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    args = (*operands(), causal())
    loop = by_rows(added, *args)
    with FlopCounterMode(display=False) as flops:
        loop(*args)
    assert flops.get_total_flops() == 2 * 2 * 2 * N * N * DEPTH
    assert not seen


@pytest.mark.parametrize(
    ("mask", "dim", "out", "expected"),
    [
        (causal()[:64], 1, Out.MINUS_INFINITY, (0, 64)),
        (causal()[:64].t(), 0, Out.MINUS_INFINITY, (0, 64)),
        (causal()[:65, None], 2, Out.MINUS_INFINITY, (0, 128)),
        (causal()[:64].isinf(), 1, Out.TRUE, (0, 64)),
        (causal()[:64].isinf(), 1, Out.FALSE, None),
        (causal()[:1].isinf()[:, 200:], 1, Out.FALSE, None),
        (torch.zeros(4, 256, dtype=torch.bool), 1, Out.FALSE, (0, 64)),
        (torch.zeros(4, 256), 1, Out.MINUS_INFINITY, None),
        (torch.full((256,), -INF), 0, Out.MINUS_INFINITY, (0, 64)),
        (torch.zeros(0, 256), 1, Out.MINUS_INFINITY, None),
    ],
)
def test_the_columns_that_a_mask_leaves(mask: Tensor, dim: int, out: Out, expected: Any) -> None:
    assert span_of(mask, dim, out) == expected


def test_what_the_first_and_the_last_row_do_not_show() -> None:
    mask = torch.full((8, 512), -INF)
    mask[:, 200] = 0
    mask[4, 400] = 1
    assert span_of(mask, 1, Out.MINUS_INFINITY) == (192, 256)
    mask[5, 3] = NAN
    assert span_of(mask, 1, Out.MINUS_INFINITY) == (0, 448)


def test_a_compiled_model(seen: list[Any]) -> None:
    import spyre_fx

    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 1024, 32) for _ in range(3))
    mask = torch.full((1024, 1024), -INF).triu(1)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.relu(torch.softmax(q @ k.transpose(1, 2) * 0.2 + mask, -1) @ v)

    backend = spyre_fx.Backend()
    compiled = torch.compile(model, backend=backend)
    for _ in range(2):  # a mode of AOTAutograd's looks at the first call
        torch.testing.assert_close(compiled(q, k, v), model(q, k, v))
    assert backend.graphs[0].loops
    assert len({span for span in seen if span}) > 2

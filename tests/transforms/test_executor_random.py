"""Random bodies, with a random stretch of them in an inner loop, give what running them plainly gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Slice
from tests.transforms.loop_cases import loop_of

ROWS, COLUMNS = 7, 6
Instruction = tuple[int, int, int]
"""An op and the two values it reads; values are the arguments and then the results of the instructions."""

OPS = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: torch.where(a > b, a, b.tanh()),
    lambda a, b: (a.t() * b.t()).t(),
    lambda a, b: a.reshape(-1, 2).sin().view(a.shape) - b,
    lambda a, b: a.relu() + b.sum(0, keepdim=True) * 0.1,
    lambda a, b: a - b.max(0, keepdim=True)[0],
    lambda a, b: a.sigmoid(),
    lambda a, b: a.view(a.shape),
]


def run(program: Sequence[Instruction], values: list[Tensor]) -> list[Tensor]:
    for op, i, j in program:
        values.append(OPS[op](values[i % len(values)], values[j % len(values)]))
    return values


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Instruction], int, int]:
    """Instructions, and the stretch of them that runs in an inner loop over columns."""
    size = draw(st.integers(1, 9))
    index = st.integers(0, size + 2)
    program = draw(st.lists(st.tuples(st.integers(0, len(OPS) - 1), index, index), min_size=size, max_size=size))
    first = draw(st.integers(0, size))
    return program, first, draw(st.integers(first, size))


def with_inner_loop(program: Sequence[Instruction], first: int, last: int, x: Tensor, y: Tensor) -> list[Tensor]:
    values = run(program[:first], [x, y])
    if first == last:
        return run(program[last:], values)
    cut = Slice(1, (x.shape[1],))
    made = last - first
    count = len(values)
    inner = loop_of(
        lambda *v: tuple(run(program[first:last], list(v))[count:]),
        values,
        [cut] * count,
        [Assembled(cut)] * made,
        [x] * made,
        4,
    )
    results = inner(*values)
    return run(program[last:], [*values, *(results if made > 1 else (results,))])


@given(case=programs(), tile=st.integers(1, 4), kept=st.integers(1, 2**11 - 1))
@settings(max_examples=30, deadline=None)
def test_assembled_results(case: tuple[list[Instruction], int, int], tile: int, kept: int) -> None:
    program, first, last = case
    x, y = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)

    def chosen(values: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(v for i, v in enumerate(values) if kept >> i & 1) or (values[-1],)

    want = [chosen(run(program, [a, b])) for a, b in zip(x.split(tile), y.split(tile), strict=True)]
    cut = Slice(0, (ROWS,))
    count = len(want[0])
    loop = loop_of(
        lambda x, y: chosen(with_inner_loop(program, first, last, x, y)),
        (x, y),
        [cut] * 2,
        [Assembled(cut)] * count,
        [x] * count,
        tile,
    )
    got = loop(x, y)
    for value, parts in zip(got if count > 1 else (got,), zip(*want, strict=True), strict=True):
        torch.testing.assert_close(value, torch.cat(parts), equal_nan=True, rtol=1e-4, atol=1e-4)


@given(case=programs(), tile=st.integers(1, 4), chosen=st.tuples(*[st.integers(0, 10)] * 3))
@settings(max_examples=30, deadline=None)
def test_carried_results(case: tuple[list[Instruction], int, int], tile: int, chosen: tuple[int, int, int]) -> None:
    """Both arguments of the program are carried; a third result is assembled."""
    program, first, last = case
    x, a, b = torch.randn(ROWS, 1), torch.randn(4, COLUMNS), torch.randn(4, COLUMNS)

    def step(values: list[Tensor], x: Tensor) -> tuple[Tensor, ...]:
        new, other, third = (values[i % len(values)] for i in chosen)
        return (new * 0.5 + x.sum()).tanh(), other.clone(), x * third.sum()

    def body(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return step(with_inner_loop(program, first, last, a, b), x)

    results: list[Leaves] = [Carried(1), Carried(2), Assembled(Slice(0, (ROWS,)))]
    loop = loop_of(body, (x, a, b), [Slice(0, (ROWS,)), None, None], results, (a, b, x), tile)
    got = loop(x, a, b)
    parts = []
    for tile_of_x in x.split(tile):
        a, b, part = step(run(program, [a, b]), tile_of_x)
        parts.append(part)
    for value, want in zip(got, (a, b, torch.cat(parts)), strict=True):
        torch.testing.assert_close(value, want, equal_nan=True, rtol=1e-3, atol=1e-3)

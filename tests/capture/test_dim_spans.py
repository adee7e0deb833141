"""Spans of named dims through merges, splits and eager views."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyre_fx.capture.dim_spans import (
    UNKNOWN,
    DimNames,
    Span,
    factor,
    from_text,
    joined,
    merged,
    shown,
    sized,
    through_strides,
    to_text,
    unsized,
    whole,
)

A = Span("A", 4, 4)
B = Span("B", 6, 6)
C = Span("C", 8, 8)
BASE = torch.zeros(4, 6, 8)


def through_view(view: torch.Tensor) -> DimNames:
    base = [(size, step, (span,)) for size, step, span in zip(BASE.shape, BASE.stride(), (A, B, C), strict=True)]
    return through_strides(view.shape, view.stride(), base)


def coordinate(spans: tuple[Span, ...], element: int) -> dict[str, int]:
    """Where an element of a dim lies in each named dim."""
    found: dict[str, int] = {}
    for span in spans:
        found[span.name] = found.get(span.name, 0) + element // span.inner % span.extent * span.step
    return found


def test_factors_of_a_whole_dim() -> None:
    assert factor((B,), inner=2, extent=3) == (Span("B", 6, 3, inner=1, step=2),)
    assert factor((B,), inner=1, extent=2) == (Span("B", 6, 2, inner=1, step=1),)


def test_a_factor_that_does_not_nest_has_no_name() -> None:
    assert factor((B,), inner=4, extent=2) == ()
    assert factor((Span("B", 6, 6, inner=4),), inner=3, extent=4) == ()


def test_parts_are_joined_again() -> None:
    outer, inner = factor((B,), 2, 3), factor((B,), 1, 2)
    assert joined([(outer, 3), (inner, 2)]) == (B,)
    assert joined([(inner, 2), (outer, 3)]) != (B,)  # the digits in the other order are no B


def test_neighbours_of_two_names_stay_two() -> None:
    assert joined([((A,), 4), ((B,), 6)]) == (Span("A", 4, 4, inner=6), B)
    assert merged([B, B, A]) == (B, A)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (BASE.permute(2, 0, 1), [(C,), (A,), (B,)]),
        (BASE.flatten(1), [(A,), (Span("B", 6, 6, inner=8), C)]),
        (BASE.view(2, 2, 6, 8)[:, :, 0], [(Span("A", 4, 2, step=2),), (Span("A", 4, 2),), (C,)]),
        (BASE.unsqueeze(1), [(A,), (), (B,), (C,)]),
        (BASE[:, 2], [(A,), (C,)]),
        (BASE[:, :, :1].expand(4, 6, 5), [(A,), (B,), ()]),
        (BASE[:, :3], [(A,), (Span("B", 6, 3),), (C,)]),  # a part: never the whole of B
    ],
    ids=["permute", "flatten", "split", "unsqueeze", "select", "expand", "slice"],
)
def test_eager_views(view: torch.Tensor, expected: list[tuple[Span, ...]]) -> None:
    assert list(through_view(view)) == expected


@given(st.permutations(range(3)), st.sampled_from([(192,), (2, 96), (24, 8), (4, 48), (8, 24), (2, 12, 8)]))
def test_views_name_each_element_as_the_base_does(order: list[int], shape: tuple[int, ...]) -> None:
    """Views of reordered dims, wherever torch can make them."""
    numbered = torch.arange(192).view(4, 6, 8).permute(order)
    try:
        view, places = BASE.permute(order).view(shape), numbered.view(shape)
    except RuntimeError:
        return
    names = through_view(view)
    first = tuple(0 for _ in shape)
    for dim, size in enumerate(shape):
        for element in range(size):
            index = (*first[:dim], element, *first[dim + 1 :])
            number = int(places[index])
            place = {"A": number // 48, "B": number // 8 % 6, "C": number % 8}
            for name, found in coordinate(names[dim], element).items():
                assert found == place[name]


def test_names_as_text() -> None:
    names = (whole("A", 4), (), (Span("B", 6, 6, inner=8), C))
    assert from_text(to_text(names)) == names
    assert shown(names) == "['A', None, 'B * C']"


def test_sizes_that_are_known_only_later() -> None:
    symbolic = object()
    left_open = unsized((whole("A", 4), whole("B", 6)), [symbolic, 6])
    assert left_open == ((Span("A", UNKNOWN, UNKNOWN),), (B,))
    assert sized(left_open, [10, 6]) == (whole("A", 10), (B,))
    assert sized(left_open, [symbolic, 6]) == ((), (B,))

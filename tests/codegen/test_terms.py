"""Digits: cutting, dealing out and refining them, against the indices they stand for."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.codegen.terms import Loop, Term, advance, align, cut, extent_of, refine, regroup


def indices(terms):
    """Buffer indices (of one dim) in the order of the value's."""
    return [
        sum(term.step * digit for term, digit in zip(terms, digits, strict=True))
        for digits in itertools.product(*(range(term.extent) for term in terms))
    ]


def digits_of(extents):
    return tuple(Term(extent, 0, math.prod(extents[position + 1 :])) for position, extent in enumerate(extents))


extents = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(extents, st.data())
@settings(max_examples=50, deadline=None)
def test_cut_takes_the_elements_it_says(sizes, data):
    terms = digits_of(sizes)
    total = extent_of(terms)
    start = data.draw(st.integers(0, total - 1))
    length = data.draw(st.integers(1, total - start))
    found = cut(terms, start, length)
    if found is not None:
        kept, moves = found
        offset = sum(elements for _, elements in moves)
        assert [offset + index for index in indices(kept)] == list(range(start, start + length))


def test_cut_with_a_step():
    kept, moves = cut((Term(10, 0, 1),), 1, 3, 3)
    assert indices(kept) == [0, 3, 6] and moves == ((0, 1),)


def test_cut_across_digits_is_none():
    assert cut(digits_of([2, 3]), 1, 3) is None


def test_one_index_keeps_its_digits_of_extent_1():
    kept, moves = cut(digits_of([2, 3]), 4, 1)
    assert [term.extent for term in kept] == [1, 1]
    assert moves == ((0, 3), (0, 1))


@given(extents, st.data())
@settings(max_examples=50, deadline=None)
def test_regroup_keeps_the_order(sizes, data):
    terms = digits_of(sizes)
    total = extent_of(terms)
    first = data.draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
    groups = regroup(terms, (first, total // first))
    if groups is not None:
        assert [extent_of(group) for group in groups] == [first, total // first]
        assert indices([term for group in groups for term in group]) == list(range(total))


def test_regroup_without_a_common_border_is_none():
    assert regroup(digits_of([2, 3]), (3, 2)) is None


def test_digits_of_extent_1_go_to_dims_of_size_1():
    ones = (Term(1, 0, 8), Term(1, 0, 4), Term(4, 0, 1))
    assert [len(group) for group in regroup(ones, (1, 1, 4))] == [1, 1, 1]
    assert [len(group) for group in regroup(ones, (1, 4))] == [2, 1]
    assert [len(group) for group in regroup(ones, (4,))] == [3]


@pytest.mark.parametrize(
    ("factorings", "wanted"),
    [([(6,), (2, 3)], (2, 3)), ([(2, 6), (4, 3)], (2, 2, 3)), ([(2, 3), (3, 2)], None), ([(1, 6), (6,)], (1, 6))],
)
def test_refine(factorings, wanted):
    assert refine(factorings) == wanted


def test_align_splits_to_the_factors():
    loop = Loop(2)
    terms = (Term(6, 0, 4, frozenset({loop})), Term(4, 0, 1))
    aligned = align(terms, (2, 3, 1, 4))
    assert [term.extent for term in aligned] == [2, 3, 1, 4]
    assert indices(aligned) == indices(terms)
    assert [term.levels for term in aligned[:2]] == [frozenset({loop}), frozenset()]
    assert aligned[2].dim == -1


def test_advance_names_the_digit_that_a_loop_cuts():
    terms = digits_of([4, 6])
    assert advance(terms, 0, 12, 2) == (0, ((0, 12),))
    assert advance(terms, 6, 2, 3) == (1, ((0, 2),))
    assert advance(terms, 0, 4, 3) is None

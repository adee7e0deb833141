"""Ancestors, descendants, and what lies between the members of a set."""

from __future__ import annotations

import random

import pytest
from torch import fx

from spyre_fx.transforms.auto import reach as module
from spyre_fx.transforms.auto.reach import Hull, Reach


def made(edges: dict[int, list[int]], count: int) -> Reach:
    """A graph of ``count`` nodes; ``edges`` has for each those that come before it."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"n{i}") for i in range(count)]
    return Reach(nodes, {node: [nodes[j] for j in edges.get(i, ())] for i, node in enumerate(nodes)})


def between(reach: Reach, *members: int) -> set[int]:
    hull = Hull(reach, reach.nodes[members[0]])
    for member in members:
        hull.add(reach.nodes[member])
    return {reach.position[node] for node in hull.between()}


def test_a_diamond():
    reach = made({1: [0], 2: [0], 3: [1, 2], 4: [3]}, 5)
    assert between(reach, 0, 3) == {1, 2}
    assert between(reach, 0, 1, 3) == {2}
    assert between(reach, 1, 4) == {3}
    assert between(reach, 1, 2) == set()


def test_copies_grow_apart():
    reach = made({1: [0], 2: [1]}, 3)
    hull = Hull(reach, reach.nodes[0])
    hull.add(reach.nodes[0])
    twin = hull.copy()
    twin.add(reach.nodes[2])
    assert [reach.position[node] for node in twin.between()] == [1]
    assert list(hull.between()) == []


def test_against_a_search_through_the_graph():
    random.seed(0)
    edges = {i: random.sample(range(i), min(i, 2)) for i in range(40)}
    reach = made(edges, 40)

    def before(node: int) -> set[int]:
        return set(edges[node]).union(*map(before, edges[node])) if edges[node] else set()

    above = {i: before(i) for i in range(40)}
    for _ in range(50):
        members = random.sample(range(40), 3)
        expected = {
            i
            for i in range(40)
            if i not in members and above[i] & set(members) and any(i in above[member] for member in members)
        }
        assert between(reach, *members) == expected


def test_nodes_beyond_the_window_cannot_join(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 4)
    reach = made({i: [i - 1] for i in range(1, 20)}, 20)
    hull = Hull(reach, reach.nodes[10])
    assert [i for i in range(20) if hull.fits(reach.nodes[i])] == list(range(6, 15))
    assert all(bits < 1 << 4 for bits in reach.descendants)


@pytest.mark.parametrize("step", [1, 3])
def test_bits_are_as_many_as_the_window(step):
    reach = made({i: [i - step] for i in range(step, 3000, step)}, 3000)
    assert max(bits.bit_length() for bits in reach.ancestors) <= module.WINDOW
    assert max(bits.bit_length() for bits in reach.descendants) <= module.WINDOW

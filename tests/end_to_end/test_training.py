"""Whole blocks, forward and through AOTAutograd's joint graph, tiled over every axis of every input.

All ops of a graph are one group, and each dim of each value in turn is the seed. What is refused is listed, so that a
refusal that is new is seen, and nothing may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.training import BLOCKS, COUNTS, Graph, forward, joint_and_backward

OWN_TOKENS = {"x:1", "grad:1"}
"""Every token is a query and a key at once, so no loop over one of the two has all of a gradient or a result."""

WINDOW = {"x:2", "x:3", "w:2", "w:3", "grad:2", "grad:3"}
"""Windows overlap."""

REFUSED = {
    "attention": OWN_TOKENS,
    "grouped queries": OWN_TOKENS,
    "causal attention": OWN_TOKENS,
    "conv, batch norm, relu": WINDOW,
}


def refused(graph: Graph, *, inputs_only: bool) -> Iterator[str]:
    """The dims that no count can tile."""
    for node, dim, size in graph.seeds(inputs_only):
        tiled = False
        for count in (count for count in COUNTS if count <= size):
            verdict, text = graph.check(node, dim, count)
            assert verdict in ("same", "refused"), f"{graph.name(node)}:{dim} by {count}: {verdict}: {text}"
            tiled = verdict == "same"
            if tiled:
                break
        if not tiled:
            yield f"{graph.name(node)}:{dim}"


@pytest.mark.parametrize("block", BLOCKS)
def test_forward(block: str) -> None:
    graph = forward(block)
    assert set(refused(graph, inputs_only=True)) == {name for name in REFUSED.get(block, ()) if "grad" not in name}


@pytest.mark.parametrize("block", BLOCKS)
def test_joint(block: str) -> None:
    graph, _ = joint_and_backward(block)
    assert set(refused(graph, inputs_only=True)) == REFUSED.get(block, set())


@pytest.mark.parametrize("count", [2, 7])
def test_a_real_vocabulary(count: int) -> None:
    """Cross-entropy over 32,000 classes with all gradients: over the tokens, the classes and the width."""
    graph, _ = joint_and_backward("cross-entropy", ((24, 32), (32_000, 32)))
    for node, dim, _ in graph.seeds(inputs_only=True):
        assert graph.check(node, dim, count) == ("same", ""), f"{graph.name(node)}:{dim}"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["forward", "joint", "backward"])
@pytest.mark.parametrize("block", BLOCKS)
def test_every_value(block: str, part: str) -> None:
    """Also each dim of each intermediate: an axis that can be tiled can be tiled from wherever it is named."""
    graph = forward(block) if part == "forward" else joint_and_backward(block)[part == "backward"]
    dims = list(graph.seeds(inputs_only=False))
    left = list(refused(graph, inputs_only=False))
    assert len(left) <= (len(dims) / 2 if block in REFUSED else 0), left

"""Blocks of real models, tiled without a word from the user: the same values, and a reason for every op outside."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import spyre_fx
from spyre_fx.target import KIB, Target
from tests.end_to_end.auto_blocks import BLOCKS, made
from tests.end_to_end.blocks import loops

TARGETS = {
    "spyre": dataclasses.replace(Target.spyre(), cores=1, lx_bytes=160 * KIB),
    "cpu": dataclasses.replace(
        Target.cpu(), cores=1, lx_bytes=32 * KIB, outer_cache_bytes=0, call_bytes=KIB, packed_byte_cost=0.25
    ),
}
"""The machines of the presets, as small as the blocks are."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_tiled_and_computes_the_same(name: str, target: str) -> None:
    model, x = made(name)
    gm = spyre_fx.capture(model, x)
    groups = spyre_fx.auto_groups(gm, TARGETS[target])
    tiled = spyre_fx.tile(gm, groups)
    assert loops(tiled) >= len(groups) >= 1
    torch.testing.assert_close(tiled(x), model(x), rtol=1e-4, atol=1e-5)
    _check_reasons(gm, tiled, groups)
    if target == "spyre":
        chosen = [reason.after for reason in groups.reasons if reason.tiled]
        assert all(cost.working_set <= TARGETS[target].capacity_bytes for cost in chosen)


def _check_reasons(gm, tiled, groups) -> None:
    """Every op of the graph is in a group or is named by one reason why it is not, and the summary shows them all."""
    made = spyre_fx.summary(tiled, TARGETS["spyre"], gm)
    in_groups = {op for reason in groups.reasons if reason.tiled for op in reason.ops}
    named = {op for reason in groups.reasons if not reason.tiled for op in reason.ops}
    ops = {node.name for node in gm.graph.nodes if node.op == "call_function" and "getitem" not in node.name}
    assert ops <= in_groups | named
    assert all(str(reason) in str(made) for reason in groups.reasons)
    assert len(made.groups) == len(groups)

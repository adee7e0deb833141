"""Where moves to other sticks stand: outside of all loops that would repeat them, or where one core reads the tile."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx import Target
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.specs import LoopSpec
from spyre_fx.codegen.unroll import check_unrolled
from tests.codegen.device_runs import close, device_ops, half, specs_of

ONE_CORE = Target(cores=1)
TWO_CORES = Target(cores=2)


def product(a, b):
    return torch.relu(a @ b.transpose(-1, -2))


def moved_bytes(bundle):
    sites = [site for site in bundle.counters.sites if site.op == RESTICKIFY]
    return bundle.counters.select(sites).hbm_bytes


def checked(function, *args, **options):
    """``close``, and the addresses of the loops are those of the ops one by one."""
    torch.manual_seed(0)
    bundle = close(function, *args, **options)
    (program,), (step,) = bundle.programs, bundle.lowered.steps
    check_unrolled(program, step.specs, bundle.lowered.target)
    return bundle, step.specs


@pytest.mark.parametrize("depth", [64, 80])
@pytest.mark.parametrize("target", [TWO_CORES, Target()], ids=["two", "spyre"])
def test_tiles_that_an_outer_loop_goes_through_again_are_moved_before_it(depth, target):
    levels = [(4, {"a_1": 0}), (8, {"b_1": 0})]
    bundle, specs = checked(product, half(256, depth), half(512, depth), levels=levels, target=target)
    moves, loop = specs
    assert isinstance(moves, LoopSpec) and (moves.count, moves.name) == (8, "loop_0.loop_0.sticks")
    assert [spec.op for spec in moves.body] == [RESTICKIFY]
    assert isinstance(loop, LoopSpec) and loop.count == 4
    assert device_ops(bundle).count(RESTICKIFY) == 1
    padded = 64 if depth == 64 else 128
    assert moved_bytes(bundle) == 2 * 2 * 512 * padded


def test_one_core_moves_tiles_where_it_reads_them():
    """In place of reading them: each of four trips over rows reads all of ``b`` once, and writes none of it."""
    levels = [(4, {"a_1": 0}), (8, {"b_1": 0})]
    bundle, specs = checked(product, half(256, 64), half(512, 64), levels=levels, target=ONE_CORE)
    (loop,) = (spec for spec in specs if isinstance(spec, LoopSpec))
    (inner,) = (spec for spec in loop.body if isinstance(spec, LoopSpec))
    assert (loop.count, inner.count) == (4, 8)
    (move,) = (spec for spec in inner.body if spec.op == RESTICKIFY)
    source, copy = move.args
    assert "hbm" in source.allocation and "lx" in copy.allocation
    assert device_ops(bundle).count(RESTICKIFY) == 1
    assert moved_bytes(bundle) == 4 * 2 * 512 * 64


@pytest.mark.parametrize(("rows", "phases"), [(320, 3), (200, 2)], ids=["trips", "one trip each"])
def test_a_remainder_reads_what_was_moved_for_the_other_trips(rows, phases):
    levels = [(phases, {"a_1": 0}), (4, {"b_1": 0})]
    bundle, specs = checked(product, half(rows, 64), half(512, 64), levels=levels, multiple_of=64, target=TWO_CORES)
    assert sum(isinstance(spec, LoopSpec) for spec in specs) == 3
    assert device_ops(bundle).count(RESTICKIFY) == 1 and device_ops(bundle).count("batchmatmul") == 2
    assert moved_bytes(bundle) == 2 * 2 * 512 * 64


def test_a_remainder_of_tiles_has_a_move_of_its_own():
    levels = [(2, {"a_1": 0}), (4, {"b_1": 0})]
    bundle, _ = checked(product, half(256, 64), half(448, 64), levels=levels, multiple_of=128, target=ONE_CORE)
    assert device_ops(bundle).count(RESTICKIFY) == 2
    assert moved_bytes(bundle) == 2 * 2 * 384 * 64 + 2 * 64 * 64, "the one tile of the remainder stays in LX"


def test_tiles_that_are_used_once_are_moved_in_their_loop():
    bundle, (held, loop) = checked(product, half(256, 64), half(512, 64), levels=[(4, {"b_1": 0})], target=ONE_CORE)
    assert held.op == "identity" and isinstance(loop, LoopSpec)
    assert [spec.op for spec in loop.body] == [RESTICKIFY, "batchmatmul", "relufwd"]
    (source, copy) = loop.body[0].args
    assert "hbm" in source.allocation and "lx" in copy.allocation
    assert moved_bytes(bundle) == 2 * 512 * 64


def test_tiles_of_a_head_are_moved_in_the_loop_over_heads():
    levels = [(2, {"a_1": 0}), (2, {"a_1": 1}), (4, {"b_1": 1})]
    bundle, (heads,) = checked(product, half(2, 128, 64), half(2, 256, 64), levels=levels, target=TWO_CORES)
    moves, rows = heads.body
    assert isinstance(moves, LoopSpec) and (moves.count, rows.count) == (4, 2)
    assert moved_bytes(bundle) == 2 * 2 * 2 * 256 * 64


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(1, 2) * 0.125, -1) @ v


ATTENTION = half(2, 192, 64), half(2, 256, 64), half(2, 256, 64)
ROWS = [(2, {"q_1": 0}), (2, {"q_1": 1})]
"""All keys of a head for each tile of its queries: 96 of them."""


@pytest.mark.parametrize("unroll", [False, True], ids=["looped", "unrolled"])
@pytest.mark.parametrize("bundle_format", ["seed", "1.0"])
def test_moved_keys_stay_in_lx_for_the_life_of_the_loop(bundle_format, unroll):
    """They are read once, and written nowhere else: the move costs nothing."""
    torch.manual_seed(0)
    target = Target(cores=1, bundle_format=bundle_format)
    looped = close(attention, *ATTENTION, levels=ROWS, target=target)
    bundle = spyre_fx.codegen.lower.bundle_of(looped.lowered, unroll=unroll)
    assert torch.equal(bundle.run(*ATTENTION), looped.run(*ATTENTION))
    assert ("scf.for" in bundle.mlir()) is not unroll
    moves = [spec for spec in specs_of(bundle) if spec.op == RESTICKIFY]
    assert len(moves) == 2 if unroll else 1
    for source, copy in (move.args for move in moves):
        assert "hbm" in source.allocation and "lx" in copy.allocation
    numbers = 128 * 2 * 2
    assert bundle.counters.hbm_bytes == 2 * 2 * 2 * (192 + 256) * 64 + numbers


def test_moved_keys_without_room_are_in_hbm():
    torch.manual_seed(0)
    levels, target = [(2, {"q_1": 0}), (6, {"q_1": 1})], Target(cores=1, lx_bytes=64 * 1024 + 48 * 1024)
    bundle = close(attention, *ATTENTION, levels=levels, target=target)
    (move,) = [spec for spec in specs_of(bundle) if spec.op == RESTICKIFY]
    assert all("hbm" in arg.allocation for arg in move.args)
    assert moved_bytes(bundle) == 2 * 2 * 2 * 256 * 64


def test_what_ops_read_in_their_own_sticks_as_well_is_read_where_it_was():
    """The copy stays, the original is read from HBM by the sum."""
    torch.manual_seed(0)
    bundle = close(lambda a, b: (a @ b.t()) * b.sum(), half(128, 64), half(128, 64), target=ONE_CORE)
    ((source, copy),) = (spec.args for spec in specs_of(bundle) if spec.op == RESTICKIFY)
    assert "hbm" in source.allocation and "lx" in copy.allocation

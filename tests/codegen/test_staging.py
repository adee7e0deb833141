"""Tiles that several ops of a block use are read from HBM once, and written there once."""

from __future__ import annotations

import torch

from spyre_fx.target import Target
from tests.codegen.device_runs import close, device_ops, half, same, specs_of


def test_an_input_that_several_ops_read_is_read_once():
    bundle = close(lambda x: torch.softmax(x, -1), half(512, 4096))
    assert device_ops(bundle)[0] == "identity"
    assert bundle.counters.hbm_bytes == 2 * 512 * 4096 * 2, "the input once, the output once"


def test_the_same_in_every_trip_of_a_loop():
    bundle = close(lambda x: torch.softmax(x, -1), half(512, 4096), levels=[(4, [0])])
    assert bundle.counters.hbm_bytes == 2 * 512 * 4096 * 2


def test_a_result_that_is_also_read_is_written_once():
    def function(x):
        y = x * 2
        return y, torch.relu(y) + 1

    bundle = same(function, half(512, 1024))
    assert bundle.counters.hbm_bytes <= 3 * 512 * 1024 * 2 + 2 * 32 * 128, "and two numbers, by every core"
    assert device_ops(bundle) == ["mul", "identity", "relufwd", "add"]


def test_an_op_that_reads_a_tensor_twice_needs_no_copy():
    assert device_ops(same(lambda x: x + x, half(64, 128))) == ["add"]


def test_without_room_nothing_is_held():
    small = Target(lx_bytes=80 * 1024)
    bundle = close(lambda x: torch.softmax(x, -1), half(512, 4096), target=small)
    assert "identity" not in device_ops(bundle)


def test_without_lx_nothing_is_held():
    bundle = close(lambda x: torch.softmax(x, -1), half(64, 128), target=Target(lx_planning=False))
    assert "identity" not in device_ops(bundle)


def test_other_values_have_the_first_choice():
    """Room for the chain of one pass, not for the input beside it."""
    slice_bytes = 512 * 4096 * 2 // 32
    target = Target(lx_bytes=64 * 1024 + slice_bytes * 5 // 2, lx_reserve_share=0.0)
    bundle = close(lambda x: torch.softmax(x, -1), half(512, 4096), target=target)
    held = {arg.name for spec in specs_of(bundle) for arg in spec.args if "lx" in arg.allocation}
    assert "_softmax_1" in held and bundle.counters.hbm_bytes < 5 * 512 * 4096 * 2


def test_partial_sums_in_two_ops_read_one_tile():
    torch.manual_seed(0)
    close(lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), half(100, 192), levels=[(4, [0])])

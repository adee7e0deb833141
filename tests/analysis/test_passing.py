"""Sums that need no main memory between their fill, their loop and their rounding."""

from __future__ import annotations

import torch

import spyre_fx
from spyre_fx.analysis.traffic import compulsory_bytes, traffic
from spyre_fx.target import KIB, MIB, Target


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).half()


def over_k(function, *args, count=4):
    gm = spyre_fx.capture(function, *args)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    return spyre_fx.tile(gm, [(names[:1], count, [2])])


A, B = half(64, 512), half(512, 128)


def test_a_sum_that_fits_moves_its_arguments_and_result_alone():
    gm = over_k(torch.mm, A, B)
    assert traffic(gm, MIB).total == compulsory_bytes(gm) == A.nbytes + B.nbytes + 64 * 128 * 2


def test_the_device_agrees_but_for_the_zero_that_fills_the_sum():
    target = Target(cores=1)
    gm = over_k(torch.mm, A, B)
    bundle = spyre_fx.lower(gm, target)
    bundle.run(A, B)
    assert bundle.counters is not None
    assert bundle.counters.hbm_bytes == traffic(gm, target.capacity_bytes).total + target.stick_bytes


def test_a_sum_that_does_not_fit_is_moved():
    gm = over_k(torch.mm, A, B)
    assert traffic(gm, 32 * KIB).total > 2 * compulsory_bytes(gm)


def test_a_sum_that_others_read_is_written():
    """In float32 it is the result; twice read it is a value like any other."""
    wide = over_k(torch.mm, A.float(), B.float())
    assert traffic(wide, MIB).total == compulsory_bytes(wide)
    twice = over_k(lambda a, b: ((p := a @ b).relu(), p.exp()), A.float(), B.float())
    assert traffic(twice, MIB).total == compulsory_bytes(twice) + 3 * 64 * 128 * 4


def attention(q, k, v):
    return torch.softmax(q @ k, -1) @ v


QKV = half(1, 64, 64), half(1, 64, 256), half(1, 256, 64)


def over_keys(accumulate):
    gm = spyre_fx.capture(attention, *QKV)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    return spyre_fx.tile(gm, [(names, 4, {"k": 2})], accumulate=accumulate)


def test_one_op_may_take_up_several_values_of_a_loop():
    """Sum and product of an attention, which a division reads. The maximum is read by nobody."""
    gm = over_keys("operand")
    assert len(next(node for node in gm.graph.nodes if node.op == "call_module").users) == 3
    assert traffic(gm, MIB).total == compulsory_bytes(gm)
    wide = over_keys("float32")  # whose quotient is an op away from the result
    assert traffic(wide, MIB).total == compulsory_bytes(wide) + 2 * 64 * 64 * 4


def test_the_device_keeps_several_values_as_well():
    target = Target(cores=1)
    gm = over_keys("operand")
    bundle = spyre_fx.lower(gm, target)
    bundle.run(*QKV)
    assert bundle.counters is not None
    constants = 3 + 3 * 4  # what fills the three values; the numbers that four trips of three ops read
    assert bundle.counters.hbm_bytes == traffic(gm, target.capacity_bytes).total + constants * target.stick_bytes

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

"""A bounded part of the run on the simulated device; ``--slow`` takes one sample of every op."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.device import Tally, check_op
from tests.conformance.opinfo import UNDEFINED

OPS = {op.name: op for op in reversed(op_db)}
ON_THE_DEVICE = ("nn.functional.linear", "softmax", "where")


def tally_of(name, dtype, samples):
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_op(OPS[name], dtype, samples, tally)
    return tally


@pytest.mark.parametrize("name", ON_THE_DEVICE)
def test_right_in_every_form_of_a_bundle(name):
    tally = tally_of(name, torch.float16, 1)
    assert not tally.problems
    assert tally.counts["same"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPS) - set(UNDEFINED)))
def test_every_op(name):
    for dtype in {torch.float16, torch.float32} & set(OPS[name].supported_dtypes("cpu")):
        assert not tally_of(name, dtype, 1).problems

"""A bounded part of the run on the simulated device; ``--slow`` takes one sample of every op."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

from spyre_fx.backend import Backend
from spyre_fx.backend.graph_compiler import GraphCompiler
from tests.backend.helpers import tiling
from tests.conformance.device import Recorder, Tally, check_op
from tests.conformance.numerics import copied
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


@pytest.mark.parametrize("name", ["split", "nn.functional.embedding"])
def test_a_loop_that_the_device_does_not_run_has_a_reason(name):
    tally = tally_of(name, torch.float16, 1)
    assert tally.counts["hosted"] == sum(tally.hosted.values()) > 0
    assert "no step names a reason" not in tally.hosted
    assert ("no loop is left: the group has views alone, and its loop gives nothing" in tally.hosted) == (
        name == "split"
    )


def test_compiled_graphs_are_checked_with_what_they_were_called_with(monkeypatch):
    recorder = Recorder(Tally(), 0.0)
    monkeypatch.setattr(GraphCompiler, "_make", lambda compiler, record: recorder.compiled(compiler, record))
    backend = Backend(tile=tiling("native_layer_norm"))
    x = torch.randn(8, 64, requires_grad=True)
    torch.compile(lambda x: F.layer_norm(x, (64,)), backend=backend)(x).cos().sum().backward()
    forward, backward = backend.graphs
    assert forward.loops
    assert [torch.equal(one, x) for one in recorder.given[forward.captured]] == [True]
    (found,) = backward.captured(*recorder.given[backward.captured])
    torch.testing.assert_close(found, x.grad)


def test_copies_have_the_strides_of_what_they_copy():
    for x in (torch.arange(6.0).view(2, 3).t(), torch.arange(3.0)[:, None].expand(3, 4), torch.ones(()).expand(2, 2)):
        made = copied(x)
        assert torch.equal(made, x)
        assert (made.stride(), made.data_ptr() == x.data_ptr()) == (x.stride(), False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPS) - set(UNDEFINED)))
def test_every_op(name):
    for dtype in {torch.float16, torch.float32} & set(OPS[name].supported_dtypes("cpu")):
        assert not tally_of(name, dtype, 1).problems

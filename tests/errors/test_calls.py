"""A call with arguments that a public function does not take is an error of ours that names what it takes."""

import inspect

import pytest
import torch

import spyre_fx
from spyre_fx import viz
from spyre_fx.errors.calls import checked_call

FUNCTIONS = [
    *(value for name in spyre_fx.__all__ if inspect.isfunction(value := getattr(spyre_fx, name))),
    *(getattr(viz, name) for name in viz.__all__ if name.startswith("plot")),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_each_public_function_names_what_it_takes(function):
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        with pytest.raises(
            spyre_fx.OptionError, match=r"was called without 'source'. Expected .* pass 'source' as well"
        ):
            function()
        return
    with pytest.raises(spyre_fx.OptionError, match=rf"{function.__name__} was called with 'zzz', which it does not"):
        function(zzz=1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: spyre_fx.tile(None, [], strictt=True), "write 'strict'"),
        (lambda: spyre_fx.explain(None), r"explain was called without 'groups'\. .* pass 'groups' as well"),
        (lambda: spyre_fx.summary(1, 2, 3, 4), "summary was called with too many positional arguments"),
        (lambda: spyre_fx.lower(None, None, True), "pass each once, and those behind a \\* by name"),
        (
            lambda: spyre_fx.Target(capacity_bytes=1),
            r"leave it out: capacity_bytes \(what all cores may hold together\) follows from the others",
        ),
        (lambda: spyre_fx.Target(lx_byte=1), "write 'lx_bytes'"),
        (lambda: spyre_fx.LoopGroup(), "LoopGroup was called without 'count'"),
        (lambda: spyre_fx.Backend("auto"), "Backend was called with too many positional arguments"),
    ],
)
def test_what_to_do_is_said(call, words):
    with pytest.raises(spyre_fx.OptionError, match=words):
        call()


def test_errors_from_inside_stay_what_they_are():
    with pytest.raises(TypeError, match="unsupported operand"):
        checked_call(lambda x: x + "a")(1)


def test_what_is_checked_is_called_as_before():
    assert checked_call(lambda x, *, y: (x, y))(1, y=2) == (1, 2)
    assert inspect.signature(spyre_fx.tile).parameters["groups"]
    gm = spyre_fx.capture(lambda x: x.relu(), torch.ones(4))
    assert len(spyre_fx.plan(gm, budget=None).items) == 1

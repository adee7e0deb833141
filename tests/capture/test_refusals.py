"""What cannot be a graph is refused with the user's own line, quietly, and leaves no trace behind."""

from __future__ import annotations

import logging
import re
import traceback
from typing import Any

import pytest
import torch
from torch import nn

from spyre_fx.capture import capture
from spyre_fx.errors import CaptureError

X = torch.randn(4, 4)


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # a branch on values
        return x
    return -x


def loop(x: torch.Tensor) -> torch.Tensor:
    while x.max() < 10:  # a loop on values
        x = x * 2
    return x


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return branch(x)


@pytest.mark.parametrize(
    ("source", "line"),
    [(branch, "if x.sum() > 0:  # a branch on values"), (loop, "while x.max() < 10:  # a loop on values")],
)
def test_control_flow_on_values_names_the_line(source: Any, line: str) -> None:
    with pytest.raises(CaptureError, match="chooses its path by the values of a tensor") as caught:
        capture(source, X)
    assert re.search(rf"{re.escape(__file__)}:\d+: {re.escape(line)}", str(caught.value))
    assert "torch.cond" in str(caught.value)


def test_the_line_is_found_inside_modules() -> None:
    with pytest.raises(CaptureError, match=r"Sequential chooses.*a branch on values"):
        capture(nn.Sequential(nn.Linear(4, 4), Inner()), X)


def test_torchs_own_traceback_log_and_dump_stay_away(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for source in (branch, lambda x: x @ torch.ones(3, 3)):
        with pytest.raises(CaptureError) as caught:
            capture(source, X)
        text = "".join(traceback.format_exception(caught.value))
        assert "site-packages" not in text
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("source", "args", "words"),
    [
        (nn.Linear, (X,), "the class Linear is no program. Expected a function, a module"),
        (3, (X,), "int 3 is no program"),
        (None, (), "NoneType None is no program"),
        (nn.Linear(4, 4), (), r"do not fit Linear\(input.*missing a required argument: 'input'"),
        (nn.Linear(4, 4), (X, X), "too many positional arguments"),
        (branch, (), r"do not fit branch\(x.*missing a required argument: 'x'"),
        (lambda x: x @ torch.ones(3, 3), (X,), r"test_refusals.py:\d+: .*ones\(3, 3\).*RuntimeError"),
        (lambda x: torch.from_numpy(x.numpy()), (X,), r"test_refusals.py:\d+: .*x\.numpy\(\)"),
        (lambda x: undefined(x), (X,), "NameError: name 'undefined' is not defined"),  # noqa: F821
        (lambda x: {x}, (X,), "set"),
        (
            lambda x: torch.func.grad(lambda y: y.sin().sum())(x),
            (X,),
            r"loses sight of them, as torch\.func\.grad does",
        ),
        (lambda x: x.t_(), (X,), "cannot be made into a graph"),
        (lambda x: X.add_(x), (X.clone(),), "is mutated in the forward method"),
    ],
)
def test_refused_by_name(source: Any, args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        capture(source, *args)


def test_unexpected_keywords() -> None:
    with pytest.raises(CaptureError, match="got an unexpected keyword argument 'y'"):
        capture(branch, X, y=X)


class Keeps(nn.Module):
    """Keeps tensors where a graph cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: torch.Tensor | None = None
        self.inner = nn.Module()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = x * 2
        self.inner.last = x + 1
        return self.cache


def test_state_outside_buffers_is_refused_and_put_back() -> None:
    module = Keeps()
    with pytest.raises(CaptureError, match=r"forward sets self\.cache, self\.inner\.last"):
        capture(module, X)
    assert module.cache is None
    assert not hasattr(module.inner, "last")


def test_a_guarded_cache_is_fine() -> None:
    class Guarded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            if not torch.compiler.is_compiling():
                self.cache = y
            return y

    module = Guarded()
    capture(module, X)
    assert not hasattr(module, "cache")


def test_a_failed_capture_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(4, 4), Inner())
    before = {name: dict(vars(part)) for name, part in module.named_modules()}
    weights = [parameter.clone() for parameter in module.parameters()]
    with pytest.raises(CaptureError):
        capture(module, X)
    assert {name: dict(vars(part)) for name, part in module.named_modules()} == before
    assert all(torch.equal(a, b) for a, b in zip(weights, module.parameters(), strict=True))
    assert capture(module[0], X) is not None

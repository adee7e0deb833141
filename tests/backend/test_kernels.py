"""Kernels: compiled once for each set of strides, shared by equal parts, and loudly replaced where Inductor fails."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.backend import kernels
from spyre_fx.backend.kernels import Kernel, Kernels
from spyre_fx.transforms.loop_types import TensorType

X = torch.randn(8, 16)
KIND = TensorType((8, 16), (16, 1), torch.float32, torch.device("cpu"))


def graph(scale: float = 2.0) -> fx.GraphModule:
    return make_fx(lambda x: (torch.tanh(x) * scale,), tracing_mode="fake")(X)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stands for Inductor; has the strides of each kernel that was asked for."""
    asked: list[tuple[Any, ...]] = []

    def compile_kernel(function: Any, args: tuple[Tensor, ...]) -> Any:
        asked.append(tuple(arg.stride() for arg in args))
        return lambda tensors: function(*tensors)

    monkeypatch.setattr(kernels, "compile_kernel", compile_kernel)
    return asked


def test_it_is_compiled_for_the_strides_that_come(compiled: list[Any]) -> None:
    kernel = Kernel(graph(), (KIND,))
    wide = torch.randn(8, 32)
    for x in (X, wide[:, :16], X + 1, wide[:, 16:]):
        torch.testing.assert_close(kernel(x), torch.tanh(x) * 2)
    assert compiled == [((16, 1), (16, 1)), ((32, 1), (16, 1))]


def test_it_writes_where_it_is_told(compiled: list[Any]) -> None:
    wide = torch.zeros(8, 32)
    Kernel(graph(), (KIND,)).into(X, wide[:, 8:24])
    torch.testing.assert_close(wide[:, 8:24], torch.tanh(X) * 2)
    assert wide[:, :8].abs().sum() == wide[:, 24:].abs().sum() == 0


def test_equal_parts_share_a_kernel() -> None:
    known = Kernels()
    assert known.kernel(graph(), (KIND,)) is known.kernel(graph(), (KIND,))
    assert known.kernel(graph(), (KIND,)) is not known.kernel(graph(3.0), (KIND,))


def test_threads_compile_it_once(compiled: list[Any]) -> None:
    kernel = Kernel(graph(), (KIND,))
    threads = [threading.Thread(target=kernel, args=(X,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_where_inductor_fails_the_ops_run_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(function: Any, args: Any) -> Any:
        raise RuntimeError("no such instruction\nmore")

    monkeypatch.setattr(kernels, "compile_kernel", fail)
    with caplog.at_level(logging.WARNING, "spyre_fx"):
        torch.testing.assert_close(Kernel(graph(), (KIND,))(X), torch.tanh(X) * 2)
    expected = "a kernel runs op by op: Inductor failed (RuntimeError: no such instruction)"
    assert [record.message for record in caplog.records] == [expected]

"""Large tensors ask for large pages, where the system has them."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import pytest
import torch

from spyre_fx.transforms.executor import pages
from spyre_fx.transforms.executor.pages import LEAST, PAGE, fresh
from tests.transforms.loop_cases import rows

CPU = torch.device("cpu")
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The addresses and sizes that large pages were asked for."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(pages, "_advice", lambda: lambda begin, size: found.append((begin, size)))
    return found


def test_whole_pages_inside_of_a_large_tensor(asked: list[tuple[int, int]]) -> None:
    made = fresh((2, LEAST), (LEAST, 1), torch.uint8, CPU)
    ((begin, size),) = asked
    assert begin % PAGE == size % PAGE == 0
    assert made.data_ptr() <= begin and begin + size <= made.data_ptr() + made.nbytes
    assert size > made.nbytes - 2 * PAGE


@pytest.mark.parametrize("stride", [(1, 64), (64, 1), (80, 1)])
def test_shape_strides_and_type_are_those_asked_for(stride: tuple[int, int]) -> None:
    made = fresh((64, 64), stride, torch.float16, CPU)
    assert (made.shape, made.stride(), made.dtype, made.device) == ((64, 64), stride, torch.float16, CPU)


def test_small_tensors_and_other_devices_ask_for_nothing(asked: list[tuple[int, int]]) -> None:
    fresh((LEAST - 1,), (1,), torch.uint8, CPU)
    fresh((0,), (1,), torch.uint8, CPU)
    fresh((4 * LEAST,), (1,), torch.uint8, torch.device("meta"))
    assert asked == []


def _no_library(name: object) -> None:
    raise OSError("no such library")


@pytest.mark.parametrize("missing", ["advice", "call"])
def test_systems_without_the_call_give_plain_memory(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "advice":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    else:
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 14, raising=False)
        monkeypatch.setattr(ctypes, "CDLL", _no_library)
    monkeypatch.setattr(pages, "_advice", pages._advice.__wrapped__)
    assert pages._advice() is None
    assert fresh((LEAST,), (1,), torch.uint8, CPU).fill_(3)[-1] == 3


def test_results_of_loops_ask(asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LEAST", 1 << 20)
    x = torch.randn(4096, 1024)
    loop = rows(lambda x: x.exp(), (x,), [0], 0, 100)
    torch.testing.assert_close(loop(x), x.exp(), rtol=0, atol=0)
    assert any(size > x.nbytes - 2 * PAGE for _, size in asked)


@pytest.mark.skipif(
    not ENABLED.exists() or "[never]" in ENABLED.read_text() or sys.platform != "linux",
    reason="this system gives no large pages to programs that ask",
)
def test_the_system_gives_them() -> None:
    made = fresh((4 * LEAST,), (1,), torch.uint8, CPU).fill_(1)
    assert _large_bytes(made.data_ptr() + 2 * PAGE) > 0


def _large_bytes(address: int) -> int:
    """The KiB of large pages in the mapping that holds an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "AnonHugePages:":
            return int(line.split()[1])
    return 0

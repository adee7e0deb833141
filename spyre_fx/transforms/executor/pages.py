"""Large memory in large pages.

The system hands out fresh memory page by page, when a page is first touched, and that takes several times as long as
to fill it: 128 MiB took 34 to 50 ms in pages of 4 KiB, 18 to 21 ms in pages of 2 MiB, and 10 ms where an allocator
had kept it (2 cores, Linux 6.18). Most systems give pages of 2 MiB to those who ask (``madvise`` in
``/sys/kernel/mm/transparent_hugepage/enabled``). torch does with ``THP_MEM_ALLOC_ENABLE=1`` in the environment only.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Sequence

import torch

PAGE = 2 << 20
LEAST = 32 << 20
"""Bytes of a block from which on glibc gives it back to the system when it is freed, whatever the program did before:
the memory of smaller ones is mostly kept, with its pages.
"""


def fresh(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An empty tensor, of large pages if it is large and the system has them to give."""
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if is_large(made):
        _ask(made)
    return made


def is_large(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor in main memory comes from the system each time."""
    return tensor.device.type == "cpu" and tensor.untyped_storage().nbytes() >= LEAST


def _ask(tensor: torch.Tensor) -> None:
    """Ask for large pages where ``tensor`` lies. This is advice: nothing changes where it is not taken."""
    advise = _advice()
    if advise is None or type(tensor) is not torch.Tensor:
        return
    begin, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
    first, last = -(-begin // PAGE) * PAGE, (begin + size) // PAGE * PAGE
    if first < last:
        advise(first, last - first)


@functools.cache
def _advice() -> Callable[[int, int], object] | None:
    """What asks for large pages from an address on, for some bytes; None where the system has no such call."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return None
    try:
        call = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return lambda begin, size: call(begin, size, advice)

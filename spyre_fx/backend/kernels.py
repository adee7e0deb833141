"""A part of a graph as one compiled kernel, which writes its results into memory that it is given."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from spyre_fx.backend.fingerprint import fingerprint
from spyre_fx.backend.progress import progress
from spyre_fx.backend.torch_compat import compile_kernel
from spyre_fx.transforms.loop_types import TensorType

aten = torch.ops.aten
log = logging.getLogger("spyre_fx")

Key = tuple[int, tuple[tuple[int, ...], ...]]
"""The number of threads that a kernel may use, and the strides of its tensors."""


class Kernel:
    """What stands as the target of a ``call_function`` node in the place of the nodes of ``gm``.

    ``kernel(*inputs)`` returns fresh results, ``kernel.into(*inputs, *results)`` writes them to tensors of the same
    shapes that share no memory with the inputs. Tiles come with the strides of what they are cut from, and a thread
    that has a tile of its own uses no others, so it is compiled when it is first called with some strides and number
    of threads, and kept for these.

    args:
        gm: takes tensors and returns a tuple of tensors; it is not edited.
        results: the types of what it returns.
    """

    __module__ = "spyre_fx.backend.kernels"

    def __init__(self, gm: fx.GraphModule, results: tuple[TensorType, ...]) -> None:
        self.gm = gm
        self.results = results
        self.__name__ = self.__qualname__ = "kernel"
        self._compiled: dict[Key, Callable[[list[Tensor]], Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: Tensor) -> Any:
        outs = [torch.empty_strided(k.shape, k.stride, dtype=k.dtype, device=k.device) for k in self.results]
        self.into(*inputs, *outs)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def into(self, *tensors: Tensor) -> None:
        """Compute the results into the last of ``tensors``."""
        key = torch.get_num_threads(), tuple([tensor.stride() for tensor in tensors])
        function = self._compiled.get(key) or self._compile(key, tensors)
        function(list(tensors))

    def _compile(self, key: Key, tensors: tuple[Tensor, ...]) -> Callable[[list[Tensor]], Any]:
        with self._lock:
            if key in self._compiled:
                return self._compiled[key]
            try:
                with progress("compiling a kernel"):
                    made = compile_kernel(self._write, tensors)
            except Exception as error:
                reason = (str(error).strip().splitlines() or ["no message"])[0]
                log.warning("a kernel runs op by op: Inductor failed (%s: %s)", type(error).__name__, reason)
                made = self._run
            self._compiled[key] = made
            return made

    def _write(self, *tensors: Tensor) -> tuple[()]:
        outs = tensors[len(tensors) - len(self.results) :]
        for out, value in zip(outs, self.gm(*tensors[: len(tensors) - len(outs)]), strict=True):
            out.copy_(value)
        return ()

    def _run(self, tensors: list[Tensor]) -> None:
        self._write(*tensors)


class Kernels:
    """Kernels by their structure, so that equal parts of graphs share one."""

    def __init__(self) -> None:
        self._known: dict[str, Kernel] = {}

    def kernel(self, gm: fx.GraphModule, results: tuple[TensorType, ...]) -> Kernel:
        """The kernel for ``gm``."""
        word = fingerprint(gm)
        made = Kernel(gm, results)
        return made if word is None else self._known.setdefault(word, made)

"""From a captured graph to a callable: choose groups, tile, and run on the CPU or on the simulated device."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from spyre_fx.backend.options import Options, parse
from spyre_fx.backend.records import GraphRecord
from spyre_fx.transforms.tile import tile

log = logging.getLogger("spyre_fx")

Choice = tuple[list[Any], list[str]]
"""Groups for ``tile``, and a line of reason for each."""


class Backend:
    """A ``torch.compile`` backend that the user holds, to look at what was compiled.

    >>> import torch
    >>> backend = Backend(tile=lambda gm: [])
    >>> compiled = torch.compile(lambda x: x.relu() + 1, backend=backend)
    >>> compiled(torch.ones(3)).tolist(), len(backend.graphs)
    ([2.0, 2.0, 2.0], 1)

    args: the fields of ``Options``.

    errors: ``OptionError`` for unknown or impossible options.
    """

    def __init__(self, *, _parsed: Options | None = None, **options: Any) -> None:
        self.options = _parsed or parse(None, options)
        self.graphs: list[GraphRecord] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any], **kwargs: Any) -> Any:
        from spyre_fx.torch_compat import core_aten_decompositions

        compiler = aot_autograd(
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            decompositions=core_aten_decompositions(()),
        )
        return compiler(gm, example_inputs)

    def _compiler(self, stage: str) -> Callable[[fx.GraphModule, list[Any]], Any]:
        return lambda gm, inputs: make_boxed_func(self.compile(gm, stage))

    def compile(self, gm: fx.GraphModule, stage: str = "inference") -> Callable[..., Any]:
        """Compile one functional ATen graph; the record of it is appended to ``graphs``."""
        record = GraphRecord(stage, gm)
        with _timed(record, "choose"):
            record.groups, record.reasons = choose(gm, self.options)
        with _timed(record, "tile"):
            record.tiled = tile(gm, record.groups) if record.groups else gm
        self.graphs.append(record)
        for line in record.reasons:
            log.info("%s: %s", stage, line)
        if self.options.execute == "cpu":
            return record.tiled
        from spyre_fx.codegen.lower import lower

        with _timed(record, "lower"):
            record.bundle = lower(record.tiled, self.options.target)
        return record.bundle.run


def choose(gm: fx.GraphModule, options: Options) -> Choice:
    """The groups for one graph, by whoever the options name."""
    if not any(node.op == "call_function" for node in gm.graph.nodes):
        return [], ["no ops"]
    if callable(options.tile):
        groups = list(options.tile(gm))
        return groups, [f"{len(groups)} groups from {getattr(options.tile, '__name__', 'a function')}"]
    return _CHOOSERS[options.tile](gm, options)


def _none(gm: fx.GraphModule, options: Options) -> Choice:
    return [], ["tiling is off"]


_CHOOSERS: dict[str, Callable[[fx.GraphModule, Options], Choice]] = {"off": _none, "auto": _none, "hints": _none}


@contextmanager
def _timed(record: GraphRecord, name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    record.seconds[name] = time.perf_counter() - start

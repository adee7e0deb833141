"""One graph from AOTAutograd to a function: choose groups, tile, and run on the CPU or on the simulated device."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import fx

from spyre_fx.backend.artifacts import Artifact, Artifacts
from spyre_fx.backend.autotune import autotuned, can_be_timed, candidates
from spyre_fx.backend.boxed import Boxed, boxed_graph, unboxed
from spyre_fx.backend.choose import Choice, choose, first_line, is_symbolic, machine, tile_chosen
from spyre_fx.backend.dump import Dump
from spyre_fx.backend.fingerprint import fingerprint
from spyre_fx.backend.fuse import with_kernels
from spyre_fx.backend.options import Options
from spyre_fx.backend.progress import progress
from spyre_fx.backend.records import GraphRecord
from spyre_fx.backend.sizes import by_sizes
from spyre_fx.backend.whole import stack_parts
from spyre_fx.capture.name_marks import take_marks
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lower import lower
from spyre_fx.errors import SpyreFxError
from spyre_fx.torch_compat import without_modes
from spyre_fx.transforms.summary import summary

log = logging.getLogger("spyre_fx")


class GraphCompiler:
    """Compiles the graphs of one ``torch.compile``.

    args:
        options: how.
        artifacts: what was compiled before, and where to keep what is compiled now.
        records: receives a record of each graph.
    """

    def __init__(self, options: Options, artifacts: Artifacts, records: list[GraphRecord]) -> None:
        self.options = options
        self.artifacts = artifacts
        self.records = records
        self.notes: list[str] = []
        """What was decided before the next graph came, for its record."""

    def compile(self, gm: fx.GraphModule, stage: str) -> Boxed:
        """The function for ``gm``, a functional ATen graph.

        args:
            stage: ``"inference"``, ``"forward"`` or ``"backward"``.

        errors: ``TilingError`` for groups of the user's that cannot be tiled; ``HintError`` for hints that cannot be
            followed; ``OptionError`` for a dump folder that cannot be written.
        """
        take_marks(gm)
        stack_parts(gm)
        if is_symbolic(gm):
            return by_sizes(gm, lambda sized: self._compile(sized, stage), lambda: self._untiled(gm, stage))
        return self._compile(gm, stage)

    def groups(self, gm: fx.GraphModule) -> Sequence[Any]:
        """The groups that would be tiled in ``gm``; none where sizes are symbolic."""
        if is_symbolic(gm):
            return ()
        with without_modes():
            return choose(gm, self.options, "joint").groups

    def _untiled(self, gm: fx.GraphModule, stage: str) -> Boxed:
        options = replace(self.options, tile="off", memory_budget=None, execute="cpu", dump=None)
        return GraphCompiler(options, self.artifacts, self.records)._compile(gm, stage)

    def _compile(self, gm: fx.GraphModule, stage: str) -> Boxed:
        record = GraphRecord(stage, gm)
        word = fingerprint(gm)
        key = (self.options, word)
        artifact = self.artifacts.get(key) if word is not None else None
        record.reused = artifact is not None
        if artifact is None:
            with without_modes():  # AOTAutograd calls under a fake mode of its own
                artifact = self._make(record)
            if word is not None:
                self.artifacts.put(key, artifact)
        record.groups, record.reasons = [*artifact.choice.groups], [*self.notes, *artifact.choice.reasons]
        self.notes.clear()
        record.tiled, record.bundle = artifact.tiled, artifact.bundle
        self.records.append(record)
        log.info("%s", record)
        return artifact.run

    def _make(self, record: GraphRecord) -> Artifact:
        """All steps, in order."""
        options, gm = self.options, record.captured
        dump = Dump(options.dump, record.stage) if options.dump is not None else None
        if dump:
            dump.graph("0_captured", gm)
        # 1. Which ops to tile, along which axes, in how many tiles.
        with _step(record, "choose"):
            choice = choose(gm, options, record.stage)
        # 2. The graph with its loops, and the schedules of the loops.
        with _step(record, "tile"):
            tiled, choice = tile_chosen(gm, choice)
        if dump:
            dump.groups(choice.groups, choice.reasons)
            dump.graph("2_tiled", tiled)
            dump.text("3_summary", str(summary(tiled)))
        # 3. For the device: specs, layouts, addresses, programs.
        bundle = None
        if options.execute == "device":
            with _step(record, "lower"):
                bundle, choice = _lowered(tiled, choice, options)
        if dump and bundle is not None:
            dump.bundle(bundle)
        # 4. The function to call.
        with _step(record, "code"):
            run = unboxed(bundle.run) if bundle is not None else self._function(record, tiled, choice)
        return Artifact(choice, tiled, bundle, run)

    def _function(self, record: GraphRecord, tiled: fx.GraphModule, choice: Choice) -> Boxed:
        """The tiled graph as a function; with ``autotune`` the fastest of several, found when it is first called."""
        gm, word = record.captured, fingerprint(record.captured)
        if not self.options.autotune or not choice.groups or word is None or not can_be_timed(gm):
            return boxed_graph(self._runnable(tiled))

        several = candidates(choice.groups, keep_peak=self.options.memory_budget is not None)
        graphs: dict[str, fx.GraphModule] = {}

        def made(name: str) -> Boxed:
            graphs[name], _ = tile_chosen(gm, Choice(several[name]))
            return boxed_graph(self._runnable(graphs[name]))

        def settle(winner: str, reason: str) -> None:
            log.info("%s: %s", record.stage, reason)
            record.reasons.append(reason)
            record.groups, record.tiled = [*several[winner]], graphs[winner]

        makers = {name: functools.partial(made, name) for name in several}
        return autotuned(makers, f"{word} {replace(self.options, dump=None)}", settle)

    def _runnable(self, tiled: fx.GraphModule) -> fx.GraphModule:
        """The graph with compiled kernels in it, if asked for."""
        return with_kernels(tiled, self.artifacts.kernels) if self.options.body == "inductor" else tiled


def _lowered(tiled: fx.GraphModule, choice: Choice, options: Options) -> tuple[Bundle | None, Choice]:
    """The bundle of ``tiled``, or None, with a warning and a reason, for a graph that the device has no form for."""
    try:
        return lower(tiled, machine(options)), choice
    except SpyreFxError as error:
        reason = f"runs on the CPU: not lowered ({type(error).__name__}: {first_line(error)})"
        log.warning("%s", reason)
        return None, replace(choice, reasons=(*choice.reasons, reason))


@contextmanager
def _step(record: GraphRecord, name: str) -> Iterator[None]:
    start = time.perf_counter()
    with progress(f"{record.stage} graph, {name}"):
        yield
    record.seconds[name] = time.perf_counter() - start
    log.debug("%s: %s took %.3f s", record.stage, name, record.seconds[name])

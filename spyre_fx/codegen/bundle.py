"""A lowered graph that can be looked at, saved, loaded and run."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyre_fx.codegen.bundle_files import read_bundle, write_bundle
from spyre_fx.codegen.bundle_run import launch_sizes, run_lowered, zero_inputs
from spyre_fx.codegen.listing import host_name, list_lowered
from spyre_fx.codegen.lowered import DeviceStep, HostStep, Lowered
from spyre_fx.codegen.memory_map import argument_ranges
from spyre_fx.codegen.mlir import Syntax, print_program
from spyre_fx.codegen.program import Execute, For, Program, statements
from spyre_fx.codegen.source import print_source
from spyre_fx.codegen.specs import Spec, Specs, UnimplementedOp
from spyre_fx.codegen.unroll import check_unrolled
from spyre_fx.codegen.verify import verify_specs
from spyre_fx.codegen.verify_program import verify_program
from spyre_fx.errors.spec import NOT_A_BUNDLE, NOT_A_FOLDER
from spyre_fx.shows import ShowsItself, counted, size_text
from spyre_fx.tables import Table, Tables

if TYPE_CHECKING:
    from spyre_fx.simulator import Counters

_TOTALS = (
    ("dispatches", "dispatches"),
    ("HBM bytes", "hbm_bytes"),
    ("HBM bytes, each stick once per op", "unique_hbm_bytes"),
    ("LX bytes", "lx_bytes"),
    ("LX high water per core", "lx_high_water"),
)
"""What ``diff`` compares, by name of the counter."""


@dataclass(eq=False, repr=False)
class Bundle(ShowsItself):
    """What ``lower`` gives: one program per run of device ops, with host steps between.

    >>> bundle = spyre_fx.lower(tiled)                              # doctest: +SKIP
    >>> print(bundle.mlir())                                        # doctest: +SKIP
    >>> z = bundle.run(a, b, c)                                     # doctest: +SKIP
    >>> spyre_fx.Bundle.load(bundle.save("out")).run(a, b, c)       # doctest: +SKIP
    """

    lowered: Lowered
    programs: tuple[Program, ...]
    """One per ``DeviceStep``, in order."""
    counters: Counters | None = field(default=None, init=False)
    """What the last run moved; None before the first."""
    sizes: dict[str, int] = field(default_factory=dict, init=False)
    """The sizes that were known at the last launch only, by name."""

    @property
    def specs(self) -> Specs:
        """The specs of all programs in order, with an ``UnimplementedOp`` for each host step."""
        return Specs(spec for specs in self._kernels().values() for spec in specs)

    def mlir(self, syntax: Syntax = "spyre") -> str:
        """The text of ``bundle.mlir``. Several programs are parted by ``// -----``, as ``mlir-opt`` splits its input.

        Args:
            syntax: ``"spyre"`` or ``"generic"``; see ``codegen/mlir.py``.
        """
        return "// -----\n".join(print_program(program, syntax) for program in self.programs)

    def source(self) -> str:
        """The specs as Python source, which gives equal specs when it is run."""
        return print_source(self._kernels())

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write all files into ``folder`` and return its path.

        Raises:
            SpecError: for a host step that no file can hold, or a folder that cannot be written.
        """
        path = _path(folder)
        write_bundle(self.lowered, self.programs, self.source(), path)
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Bundle:
        """Read a saved bundle. What runs is what its MLIR and SuperDSC files say; needs the extra ``mlir``.

        Raises:
            SpecError: naming the file that is missing, changed or malformed.
        """
        return cls(*read_bundle(_path(folder)))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Execute on the simulated device: takes the arguments of the graph and returns the same structure.

        Raises:
            SpecError: for other arguments than the graph takes.
            DeviceError: for an access that the hardware would answer with garbage: a bug in what was generated.
        """
        # The simulator is to the right of this room; only a run needs it.
        from spyre_fx.simulator import Device

        device = Device(self.lowered.target)
        result = run_lowered(self.lowered, self.programs, args, kwargs, device)
        self.counters = device.counters
        self.sizes = launch_sizes(self.lowered, args, kwargs)
        return result

    def verify(self) -> None:
        """Check specs and programs, and that each program does trip by trip what its specs say when they are unrolled.

        Loops whose count is known at launch make the most trips that they can.

        Raises:
            SpecError, LoweringError: naming the first spot that differs.
        """
        target, ranges = self.lowered.target, argument_ranges(self.lowered)
        steps = [step for step in self.lowered.steps if isinstance(step, DeviceStep)]
        for step, program in zip(steps, self.programs, strict=True):
            verify_specs(step.specs, target)
            verify_program(program, target, ranges)
            check_unrolled(program, step.specs, target)

    def report(self) -> Tables:
        """What the last run moved, per op and per loop, beside the least that it could; what memory the plan takes,
        beside the least that any takes; and why the host runs ops.

        If there was no run, one is made on zeros.
        """
        from spyre_fx.simulator.report import report

        moved = report(self._measured(), self.argument_bytes)
        steps = [step for step in self.lowered.steps if isinstance(step, HostStep)]
        rows = [(host_name(step), name, why) for step in steps for name, why in step.reasons]
        hosted = [Table(rows, ("on the host", "op", "because"))] if rows else []
        return Tables([*moved.parts, *self._plan(), *hosted])

    def diff(self, other: Bundle) -> Tables:
        """The totals of ``report`` of two bundles side by side, this one first, with the ratio of the second to it."""
        if not isinstance(other, Bundle):
            raise NOT_A_BUNDLE(found=type(other).__name__)
        rows = []
        for name, field_name in _TOTALS:
            one, two = (getattr(bundle._measured(), field_name) for bundle in (self, other))
            rows.append((name, one, two, f"{two / one:.2f}" if one else ""))
        return Tables([Table(rows, ("", "this", "other", "ratio"))])

    @property
    def argument_bytes(self) -> int:
        """Bytes of all inputs, constants and outputs on the device, padding included: each is moved once at least.

        Sizes that are known at launch only are those of the last run, or the largest.
        """
        sizes = {size.name: self.sizes.get(size.name, size.largest) for size in self.lowered.sizes}
        total = Fraction(0)
        for one in self.lowered.arguments:
            moved = self.lowered.shape_at(one.name, one.shape, sizes)
            if one.role != "internal":
                total += Fraction(one.layout.size_bytes * math.prod(moved), math.prod(one.shape))
        return int(total)

    def __repr__(self) -> str:
        programs = [statement for program in self.programs for _, statement in statements(program.body)]
        counts = {
            "program": len(self.programs),
            "loop": sum(isinstance(statement, For) for statement in programs),
            "op": sum(isinstance(statement, Execute) for statement in programs),
            "host step": sum(isinstance(step, HostStep) for step in self.lowered.steps),
        }
        parts = [counted(count, name) for name, count in counts.items() if count]
        return f"Bundle({', '.join(parts)})"

    def __str__(self) -> str:
        return "\n".join([repr(self), *list_lowered(self.lowered)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {**super()._repr_mimebundle_(), "text/plain": str(self)}

    def _measured(self) -> Counters:
        """The counters of the last run, or of one on zeros."""
        if self.counters is None:
            args, kwargs = zero_inputs(self.lowered)
            self.run(*args, **kwargs)
        assert self.counters is not None
        return self.counters

    def _plan(self) -> list[Table]:
        """What the memory plan takes, beside what is alive together at the worst moment: no plan needs less."""
        notes = self.lowered.notes
        planned = (("LX per core", "lx_bytes", "lx_bound"), ("HBM between ops", "pool_bytes", "pool_bound"))
        rows = [
            (name, size_text(notes[taken]), size_text(notes[least]))
            for name, taken, least in planned
            if notes.get(taken) and least in notes
        ]
        return [Table(rows, ("memory plan", "planned", "at least"), ("left", "right", "right"))] if rows else []

    def _kernels(self) -> dict[str, tuple[Spec, ...]]:
        """Specs of each step by its name in the wrapper source."""
        kernels: dict[str, tuple[Spec, ...]] = {}
        for position, step in enumerate(self.lowered.steps):
            match step:
                case DeviceStep():
                    kernels[step.name] = step.specs
                case HostStep():
                    kernels[f"host_{position}"] = (UnimplementedOp(host_name(step)),)
        return kernels


def _path(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)):
        raise NOT_A_FOLDER(found=type(folder).__name__)
    return Path(folder)

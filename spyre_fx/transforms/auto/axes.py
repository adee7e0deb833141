"""How the atoms of an axis lie inside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from torch import fx

from spyre_fx.transforms.atoms import Refined


class InnerExtents:
    """For each axis of each op its atoms, outermost first, with the elements inside of one step along each."""

    def __init__(self, refined: Refined) -> None:
        found: dict[tuple[fx.Node, int], dict[int, int]] = defaultdict(dict)
        for number in reversed(range(len(refined.atoms))):
            atom = refined.atoms[number]
            axis = found[atom.op, atom.axis]
            last = next(reversed(axis), None)
            axis[number] = 1 if last is None else axis[last] * refined.atoms[last].extent
        self._axes = {key: dict(reversed(axis.items())) for key, axis in found.items()}

    def of(self, op: fx.Node, axis: int) -> Mapping[int, int]:
        return self._axes[op, axis]

    def around(self, op: fx.Node, axis: int, step: int) -> int:
        """The atom that has ``step`` elements inside of it, or fewer and itself more."""
        return next(atom for atom, inner in self._axes[op, axis].items() if inner <= step)

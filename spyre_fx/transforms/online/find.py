"""Find the sums that could run in one loop with the maximum that they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.groups import Level
from spyre_fx.transforms.online.alignment import Atoms, Layout, Renamed, layout, rows_by_road, rows_by_value
from spyre_fx.transforms.online.masks import masks_whole_rows
from spyre_fx.transforms.online.rows import road_to_maximum
from spyre_fx.transforms.online.terms import Roads, Role, Step, is_constant, without_casts
from spyre_fx.transforms.online.waiting import Waiting
from spyre_fx.transforms.resolved import Resolved

aten = torch.ops.aten


@dataclass(frozen=True)
class Rescalable:
    """A sum that can be kept up to date with a running maximum."""

    op: fx.Node
    level: Level
    """The outermost loop that cuts the reduced axis."""
    maximum: fx.Node
    """The reduction, or what stands for the maximum after the last trip."""
    steps: tuple[Step, ...]
    """From the operand of the sum back to the subtraction of the maximum."""
    row: tuple[fx.Node, ...]
    """From what is subtracted back to the maximum."""
    correction: Layout
    """How a value per row of the maximum meets the sum."""
    factors: dict[fx.Node, Layout]
    """The same for the other operand of each step that is a factor."""

    @property
    def elements(self) -> fx.Node:
        """Whose maximum it is."""
        return without_casts(self.steps[-1].source)


class Search:
    """The sums of one group; facts about the graph are gathered once."""

    def __init__(self, group: Resolved, flow: Dataflow) -> None:
        self.group = group
        self.flow = flow
        self.atoms = Atoms(group.refined, flow)

    def run(self) -> Iterator[Rescalable]:
        """In graph order, by the outermost loop that cuts the reduced axis."""
        for level in self.group.level.walk():
            reductions = [op for op in level.ops if self.group.reduces(level, op)]
            if not any(map(self._is_maximum, reductions)):
                continue
            roads = Roads(lambda node: road_to_maximum(node, self._is_maximum) is not None)
            waiting = Waiting(reductions)
            for op in reductions:
                if self._outermost(op) is level and self._is_sum(op):
                    yield from self._rescalable(op, level, roads, waiting)

    # ---- what an op is

    def _partial(self, op: fx.Node) -> fx.Node:
        return self.group.recurrences.partial(op)

    def _levels(self, op: fx.Node) -> list[Level]:
        return [level for level in self.group.level.walk() if self.group.reduces(level, op)]

    def _outermost(self, op: fx.Node) -> Level:
        return self._levels(op)[0]

    def _combine(self, op: fx.Node) -> str:
        """How the op combines over the loops that cut what it reduces; empty for other ops."""
        partial = self._partial(op)
        cut = (self.group.axes[level].cut.get(partial) for level in self._levels(op))
        return next((self.group.refined.atoms[atom].combine for atom in cut if atom is not None), "")

    def _is_maximum(self, op: fx.Node) -> bool:
        if op not in self.group.level.members or self._combine(op) != "amax":
            return False
        state = self.group.recurrences.by_after.get(op)
        plain = state is None or state.following.target is aten.maximum.default
        return plain and bool(op.meta["val"].is_floating_point())

    def _is_sum(self, op: fx.Node) -> bool:
        known = op in self.group.recurrences.by_after
        return not known and self._combine(op) in ("sum", "matmul") and op.meta["val"].is_floating_point()

    # ---- roads

    def _rescalable(self, op: fx.Node, level: Level, roads: Roads, waiting: Waiting) -> Iterator[Rescalable]:
        operands = [node for node in self.flow.operands(op) if waiting.for_any(node)]
        for operand in dict.fromkeys(operands):
            steps = roads.linear(operand) if operands.count(operand) == 1 else None
            found = None if steps is None else self._checked(op, level, steps, waiting)
            if found is not None:
                yield found
                return

    def _checked(self, op: fx.Node, level: Level, steps: Sequence[Step], waiting: Waiting) -> Rescalable | None:
        """The sum, if all on the road to the maximum is as it must be."""
        shift = steps[-1]
        row = road_to_maximum(shift.subtracted, self._is_maximum)
        if row is None:
            return None
        maximum = row[-1]
        if road_to_maximum(shift.subtracted, lambda node: node is maximum) is None:
            return None
        partial = self._partial(maximum)
        members = self.group.level.members
        if not all(node in members for node in (*row, *(step.node for step in steps))):
            return None
        if self._levels(maximum) != self._levels(op) or without_casts(partial.all_input_nodes[0]) is not without_casts(
            shift.source
        ):
            return None
        early = waiting.bits(shift.source)
        along = self.atoms.along(op, steps)
        rows = self._rows(maximum, partial, shift, row, along[-1])
        correction = None if rows is None else self._layout(self.group.refined.results[maximum][0], rows, op)
        others = [node for node in op.all_input_nodes if node is not steps[0].node]
        if correction is None or any(waiting.for_more(node, early) for node in others):
            return None
        factors: dict[fx.Node, Layout] = {}
        known: list[Step] = []
        for step, renamed in zip(steps, along, strict=True):
            late = [] if step is shift else [node for node in step.others if waiting.for_more(node, early)]
            late = [node for node in late if not is_constant(node, 0)]
            how = None
            if late:
                how = self._factor(step, late, renamed, op, shift)
                if how is None:
                    return None
                factors[step.node] = how
            known.append(replace(step, role=Role.FACTOR) if late else step)
        return Rescalable(op, level, maximum, tuple(known), tuple(row), correction, factors)

    def _rows(
        self, maximum: fx.Node, partial: fx.Node, shift: Step, row: Sequence[fx.Node], outward: Renamed
    ) -> Renamed | None:
        """The atoms of the maximum as those of the sum, if what is subtracted from each row is its own maximum."""
        by_value, by_road = rows_by_value(self.atoms, partial, shift), rows_by_road(self.atoms, shift, row)
        results = self.group.refined.results
        if by_value is None or list(map(len, results[partial][0])) != list(map(len, results[maximum][0])):
            return None
        found: dict[int, int] = {}
        for dim, own in zip(results[maximum][0], results[partial][0], strict=True):
            for atom, other in zip(dim, own, strict=True):
                if by_road.get(atom) is None or by_road[atom] != by_value.get(other) or by_road[atom] not in outward:
                    return None
                found[atom] = outward[by_road[atom]]
        return found

    def _factor(self, step: Step, late: Sequence[fx.Node], renamed: Renamed, op: fx.Node, shift: Step) -> Layout | None:
        """How the other operand of a step meets the sum, if the step may just as well follow it."""
        shapes = [node.meta["val"].shape for node in (step.node, step.source)]
        if step.role is not Role.WEIGHTED or len(late) != 1 or shapes[0] != shapes[1]:
            return None
        if not masks_whole_rows(step, shift.source, self._is_maximum):
            return None
        return self._layout(self.atoms.operand_map(step.node, late[0]), renamed, op)

    def _layout(self, index_map: Sequence[tuple[int, ...]], renamed: Renamed, op: fx.Node) -> Layout | None:
        refined = self.group.refined
        (target,) = refined.results[op]
        return layout(tuple(index_map), renamed, target, {a: refined.atoms[a].extent for dim in target for a in dim})

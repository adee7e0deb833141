"""Take what is subtracted from whole rows out of sums that pick one element of each row.

    s = sum(where(hit, x - m, 0))     ->     s = sum(where(hit, x, 0)) - m

As exactly one element is hit, the result is the same to the last bit, and the sum need not wait for ``m``: the loss of
a log softmax is found in the pass that finds its normaliser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import fx

from spyre_fx.analysis.effects import RENAMES
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.transforms.online.alignment import Atoms, Layout, laid_out, layout
from spyre_fx.transforms.online.terms import Role, Step, is_narrowing
from spyre_fx.transforms.online.waiting import Waiting
from spyre_fx.transforms.resolved import Resolved
from spyre_fx.transforms.rewriting import Emitter, Rewritten, replace_op

aten = torch.ops.aten


@dataclass(frozen=True)
class Shifted:
    """A sum of one element per row from which something is subtracted."""

    op: fx.Node
    steps: tuple[Step, ...]
    """From the operand of the sum back to the subtraction."""
    subtracted: Layout
    """How what is subtracted meets the sum."""


def shifted_selections(group: Resolved, flow: Dataflow, selections: Collection[fx.Node]) -> Iterator[Shifted]:
    """Those of the group's ``selections`` whose shift is known after the loop only."""
    for level in group.level.walk():
        chosen = [op for op in level.ops if op in selections and group.reduces(level, op)]
        if not chosen:
            continue
        waiting = Waiting([op for op in level.ops if group.reduces(level, op)])
        atoms = Atoms(group.refined, flow)
        for op in chosen:
            steps = _road(op)
            late = steps and waiting.for_more(steps[-1].subtracted, waiting.bits(steps[-1].source))
            if late and all(step.node in group.level.members for step in steps):
                how = _layout(op, steps, atoms)
                if how is not None:
                    yield Shifted(op, tuple(steps), how)


def _road(op: fx.Node) -> list[Step]:
    """The steps back to a subtraction; empty if there is none."""
    (node,) = op.all_input_nodes
    steps = [Step(node, 1, Role.WEIGHTED)]
    while True:
        node = steps[-1].source
        if node.target is aten.sub.Tensor and not node.kwargs and isinstance(node.args[1], fx.Node):
            shapes = {source.meta["val"].shape for source in (node, node.args[0]) if isinstance(source, fx.Node)}
            return [*steps, Step(node, 0, Role.SHIFTED)] if len(shapes) == 1 else []
        if node.target not in RENAMES:
            return []
        steps.append(Step(node, 0, Role.RENAMED))


def _layout(op: fx.Node, steps: list[Step], atoms: Atoms) -> Layout | None:
    """None where what is subtracted differs along the row."""
    shift = steps[-1]
    (target,) = atoms.refined.results[op]
    index_map = atoms.operand_map(shift.node, shift.subtracted)
    extents = {atom: atoms.refined.atoms[atom].extent for dim in target for atom in dim}
    return layout(index_map, atoms.along(op, steps)[-1], target, extents)


def without_shift(found: Shifted, flow: Dataflow) -> tuple[Rewritten, dict[fx.Node, fx.Node]]:
    """The sum of the elements themselves, and for each op on the road what stands for it now."""
    emit = Emitter(found.op)
    *steps, shift = found.steps
    value = shift.source
    copied = {shift.node: value}
    for step in reversed(steps):
        if not is_narrowing(step.node):
            args = list(step.node.args)
            args[step.argument] = value
            value = emit(step.node.target, *args, **step.node.kwargs)
        copied[step.node] = value
    total = emit.selection(emit(found.op.target, value, *found.op.args[1:]))
    result = emit(aten.sub.Tensor, total, laid_out(emit, shift.subtracted, found.subtracted))
    return replace_op(found.op, emit, emit.rounded(result), flow), copied

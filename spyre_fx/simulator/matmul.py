"""Matrix products over labelled dims: batch, rows, columns and the summed ones follow from which operand has which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spyre_fx.codegen.device_ops import DEVICE_OPS
from spyre_fx.errors.device import WRONG_OPERANDS
from spyre_fx.simulator.descriptor import Descriptor


@dataclass(frozen=True)
class MatmulDims:
    """Positions of the dims by role, each in the order of the op."""

    batch: tuple[int, ...]
    """In both operands and the result."""
    rows: tuple[int, ...]
    """In the left operand and the result."""
    columns: tuple[int, ...]
    """In the right operand and the result."""
    summed: tuple[int, ...]
    """Not in the result; one that cores divide stands first, so that its slices are contiguous."""


def matmul_dims(op: Descriptor, where: str) -> MatmulDims:
    """Roles of the dims of a matrix product."""
    if len(op.inputs) not in DEVICE_OPS[op.name].input_counts:
        found, wanted = (
            f"{op.name} of {len(op.inputs)} inputs",
            "two factors, and perhaps what their product is added to",
        )
        raise WRONG_OPERANDS(where=where, found=found, wanted=wanted)
    left, right, *total = (operand.carried for operand in op.inputs)
    kept = op.output.carried
    if any(
        has != wanted and dim.extent > 1 for one in total for has, wanted, dim in zip(one, kept, op.dims, strict=True)
    ):
        raise WRONG_OPERANDS(where=where, found="an accumulator over other dims", wanted="the dims of the output")
    roles: dict[tuple[bool, bool, bool], list[int]] = {}
    for position, role in enumerate(zip(left, right, kept, strict=True)):
        roles.setdefault(role, []).append(position)
    alone = ((True, False, False), (False, True, False), (False, False, True))
    if any(op.dims[position].extent > 1 for role in alone for position in roles.get(role, [])):
        wanted = "summed dims in both operands, result dims in at least one"
        raise WRONG_OPERANDS(where=where, found="a dim of a matrix product without a role", wanted=wanted)
    summed = roles.get((True, True, False), [])
    return MatmulDims(
        batch=tuple(roles.get((True, True, True), [])),
        rows=tuple(roles.get((True, False, True), [])),
        columns=tuple(roles.get((False, True, True), [])),
        summed=tuple(sorted(summed, key=lambda position: -op.dims[position].split)),
    )


def matmul(op: Descriptor, inputs: Sequence[Tensor], where: str) -> Tensor:
    """The product in float32: one sum for each slice of the summed dims, added in the order of the slices, then to the
    accumulator.
    """
    dims = matmul_dims(op, where)
    left, right, *total = (operand.to(torch.float32) for operand in inputs)
    batch, rows, columns = (
        tuple(op.dims[position].extent for position in role) for role in (dims.batch, dims.rows, dims.columns)
    )
    a = _arranged(left, (dims.batch, dims.rows, dims.summed)).reshape(math.prod(batch), math.prod(rows), -1)
    b = _arranged(right, (dims.batch, dims.summed, dims.columns)).reshape(math.prod(batch), -1, math.prod(columns))
    parts = math.prod(op.dims[position].split for position in dims.summed)
    result: Tensor | None = None
    for part_a, part_b in zip(a.chunk(parts, 2), b.chunk(parts, 1), strict=True):
        partial = torch.bmm(part_a, part_b)
        result = partial if result is None else result + partial
    assert result is not None
    order = (*dims.batch, *dims.rows, *dims.columns)
    rest = tuple(position for position in range(len(op.dims)) if position not in order)
    whole = result.reshape(*batch, *rows, *columns, *(1 for _ in rest))
    product = whole.permute([(*order, *rest).index(position) for position in range(len(op.dims))])
    return total[0] + product if total else product


def _arranged(x: Tensor, roles: Sequence[tuple[int, ...]]) -> Tensor:
    """``x`` with its dims in the order of ``roles``; all others, of size 1, come last."""
    order = [position for role in roles for position in role]
    rest = [position for position in range(x.dim()) if position not in order]
    return x.permute([*order, *rest])

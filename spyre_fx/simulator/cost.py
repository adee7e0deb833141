"""What one dispatch of an op moves, from its descriptor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_fx.blocking import Product, Reads, best_reads
from spyre_fx.simulator.counters import Cost
from spyre_fx.simulator.descriptor import Descriptor
from spyre_fx.simulator.matmul import matmul_dims
from spyre_fx.simulator.tensors import Operand
from spyre_fx.target import Target


def dispatch_cost(op: Descriptor, addresses: Sequence[tuple[str, ...]], free_lx: int, target: Target) -> Cost:
    """Bytes per dispatch.

    Args:
        addresses: per tensor of the op, what its addresses are called; tensors that agree in it are one.
        free_lx: bytes of one core's scratchpad that hold nothing else during the op.
    """
    stick = target.stick_bytes
    inputs, output = op.inputs, op.output
    reads = _reads(op, free_lx)
    hbm_inputs = [
        (_read_bytes(op, operand, stick), times)
        for operand, times in zip(inputs, reads, strict=True)
        if operand.memory == "hbm"
    ]
    once = sum(size for size, _ in hbm_inputs)
    read = sum(times * size for size, times in hbm_inputs)
    # Partial results of one output are added on the way and written once; copies are written by each core.
    copied = op.pointwise and output.memory == "lx"
    written = _core_bytes(output, op.cores, stick) if copied else math.prod(output.grid) * stick
    distinct = {
        (names, operand.grid, operand.data_format): math.prod(operand.grid) * stick
        for operand, names in zip(op.tensors, addresses, strict=True)
        if operand.memory == "hbm"
    }
    lx = [operand for operand in op.tensors if operand.memory == "lx"]
    return Cost(
        hbm_read=read,
        hbm_written=written if output.memory == "hbm" else 0,
        unique_hbm=sum(distinct.values()),
        lx_read=sum(_read_bytes(op, operand, stick) for operand in inputs if operand.memory == "lx"),
        lx_written=written if output.memory == "lx" else 0,
        lx_high_water=max((int(operand.starts.max()) + operand.span * stick for operand in lx), default=0),
        cores=op.cores,
        reread=read - once,
    )


def _read_bytes(op: Descriptor, operand: Operand, stick: int) -> int:
    """Bytes of one pass of all cores over an input; what a product is added to is read where its parts are added."""
    is_total = not op.pointwise and operand in op.inputs[2:]
    return math.prod(operand.grid) * stick if is_total else _core_bytes(operand, op.cores, stick)


def _core_bytes(operand: Operand, cores: int, stick: int) -> int:
    """Bytes of the slices of all cores."""
    return cores * operand.core_sticks * stick


def _reads(op: Descriptor, free_lx: int) -> tuple[int, ...]:
    """How often each input is read."""
    if op.name != "batchmatmul":
        return (1,) * len(op.inputs)
    dims = matmul_dims(op, op.file)

    def extent(positions: Sequence[int]) -> int:
        return math.prod(op.dims[position].core_extent for position in positions)

    def word(operand: Operand) -> int:
        return operand.word if operand.memory == "hbm" else 0

    left, right, *total = op.inputs
    product = Product(
        rows=extent(dims.rows),
        columns=extent(dims.columns),
        summed=extent(dims.summed),
        left_word=word(left),
        right_word=word(right),
        result_word=word(op.output),
    )
    reads: Reads = best_reads(product, free_lx)
    return reads.left, reads.right, *(1 for _ in total)

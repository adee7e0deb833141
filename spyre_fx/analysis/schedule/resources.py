"""What a work item reads, writes and computes, as far as the shapes tell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from spyre_fx.analysis.schedule.clusters import Cluster
from spyre_fx.analysis.schedule.counting import saturating_add, saturating_mul
from spyre_fx.analysis.schedule.element_ops import Costs, reduced_elements, result_elements
from spyre_fx.analysis.schedule.families import Family
from spyre_fx.analysis.schedule.flow import Flow
from spyre_fx.analysis.schedule.operand_effects import operand_effects
from spyre_fx.analysis.schedule.sources import Sources


@dataclass(frozen=True)
class ResourceEstimate:
    """Counts of one work item. All stop at 2**64 - 1."""

    element_count: int
    """Elements that the item runs over: those of its output, or of its input for a reduction."""
    element_size: int
    """Bytes of one output element."""
    op_count: int
    estimated_element_ops: int
    """Operations on single elements; a product counts a multiply and an add per step."""
    external_input_value_count: int
    """Distinct values from outside that are operands."""
    external_operand_count: int
    """Operands from outside, a value that is taken twice counted twice."""
    chain_operand_count: int
    """Operands that are made inside."""
    static_read_bytes: int
    """Bytes of the external operands that are read, each as often as it is an operand."""
    static_write_bytes: int
    static_total_bytes: int
    static_bytes_complete: bool
    """Whether the bytes of every operand and result are known and fit 64 bits."""

    @property
    def element_ops_per_kib(self) -> int:
        """Element ops for each 1024 bytes moved, rounded down; 0 where nothing is moved."""
        if not self.static_total_bytes:
            return 0
        return saturating_mul(self.estimated_element_ops, 1024) // self.static_total_bytes


def estimate(flow: Flow, sources: Sources, cluster: Cluster, costs: Costs) -> ResourceEstimate:
    """Add up the operands, results and element ops of ``cluster``."""
    info = flow.result_info(cluster.root)
    assert info is not None
    inside = set(cluster.ops)
    external: set[fx.Node] = set()
    external_operands = chain_operands = read = 0
    complete = True
    for op in cluster.ops:
        costs.meter.visit(1 + len(flow.operands[op]))
        descriptor = costs.descriptor(flow, op)
        effects = operand_effects(op, descriptor.effects if descriptor else None)
        for operand, effect in zip(flow.operands[op], effects, strict=True):
            value = sources.of(cluster, operand)
            if value is None:
                continue
            if flow.producer(value) in inside:
                chain_operands += 1
                continue
            external_operands += 1
            external.add(value)
            if effect.reads:
                size = _bytes(flow, value)
                complete &= size is not None
                read = saturating_add(read, size or 0)
    sizes = [_bytes(flow, result) for result in flow.results[cluster.root]]
    written = saturating_add(*(size or 0 for size in sizes))
    return ResourceEstimate(
        element_count=_iterated(flow, cluster),
        element_size=info.dtype.itemsize,
        op_count=len(cluster.ops),
        estimated_element_ops=saturating_add(*(costs.element_ops(flow, op) for op in cluster.ops)),
        external_input_value_count=len(external),
        external_operand_count=external_operands,
        chain_operand_count=chain_operands,
        static_read_bytes=read,
        static_write_bytes=written,
        static_total_bytes=saturating_add(read, written),
        static_bytes_complete=complete and None not in sizes,
    )


def _iterated(flow: Flow, cluster: Cluster) -> int:
    reduces = flow.family[cluster.root] is Family.REDUCTION
    return reduced_elements(flow, cluster.root) if reduces else result_elements(flow, cluster.root)


def _bytes(flow: Flow, value: fx.Node) -> int | None:
    """The bytes of a value, or None where its sizes are not known, pass 64 bits, or it is a whole tuple of tensors."""
    info = flow.info.get(value)
    return info.byte_size if info is not None and isinstance(value.meta["val"], torch.Tensor) else None

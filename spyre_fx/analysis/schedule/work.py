"""What a plan consists of: work items, in an order in which they can run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import fx

from spyre_fx.analysis.schedule.accounting import WorkBound
from spyre_fx.analysis.schedule.kinds import WorkKind
from spyre_fx.analysis.schedule.resources import ResourceEstimate
from spyre_fx.shows import counted
from spyre_fx.tables import Table, Tables


@dataclass(frozen=True)
class WorkItem:
    """One piece of work: an op, or several that run as one."""

    id: int
    """Position in the plan."""
    kind: WorkKind
    root: fx.Node
    """The op whose output leaves the item."""
    ops: tuple[fx.Node, ...]
    """In graph order; the root is the last."""
    elided: tuple[fx.Node, ...]
    """Views between the ops, or before them, that cost nothing inside the item."""
    output_value: fx.Node
    """What holds the output: the root, or the ``getitem`` that takes it out of a tuple."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    resources: ResourceEstimate

    @property
    def op_count(self) -> int:
        return len(self.ops)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_count(self) -> int:
        """Elements of the output."""
        return math.prod(self.shape)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with nodes by name."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "root": self.root.name,
            "ops": [op.name for op in self.ops],
            "elided": [view.name for view in self.elided],
            "output_value": self.output_value.name,
            "dtype": str(self.dtype).removeprefix("torch."),
            "shape": list(self.shape),
            "element_count": self.element_count,
            "resources": {**asdict(self.resources), "element_ops_per_kib": self.resources.element_ops_per_kib},
        }


@dataclass(frozen=True, repr=False, eq=False)
class SchedulePlan:
    """The work items of a graph in a stable order: each after those it reads from, ties as in the graph.

    ``len``, iteration and indexing go over the items; ``print`` shows them as a table.
    """

    items: tuple[WorkItem, ...]
    elided: tuple[fx.Node, ...]
    """Ops that need no work: views inside items, broadcasts and constants that every reader takes at their source."""
    unplanned: tuple[fx.Node, ...]
    """Ops without an item, since the sizes of their results are only known at run time."""
    bound: WorkBound
    """What the plan was allowed to cost."""
    visits: int
    """What it did cost."""
    _by_root: Mapping[fx.Node, WorkItem] = field(init=False)
    _by_op: Mapping[fx.Node, WorkItem] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_root", {item.root: item for item in self.items})
        object.__setattr__(self, "_by_op", {op: item for item in self.items for op in (*item.ops, *item.elided)})

    def item_for(self, root: fx.Node) -> WorkItem | None:
        """The item whose output ``root`` computes, or None."""
        return self._by_root.get(root)

    def item_with(self, op: fx.Node) -> WorkItem | None:
        """The item that ``op`` is part of, as its root or inside, or None."""
        return self._by_op.get(op)

    @property
    def single_work_count(self) -> int:
        """Items that stand for one op: elementwise, shape, product, reduction, loop and scan."""
        return len(self.items) - self.fusion_work_count - self.kernel_call_work_count

    @property
    def fusion_work_count(self) -> int:
        """Elementwise fusions, row pipelines and attentions."""
        return sum(item.kind.is_fusion for item in self.items)

    @property
    def kernel_call_work_count(self) -> int:
        return sum(item.kind is WorkKind.KERNEL_CALL for item in self.items)

    @property
    def scheduled_op_count(self) -> int:
        """Ops of all items."""
        return sum(item.op_count for item in self.items)

    @property
    def total_static_elements(self) -> int:
        """Output elements of all items."""
        return sum(item.element_count for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with nodes by name."""
        return {
            "items": [item.to_dict() for item in self.items],
            "elided": [node.name for node in self.elided],
            "unplanned": [node.name for node in self.unplanned],
            "single_work_count": self.single_work_count,
            "fusion_work_count": self.fusion_work_count,
            "kernel_call_work_count": self.kernel_call_work_count,
            "scheduled_op_count": self.scheduled_op_count,
            "total_static_elements": self.total_static_elements,
            "bound": asdict(self.bound),
            "visits": self.visits,
        }

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(self.items)

    def __getitem__(self, index: int) -> WorkItem:
        return self.items[index]

    def __repr__(self) -> str:
        return f"SchedulePlan({counted(len(self.items), 'item')}, {counted(self.scheduled_op_count, 'op')})"

    def __str__(self) -> str:
        return self._tables()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self._tables()._repr_mimebundle_()

    def _tables(self) -> Tables:
        headers = ["item", "kind", "root", "ops", "output", "element ops", "read", "write", "ops/KiB"]
        table = Table([_row(item) for item in self.items], headers, _ALIGN)
        notes = [
            f"{counted(len(self.items), 'item')}: {self.single_work_count} single, {self.fusion_work_count} fused, "
            f"{self.kernel_call_work_count} kernel calls; {self.scheduled_op_count} ops, {len(self.elided)} elided"
        ]
        if self.unplanned:
            notes.append(f"sizes not known before run time: {', '.join(node.name for node in self.unplanned)}")
        return Tables([*([table] if self.items else []), "\n".join(notes)])


_ALIGN = ("right", "left", "left", "right", "left", "right", "right", "right", "right")


def _row(item: WorkItem) -> list[str]:
    resources = item.resources
    mark = "" if resources.static_bytes_complete else "+"
    return [
        str(item.id),
        item.kind.value,
        item.root.name,
        str(item.op_count),
        f"{list(item.shape)} {str(item.dtype).removeprefix('torch.')}",
        f"{resources.estimated_element_ops:,}",
        f"{resources.static_read_bytes:,}{mark}",
        f"{resources.static_write_bytes:,}{mark}",
        f"{resources.element_ops_per_kib:,}",
    ]

"""The kinds of work items."""

from __future__ import annotations

import enum


class WorkKind(enum.Enum):
    """What a work item is run as."""

    ELEMENTWISE_SINGLE = "elementwise_single"
    ELEMENTWISE_FUSION = "elementwise_fusion"
    SHAPE = "shape"
    DOT_GENERAL = "dot_general"
    REDUCTION = "reduction"
    KERNEL_CALL = "kernel_call"
    ROW_PIPELINE = "row_pipeline"
    ITERATE = "iterate"
    FLASH_ATTENTION = "flash_attention"
    SCAN = "scan"

    @property
    def absorbs_broadcasts(self) -> bool:
        """Whether such an item reads the source of a broadcast operand in place of the repeated value."""
        return self not in (WorkKind.SHAPE, WorkKind.KERNEL_CALL, WorkKind.SCAN)

    @property
    def is_fusion(self) -> bool:
        """Whether such an item counts as several ops in one."""
        return self in (WorkKind.ELEMENTWISE_FUSION, WorkKind.ROW_PIPELINE, WorkKind.FLASH_ATTENTION)

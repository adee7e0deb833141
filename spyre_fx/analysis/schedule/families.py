"""Which family of work an op belongs to.

Most of it follows from the op's iteration space, its tags and its schema; the tables below hold the few names that none
of these tells apart.
"""

from __future__ import annotations

import enum
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.iteration import IterationSpace, Kind
from spyre_fx.analysis.loops import is_loop
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for


class Family(enum.Enum):
    """What an op does, as far as planning is concerned."""

    ELEMENTWISE = enum.auto()
    SHAPE = enum.auto()
    """Moves elements and computes none: views, slices, joins, look-ups, counting."""
    BROADCAST = enum.auto()
    """Repeats a value along dims; most consumers read the source instead."""
    FILL = enum.auto()
    """One constant everywhere; most consumers take it as an immediate."""
    DOT = enum.auto()
    """Sums of products: matrix products and convolutions."""
    REDUCTION = enum.auto()
    ROW = enum.auto()
    """Reduces rows and gives rows back: softmax, layer norm, in one op."""
    SCAN = enum.auto()
    ATTENTION = enum.auto()
    LOOP = enum.auto()
    KERNEL = enum.auto()
    """Whatever else: custom ops, random, in-place and sorting ops, called as they are."""


_BROADCASTS = {"expand", "expand_copy", "broadcast_to"}
_FILLS = {
    "empty",
    "empty_strided",
    "full",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "scalar_tensor",
    "zeros",
}
# Views are known by their schema and their copying forms by a tag; these copy elements and say so nowhere.
_SHAPES = {
    "arange",
    "cat",
    "concat",
    "concatenate",
    "constant_pad_nd",
    "embedding",
    "eye",
    "flip",
    "gather",
    "index",
    "index_copy",
    "index_put",
    "index_select",
    "iota",
    "linspace",
    "logspace",
    "masked_scatter",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "repeat",
    "repeat_interleave",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "reshape",
    "roll",
    "rot90",
    "scatter",
    "split_with_sizes_copy",
    "stack",
    "take",
    "take_along_dim",
    "tile",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "unfold_copy",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "_index_put_impl",
    "_reshape_copy",
    "_unsafe_index",
    "_unsafe_index_put",
    "_unsafe_masked_index",
    "_unsafe_view",
}
_SCANS = {"cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"}
_HIGHER_ORDER = {
    "associative_scan": Family.SCAN,
    "map_impl": Family.LOOP,
    "scan": Family.LOOP,
    "while_loop": Family.LOOP,
}
# The axes of these tell their family too, unless the contracted or reduced dim has size 1 and so no axis.
_DOTS = {
    "_addmm_activation",
    "_convolution",
    "_int_mm",
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "convolution",
    "convolution_backward",
    "conv1d",
    "conv2d",
    "conv3d",
    "dot",
    "einsum",
    "linear",
    "matmul",
    "mm",
    "mv",
    "vdot",
}
_ROWS = {
    "_fused_rms_norm",
    "_log_softmax",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_safe_softmax",
    "_softmax",
    "group_norm",
    "layer_norm",
    "log_softmax",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
    "rms_norm",
    "softmax",
}
_NAMESPACES = ("aten", "prims")
_ATTENTION = ("_scaled_dot_product", "scaled_dot_product")


def family_of(gm: fx.GraphModule, node: fx.Node, space: IterationSpace | None) -> Family:
    """The family of a node's op; ``space`` is its iteration space where it has one."""
    match node.target:
        case str() if node.op == "call_module":
            return Family.LOOP if is_loop(gm.get_submodule(node.target)) else Family.KERNEL
        case HigherOrderOperator() as op:
            return _HIGHER_ORDER.get(op_name(op), Family.KERNEL)
        case OpOverload() as op if op.namespace in _NAMESPACES:
            return _by_name(node, op) or _by_space(space) or _by_tag(op)
        case OpOverload() if node.target.namespace == "spyre_fx" and op_name(node.target) == "counted_loop":
            return Family.LOOP
        case _:
            return Family.KERNEL


def needs_space(node: fx.Node) -> bool:
    """Whether the family, or what is planned with it, depends on the op's iteration space."""
    op = node.target
    return isinstance(op, OpOverload) and op.namespace in _NAMESPACES and _by_name(node, op) in _BY_SPACE


def op_name(target: Any) -> str:
    """The name of an op without namespace and overload: ``exp`` for ``aten.exp.default``."""
    match target:
        case OpOverload():
            return str(target._schema.name.partition("::")[2])
        case _:
            return str(getattr(target, "__name__", target))


_BY_SPACE = (None, Family.DOT, Family.ROW)


def _by_name(node: fx.Node, op: OpOverload) -> Family | None:
    name = op_name(op)
    if name.startswith(_ATTENTION):  # tagged random for its dropout, which inference leaves out
        return Family.ATTENTION
    if op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags:
        return Family.KERNEL
    for names, family in (
        (_BROADCASTS, Family.BROADCAST),
        (_FILLS, Family.FILL),
        (_SHAPES, Family.SHAPE),
        (_SCANS, Family.SCAN),
        (_DOTS, Family.DOT),
        (_ROWS, Family.ROW),
    ):
        if name in names:
            return family
    if is_view(node) or torch.Tag.view_copy in op.tags:
        return Family.SHAPE
    return Family.ELEMENTWISE if rule_for(op) is pointwise else None


def _by_space(space: IterationSpace | None) -> Family | None:
    """A product has an axis that sums products, a row op returns the axes that it reduces, a reduction does not."""
    if space is None:
        return None
    reduced = {axis for axis, it in enumerate(space.axes) if it.kind is Kind.REDUCTION}
    if any(space.axes[axis].combine == "matmul" for axis in reduced):
        return Family.DOT
    if reduced & {axis for dim in space.results[0] for axis in dim}:
        return Family.ROW
    return Family.REDUCTION if reduced else None


def _by_tag(op: OpOverload) -> Family:
    return Family.REDUCTION if torch.Tag.reduction in op.tags else Family.KERNEL

"""The iteration space of a node: looks up the op's rule and applies it to the shapes in ``meta["val"]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from spyre_fx.analysis import rules as _all_rules  # noqa: F401  (fills the table)
from spyre_fx.analysis.iteration import IterationSpace, OpCall, check_space
from spyre_fx.analysis.rules.table import body_op, resize_for, rule_for
from spyre_fx.errors.analysis import OPAQUE
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.schedule import NOT_A_NODE


@checked_call
def iteration_space(node: fx.Node) -> IterationSpace:
    """The axes of one op, and how each operand and result is indexed by them.

    args:
        node: a ``call_function`` node of an ATen op, with shapes in ``meta["val"]``.

    returns: the ``IterationSpace``. Extents are in elements; operands come in the order of the tensor-valued leaves of
        ``(node.args, node.kwargs)``.

    errors: ``TilingError`` where the op is opaque; ``CaptureError`` for anything but a node.

    >>> import spyre_fx, torch
    >>> gm = spyre_fx.capture(torch.mm, torch.ones(4, 6), torch.ones(6, 8))
    >>> space = spyre_fx.iteration_space(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)[0])
    >>> [(axis.extent, axis.kind.value) for axis in space.axes]
    [(4, 'parallel'), (8, 'parallel'), (6, 'reduction')]
    >>> space.operands, space.results
    ((((0,), (2,)), ((2,), (1,))), (((0,), (1,)),))
    """
    if not isinstance(node, fx.Node):
        raise NOT_A_NODE(found=type(node).__name__)
    space = space_of(node)
    if space is None:
        raise OPAQUE(node=node, target=node.target)
    return space


def space_of(node: fx.Node) -> IterationSpace | None:
    """The iteration space of a node, or None where it is opaque.

    ``getitem`` has none of its own: it joins the op whose result it takes.
    """
    if node.op != "call_function" or rule_for(node.target) is None:
        return None
    if any("val" not in known.meta for known in (node, *node.all_input_nodes)):
        return None
    return space_of_call(call_of(node))


def space_of_call(call: OpCall) -> IterationSpace | None:
    """As ``space_of``, for a call that stands in no graph."""
    rule = rule_for(call.target)
    if rule is None or not _is_plain(call):
        return None
    space = rule(call)
    return None if space is None or check_space(call, space) is not None else space


def call_of(node: fx.Node) -> OpCall:
    """The call that a node makes, with the ``meta["val"]`` of its operands in place of nodes."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta.get("val"))
    return OpCall(node.target, tuple(args), dict(kwargs), node.meta.get("val"))


def operands_of(node: fx.Node) -> list[fx.Node]:
    """The tensors that an op reads, one for each index map of its iteration space."""
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, fx.Node) and isinstance(leaf.meta.get("val"), torch.Tensor)]


def body_call(call: OpCall, result_shapes: Sequence[Sequence[int]]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The op and the arguments that compute tiles of ``result_shapes`` from the (tile-shaped) operands of ``call``.

    Most ops just run on tiles; those with size arguments get them rewritten, and ``view`` becomes ``reshape``.
    """
    resize = resize_for(call.target)
    if resize is None:
        return call.target, call.args, call.kwargs
    args, kwargs = resize(call, result_shapes)
    return body_op(call.target), args, kwargs


def draws_random(call: OpCall) -> bool:
    """Whether a call reads the random number generator; fused attention does not, when its dropout is off."""
    seeded = torch.Tag.nondeterministic_seeded in call.target.tags
    return seeded and call.argument("dropout_p") != 0


def _is_plain(call: OpCall) -> bool:
    """No mutation, no random numbers, and dense tensors only."""
    target = call.target
    if not isinstance(target, OpOverload) or target._schema.is_mutable:
        return False
    if draws_random(call):
        return False
    return all(tensor.layout is torch.strided and not tensor.is_nested for tensor in (*call.operands, *call.results))

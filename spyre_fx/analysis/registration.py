"""Iteration spaces for the user's own ops."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from spyre_fx.analysis.iteration import IterationSpace, Kind, OpCall, check_space
from spyre_fx.analysis.rules import table
from spyre_fx.analysis.rules.table import Resize, Rule
from spyre_fx.errors.analysis import (
    NOT_A_FUNCTION,
    NOT_A_SPACE,
    NOT_AN_OP,
    NOT_PURE,
    REGISTERED_TWICE,
    SEVERAL_OVERLOADS,
    WRONG_SPACE,
)
from spyre_fx.errors.calls import checked_call


@checked_call
def register_iteration_space(op: Any, rule: Rule, resize: Resize | None = None) -> None:
    """Tell the library how a custom op may be tiled. Holds for the rest of the process, as ``torch.library`` does.

    args:
        op: what ``torch.library.custom_op`` gave, an ``OpOverload``, or a packet of one overload.
        rule: gives the ``IterationSpace`` of an ``OpCall``, or None for forms that cannot be tiled. A parallel axis
            promises that the op, run on the tiles of its operands along that axis, gives the tiles of its results. An
            axis without that promise is ``sequential``.
        resize: for ops with arguments that depend on sizes: gives the arguments for tiles, from the call and the
            shapes of the results' tiles.

    errors: ``OptionError`` where ``op`` is not an op, writes to its operands, draws random numbers, or has a rule
        already; and later, when the rule is used, where its maps do not fit the tensors.

    >>> import torch, spyre_fx
    >>> from spyre_fx.analysis.iteration import SpaceBuilder
    >>> @torch.library.custom_op("docs::row_norm", mutates_args=())
    ... def row_norm(x: torch.Tensor) -> torch.Tensor:
    ...     return x / x.norm(dim=1, keepdim=True)
    >>> def rows_are_free(call):
    ...     b = SpaceBuilder()
    ...     rows, columns = call.operands[0].shape
    ...     index_map = [b.axis(rows), b.sequential(columns)]
    ...     return b.build(operands=[index_map], results=[index_map])
    >>> spyre_fx.register_iteration_space(row_norm, rows_are_free)
    """
    target = _overload(op)
    _check_pure(target)
    for role, function in (("rule", rule), ("resize", resize or rule)):
        if not callable(function):
            raise NOT_A_FUNCTION(role=role, value=function, op=target)
    if table.rule_for(target) is not None:
        raise REGISTERED_TWICE(op=target)
    table.rule(target)(_checked(target, rule))
    if resize is not None:
        table.resize(target)(resize)


def _overload(op: Any) -> OpOverload:
    op = getattr(op, "_opoverload", op)  # of a torch.library.custom_op
    if isinstance(op, OpOverloadPacket):
        overloads = op.overloads()  # type: ignore[no-untyped-call]
        if len(overloads) != 1:
            path = str(op).replace("::", ".")
            raise SEVERAL_OVERLOADS(op=op, path=path, overloads=", ".join(overloads), first=overloads[0])
        op = getattr(op, overloads[0])
    if not isinstance(op, OpOverload):
        raise NOT_AN_OP(op=op)
    return op


def _check_pure(target: OpOverload) -> None:
    if target._schema.is_mutable:
        raise NOT_PURE(op=target, effect="writes to its operands")
    if torch.Tag.nondeterministic_seeded in target.tags:
        raise NOT_PURE(op=target, effect="draws random numbers")


def _checked(target: OpOverload, rule: Rule) -> Rule:
    """The user's rule, with its answer checked: a wrong map must not become a wrong value."""

    @functools.wraps(rule)
    def checked(call: OpCall) -> IterationSpace | None:
        space = rule(call)
        if space is None:
            return None
        if not isinstance(space, IterationSpace):
            raise NOT_A_SPACE(op=target, value=space)
        problem = check_space(call, space) or _broken_promise(space)
        if problem is not None:
            raise WRONG_SPACE(op=target, problem=problem, call=_describe(call))
        return space

    return checked


def _broken_promise(space: IterationSpace) -> str | None:
    for role, maps in (("operand", space.operands), ("result", space.results)):
        for position, index_map in enumerate(maps):
            used = [axis for dim in index_map for axis in dim]
            if len(set(used)) != len(used):
                return f"an axis that appears twice in {role} {position}"
            if any(space.axes[axis].extent == 1 for axis in used if isinstance(space.axes[axis].extent, int)):
                return f"an axis of extent 1 in {role} {position}; a dim of size 1 has no axis"
    order = [a for tensor in (*space.results[:1], *space.operands, *space.results[1:]) for dim in tensor for a in dim]
    if list(dict.fromkeys(order)) != list(range(len(space.axes))):
        return "axes out of order: the first result's come first, then those of the operands as they name them"
    if any(axis.kind is Kind.PARALLEL and number not in _first(space) for number, axis in enumerate(space.axes)):
        return "a parallel axis that the first result lacks; such an axis is reduced"
    return None


def _first(space: IterationSpace) -> set[int]:
    return {axis for dim in space.results[0] for axis in dim} if space.results else set()


def _describe(call: OpCall) -> str:
    def shapes(tensors: tuple[torch.Tensor, ...]) -> str:
        return ", ".join(str(list(tensor.shape)) for tensor in tensors)

    return f"{call.target}({shapes(call.operands)}) -> {shapes(call.results)}"

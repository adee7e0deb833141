"""What an op does with each operand: read it, write it, both, or look at no more than its shape."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from spyre_fx.analysis.schedule.values import tensor_reads


class Effect(enum.Enum):
    """What happens to an operand while the op runs."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"
    NONE = "none"

    @property
    def reads(self) -> bool:
        return self in (Effect.READ, Effect.READ_WRITE)


def kernel_op(node: fx.Node) -> OpOverload | None:
    """The op that a node calls, also where functionalization wrapped it into ``auto_functionalized(op, ...)``."""
    match node.target:
        case OpOverload() as op:
            return op
        case HigherOrderOperator() as wrapper if wrapper.__name__.startswith("auto_functionalized"):
            return next((argument for argument in node.args if isinstance(argument, OpOverload)), None)
        case _:
            return None


def operand_effects(node: fx.Node, overrides: Mapping[str, str] | None = None) -> tuple[Effect, ...]:
    """The effect on each tensor operand, in the order of the arguments.

    By the op's schema ``Tensor(a!)`` is written and ``Tensor`` read; ``overrides`` by argument name come first, for
    torch's schemas cannot say that an operand is both.
    """
    by_name = _schema_effects(kernel_op(node))
    by_name |= {name: Effect(effect) for name, effect in (overrides or {}).items()}
    return tuple(by_name.get(name, Effect.READ) for name, value in _named_arguments(node) for _ in tensor_reads(value))


def written_operands(node: fx.Node) -> tuple[fx.Node, ...]:
    """Those of a node's tensor operands that its op writes in place."""
    op = kernel_op(node)
    if op is None or not op._schema.is_mutable:
        return ()
    operands = tensor_reads((node.args, node.kwargs))
    return tuple(
        operand for operand, effect in zip(operands, operand_effects(node), strict=True) if effect is Effect.WRITE
    )


def _schema_effects(op: OpOverload | None) -> dict[str, Effect]:
    if op is None:
        return {}
    if _asks_shape_only(op):
        return {argument.name: Effect.NONE for argument in op._schema.arguments}
    written = (a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return dict.fromkeys(written, Effect.WRITE)


def _asks_shape_only(op: OpOverload) -> bool:
    """``zeros_like``, ``rand_like``, ``new_full``, ...: the operand lends its shape or its dtype and device."""
    name: str = op._schema.name.partition("::")[2]
    return op.namespace == "aten" and (name.endswith("_like") or name.startswith("new_"))


def _named_arguments(node: fx.Node) -> Iterator[tuple[str, Any]]:
    """The arguments of a call with the names that the schema gives them; the empty name where there is no schema."""
    schema = node.target._schema.arguments if isinstance(node.target, OpOverload) else ()
    for position, value in enumerate(node.args):
        yield (schema[position].name if position < len(schema) else ""), value
    yield from node.kwargs.items()

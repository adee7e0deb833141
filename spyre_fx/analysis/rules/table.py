"""The table of rules and the decorators that fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spyre_fx.analysis.iteration import IterationSpace, OpCall

Rule = Callable[[OpCall], "IterationSpace | None"]
"""Gives the iteration space of a call, or None where this form of the op is opaque."""

Resize = Callable[[OpCall, Sequence[Sequence[int]]], "tuple[tuple[Any, ...], dict[str, Any]]"]
"""Gives the arguments with sizes rewritten, from the call and the wanted shape of each result.

The call's tensors are the tile-shaped ones, its other arguments those of the untiled op.
"""

_RULES: dict[Any, Rule] = {}
_RESIZES: dict[Any, Resize] = {}
_INTO: dict[Any, Any] = {}


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Register the iteration-space rule of ``targets`` (``OpOverload``s); a second one for an op is an error."""

    def register(function: Rule) -> Rule:
        for target in targets:
            if target in _RULES:
                raise ValueError(f"{target} has a rule already: {_RULES[target].__qualname__}")
            _RULES[target] = function
        return function

    return register


def resize(*targets: Any, into: Any = None) -> Callable[[Resize], Resize]:
    """Register how the size arguments of ``targets`` follow from the shapes of the results.

    ``into`` is the op that takes these arguments, where it is not the same op: ``view`` becomes ``reshape`` in a body.
    """

    def register(function: Resize) -> Resize:
        for target in targets:
            if target in _RESIZES:
                raise ValueError(f"{target} has a resize rule already: {_RESIZES[target].__qualname__}")
            _RESIZES[target] = function
            _INTO[target] = target if into is None else into
        return function

    return register


def rule_for(target: Any) -> Rule | None:
    """The rule of an op, or None for an opaque one."""
    return _RULES.get(target)


def resize_for(target: Any) -> Resize | None:
    """The resize rule of an op, or None where it has no size arguments."""
    return _RESIZES.get(target)


def body_op(target: Any) -> Any:
    """The op that takes the arguments that ``resize_for(target)`` makes: ``target`` itself nearly always."""
    return _INTO.get(target, target)


def known_ops() -> tuple[Any, ...]:
    """All ops with a rule, by name."""
    return tuple(sorted(_RULES, key=str))

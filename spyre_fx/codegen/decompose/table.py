"""The table from ATen ops to device ops, and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
"""Called with the builder and the node's arguments, nodes replaced by values. Gives the value of the node (a tuple for
several results), or None where the device lacks this form of the op."""

_RULES: dict[Any, Rule] = {}


def lowers(*targets: Any) -> Callable[[Rule], Rule]:
    """Register the rule of ``targets`` (``OpOverload``s); a second one for an op is an error."""

    def register(function: Rule) -> Rule:
        for target in targets:
            if target in _RULES:
                raise ValueError(f"{target} has a rule already: {_RULES[target].__qualname__}")
            _RULES[target] = function
        return function

    return register


def device_rule(target: Any) -> Rule | None:
    """The rule of an op, or None for one that the device lacks."""
    return _RULES.get(target)


def lowered_ops() -> tuple[Any, ...]:
    """All ops with a rule, by name."""
    return tuple(sorted(_RULES, key=str))

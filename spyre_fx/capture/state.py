"""What a function can reach: the modules and parameters it closes over, and the functions it calls.

A function, unlike a module, does not say which parameters are its own. They are found by looking where Python keeps
them: closure cells, the globals that its code names, defaults, bound objects, containers of these.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

_MAX_DEPTH = 5


@dataclass(frozen=True)
class Reachable:
    """Modules and parameters by the name under which the code knows them, and the Python functions."""

    modules: dict[str, nn.Module] = field(default_factory=dict)
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    functions: list[types.FunctionType] = field(default_factory=list)


def reachable(function: Any) -> Reachable:
    """Everything that ``function`` (a function, method, partial or callable object) may use when it is called."""
    found = Reachable()
    seen: set[int] = set()
    pending = [("function", function, 0)]
    while pending:
        name, value, depth = pending.pop(0)
        if id(value) in seen or depth > _MAX_DEPTH:
            continue
        seen.add(id(value))
        match value:
            case nn.Module():
                found.modules[_free_name(name, found)] = value
            case nn.Parameter():
                found.parameters[_free_name(name, found)] = value
            case _:
                if isinstance(value, types.FunctionType):
                    found.functions.append(value)
                pending += [(name, inner, depth + 1) for name, inner in _parts(name, value)]
    return found


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values that ``value`` refers to, with names."""
    match value:
        case types.ModuleType() | type() | str() | int() | float() | None:
            return
        case functools.partial():
            yield from [(name, value.func), *((name, arg) for arg in value.args), *value.keywords.items()]
        case types.MethodType():
            yield from [(type(value.__self__).__name__.lower(), value.__self__), (name, value.__func__)]
        case types.FunctionType() if not (value.__module__ or "").startswith("torch."):
            yield from _function_parts(value)
        case list() | tuple() | set() | frozenset():
            yield from ((f"{name}_{position}", item) for position, item in enumerate(value))
        case dict():
            yield from ((f"{name}_{key}", item) for key, item in value.items())
        case _ if hasattr(value, "__dict__") and not isinstance(value, types.FunctionType):
            yield from vars(value).items()
            yield name, vars(type(value)).get("__call__")


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    names = dict.fromkeys(_global_names(function.__code__))
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)
    yield from (("default", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _free_name(name: str, found: Reachable) -> str:
    """``name`` made into an identifier that no other module or parameter, nor ``nn.Module`` itself, has."""
    name = "".join(letter if letter.isalnum() else "_" for letter in str(name))
    name = name if name.isidentifier() and not hasattr(nn.Module(), name) else f"_{name}"
    taken = found.modules.keys() | found.parameters.keys()
    return next(
        candidate for candidate in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if candidate not in taken
    )

"""Calls of public functions with arguments that they do not take: an error of ours instead of a bare ``TypeError``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from spyre_fx.errors import OptionError, Template
from spyre_fx.errors.names import near

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

WRONG_CALL = Template(OptionError, "{name} was called {problem}", "{name}({parameters})", "{advice}")


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which says in an ``OptionError`` what it takes when it is called with anything else.

    >>> @checked_call
    ... def cut(gm, count, *, strict=False): ...
    >>> cut(1, 2, strictt=True)
    Traceback (most recent call last):
    spyre_fx.errors.OptionError: cut was called with 'strictt', which it does not take. Expected cut(gm, count, *, \
strict). To fix: write 'strict'.
    """
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            problem = _problem(function.__name__, parameters, args, kwargs, {})
            if problem is None:  # the error comes from inside
                raise
        raise problem

    return call


def checked_init(made: C) -> C:
    """A class whose constructor answers as ``checked_call`` does; its properties follow from its fields."""
    construct = vars(made)["__init__"]
    parameters = dict(list(inspect.signature(construct).parameters.items())[1:])
    derived = {name: value for name, value in vars(made).items() if isinstance(value, property)}

    @functools.wraps(construct)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        problem = _problem(made.__name__, parameters, args, kwargs, derived)
        if problem is not None:
            raise problem
        construct(self, *args, **kwargs)

    made.__init__ = init  # type: ignore[misc]
    return made


def _problem(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    derived: Mapping[str, property],
) -> Exception | None:
    """What is wrong with a call, or None."""
    try:
        inspect.Signature(list(parameters.values())).bind(*args, **kwargs)
    except TypeError as error:
        strange = [key for key in kwargs if key not in parameters]
        if strange:
            problem, advice = f"with {strange[0]!r}, which it does not take", _advice(strange[0], parameters, derived)
        else:
            given = {*list(parameters)[: len(args)], *kwargs}
            missing = [one.name for one in parameters.values() if one.default is one.empty and one.name not in given]
            problem = f"without {missing[0]!r}" if missing else f"with {error}"
            advice = f"pass {missing[0]!r} as well" if missing else "pass each once, and those behind a * by name"
        return WRONG_CALL(name=name, problem=problem, parameters=_shown(parameters), advice=advice)
    return None


def _advice(strange: str, parameters: Mapping[str, inspect.Parameter], derived: Mapping[str, property]) -> str:
    if strange in derived:
        first = (derived[strange].__doc__ or "").split(".")[0]
        return f"leave it out: {strange} ({first[:1].lower()}{first[1:]}) follows from the others"
    meant = near(strange, parameters)
    return f"write {meant.partition('mean ')[2].removesuffix('?)')}" if meant else "leave it out"


def _shown(parameters: Mapping[str, inspect.Parameter]) -> str:
    """The names of the parameters as they stand in a call, without types and defaults."""
    plain = [one.replace(annotation=one.empty, default=one.empty) for one in parameters.values()]
    return str(inspect.Signature(plain))[1:-1] if len(plain) <= 8 else ", ".join(one.name for one in plain)

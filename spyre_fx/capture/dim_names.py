"""``declare_tensor_dim`` and ``name_tensor_dims``: which dims of which tensors the user's names stand for.

Names live on the tensor object itself, so they end with it. A view of a named tensor has the names that its strides
say. Inside a traced function they become part of the graph (``name_marks``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from spyre_fx.capture.dim_spans import UNKNOWN, DimNames, from_text, through_strides, to_text, whole
from spyre_fx.capture.name_marks import MARK, check_sizes, mark_in_trace, set_names, take_marks
from spyre_fx.errors import HintError
from spyre_fx.errors import hints as messages
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.location import describe_value
from spyre_fx.errors.names import near, with_article
from spyre_fx.torch_compat import give_up_graph

_ATTRIBUTE = "_spyre_fx_dim_names"

_DECLARED: ContextVar[Mapping[str, int]] = ContextVar("declared tensor dims", default=MappingProxyType({}))
"""What this thread (or task) has declared."""

_LATEST: dict[str, int] = {}
"""What any thread declared last under a name, for threads that only use it: a new thread inherits nothing."""


@checked_call
def declare_tensor_dim(name: str, size: int) -> None:
    """Say that ``name`` stands for a dim of ``size`` elements, for ``name_tensor_dims`` and ``named_dims``.

    A second declaration of a name replaces the first one; tensors that are named already keep the size that they were
    named with. What a thread declares holds in this thread, whatever others declare.

    args:
        name: a non-empty string.
        size: elements, a positive int.

    errors: ``HintError`` for a name or size that cannot be.

    >>> declare_tensor_dim("A", 1024)
    """
    problem = _declare(name, size)
    if problem is not None:
        if torch.compiler.is_dynamo_compiling():
            give_up_graph(problem)
        raise HintError(problem)


@checked_call
def name_tensor_dims(tensor: torch.Tensor, names: Sequence[str | None]) -> None:
    """Name the dims of a tensor, for ``spyre_hint`` to refer to.

    Name the inputs and parameters of a program before it is captured or compiled, or any tensor inside of it. Names
    follow ops and views, and eager views too. A result that is named inside the program has these names from there on,
    whatever its operands are called: so ``k = x @ w`` may have its rows named otherwise than ``x``.

    args:
        tensor: the tensor; for a module's parameter the parameter object.
        names: for each dim a declared name, or None for a dim without one.

    errors: ``HintError`` for undeclared or repeated names, for a wrong number of names, and for sizes other than the
        declared ones.

    >>> import torch
    >>> declare_tensor_dim("A", 4)
    >>> name_tensor_dims(torch.ones(4, 6), ["A", None])
    """
    if torch.compiler.is_dynamo_compiling():
        listed = tuple(names) if isinstance(names, (list, tuple)) else None
        problem, text = _text(listed, tensor.dim())
        if problem is not None:
            give_up_graph(problem)
            raise HintError(problem)
        MARK(tensor, text, True)  # sizes may be symbolic here, which Dynamo does not let us see
        return
    if not isinstance(tensor, torch.Tensor):
        raise messages.NOT_A_TENSOR(kind=with_article(type(tensor).__name__))
    found = _named(names)
    check_sizes(found, tensor.shape, describe_value(tensor))
    if not mark_in_trace(tensor, found):
        setattr(tensor, _ATTRIBUTE, (tuple(tensor.shape), to_text(found)))  # plain values, so that torch.save keeps it


def names_of(tensor: Any) -> DimNames | None:
    """The names of a tensor that was named, or that is a view of one that was.

    errors: ``HintError`` where it has another shape than when it was named.
    """
    if not isinstance(tensor, torch.Tensor):
        return None
    recorded = getattr(tensor, _ATTRIBUTE, None)
    if recorded is not None:
        shape, text = recorded
        if shape != tuple(tensor.shape):
            raise messages.RESHAPED(named=list(shape), tensor=describe_value(tensor))
        return from_text(text)
    base = tensor._base
    names = names_of(base)
    if base is None or names is None or base.layout is not torch.strided:
        return None
    found = through_strides(tensor.shape, tensor.stride(), list(zip(base.shape, base.stride(), names, strict=True)))
    return found if any(found) else None


def name_inputs(gm: fx.GraphModule, examples: Sequence[Any]) -> None:
    """Record in a finished graph, in place, all names that are known: of inputs, of state, and those in marks.

    Args:
        examples: for each placeholder, or for the first ones, the tensor that the user knows it by.
    """
    take_marks(gm)
    known = list(zip(gm.graph.find_nodes(op="placeholder"), examples, strict=False))
    known += [(node, state_of(gm, node)) for node in gm.graph.find_nodes(op="get_attr")]
    for node, tensor in known:
        names = names_of(tensor)
        if names is not None:
            set_names(node, names)


def state_of(gm: fx.GraphModule, node: fx.Node) -> Any:
    """What a ``get_attr`` node stands for."""
    return operator.attrgetter(str(node.target))(gm)


def declared(name: Any) -> int:
    """The declared size of a name.

    errors: ``HintError`` for what is no name or was not declared.
    """
    if not isinstance(name, str) or not name:
        raise messages.BAD_NAME(name=name, kind=type(name).__name__)
    known = {**_LATEST, **_DECLARED.get()}
    if name not in known:
        listed = ", ".join(repr(known_name) for known_name in sorted(known)) or "none"
        raise messages.UNDECLARED(name=name, known=listed, nearest=near(name, known))
    return known[name]


def run_by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of constants that Dynamo calls while it traces, and whose result is a constant of the graph."""
    marked: Callable[..., Any] = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return marked


@run_by_dynamo
def _declare(name: Any, size: Any) -> str | None:
    """What is wrong with a declaration, or None after it was made."""
    if not isinstance(name, str) or not name:
        return str(messages.BAD_NAME(name=name, kind=type(name).__name__))
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return str(messages.BAD_SIZE(name=name, size=size, kind=type(size).__name__))
    _DECLARED.set(MappingProxyType({**_DECLARED.get(), name: size}))
    _LATEST[name] = size
    return None


@run_by_dynamo
def _text(names: Any, rank: int) -> tuple[str | None, str]:
    """What is wrong with the names of a tensor of ``rank`` dims, and the names as a mark holds them."""
    try:
        found = _named(names)
        check_sizes(found, [UNKNOWN] * rank, f"a tensor of {rank} dims")
        return None, to_text(found)
    except HintError as error:
        return str(error), ""


def _named(names: Any) -> DimNames:
    if not isinstance(names, (list, tuple)):
        raise messages.BAD_NAMES(names=repr(names))
    repeated = next((name for name in names if name is not None and names.count(name) > 1), None)
    if repeated is not None:
        raise messages.REPEATED_NAME(name=repeated, names=list(names))
    return tuple(() if name is None else whole(name, declared(name)) for name in names)

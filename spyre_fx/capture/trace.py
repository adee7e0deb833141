"""``capture``: whatever holds the user's program becomes an ``ExportedProgram``, and that a graph module."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from spyre_fx.capture.dim_names import name_inputs
from spyre_fx.capture.hint_scopes import add_surrounding_scopes
from spyre_fx.capture.program import decompose, to_graph_module
from spyre_fx.capture.regions import detach_no_grad_regions
from spyre_fx.capture.state import Reachable, reachable
from spyre_fx.capture.watch import register_dataclasses, watched
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.capture import (
    ARGUMENTS,
    BAD_FILE,
    CONTROL_FLOW,
    LOST,
    NO_FILE,
    NOT_CALLABLE,
    NOT_TRACEABLE,
)
from spyre_fx.errors.location import user_line
from spyre_fx.torch_compat import (
    GuardOnDataDependentSymNode,
    check_inputs,
    export,
    exporting,
    input_leaves,
    is_wrapped,
    storage_key,
)


@checked_call
def capture(
    source: Callable[..., Any] | nn.Module | ExportedProgram | str | Path,
    /,
    *example_args: Any,
    **example_kwargs: Any,
) -> fx.GraphModule:
    """The functional ATen graph of a program, as a ``GraphModule`` with a fake tensor in each ``meta["val"]``.

    The result is called as ``source`` is and returns what it returns, nested structures included. Ops are core ATen;
    in-place ops are gone, and what a program writes to its inputs or buffers is written back at the end. Parameters
    and buffers are ``get_attr`` nodes that share the module's own tensors, so that a later change of one shows in the
    result of the graph. Sizes, and numbers among the arguments, are those of the examples; a program exported with
    ``dynamic_shapes`` keeps its symbols. Nodes carry ``stack_trace`` and ``nn_module_stack``.

    args:
        source: a function, a module, a ``torch.export.ExportedProgram``, or the path of a ``.pt2`` file.
        example_args, example_kwargs: arguments for a function or module; each tensor stands for an input of its own.
            For an exported program they are optional and only checked.

    A dataclass among arguments or results is registered with ``torch.export.register_dataclass`` if it is not yet.

    errors: ``CaptureError`` for what is none of these, for examples that do not fit, for control flow that depends on
    the values of tensors, for state kept outside buffers, for files that are missing or broken.
    """
    match source:
        case ExportedProgram():
            return _from_program(source, example_args, example_kwargs, "the exported program")
        case str() | Path():
            return _from_program(_load(Path(source)), example_args, example_kwargs, Path(source).name)
        case type():
            raise NOT_CALLABLE(kind="the class", value=source.__name__)
        case nn.Module():
            return _from_module(source, example_args, example_kwargs, type(source).__name__, Reachable())
        case _ if callable(source):
            found = reachable(source)
            module = _Function(source, found.modules)
            return _from_module(module, example_args, example_kwargs, _name_of(source), found)
        case _:
            raise NOT_CALLABLE(kind=type(source).__name__, value=repr(source))


_PYTHON_FUNCTIONS = (types.FunctionType, types.MethodType)


class _Function(nn.Module):
    """A function as a module that owns the modules which the function uses."""

    def __init__(self, function: Callable[..., Any], modules: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.forward = function if isinstance(function, _PYTHON_FUNCTIONS) else _as_function(function)


def _from_module(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, found: Reachable
) -> fx.GraphModule:
    signature = _signature(module.forward)
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ARGUMENTS(name=name, signature=signature, reason=error) from None
    register_dataclasses((args, kwargs))
    own_args, own_kwargs = _own_memory((args, kwargs), module, found)
    with _refusals(name), exporting(found.functions), watched(module):
        program = export(module, own_args, own_kwargs)
        if any(map(is_wrapped, program.constants.values())):
            raise LOST(name=name)
        program = decompose(detach_no_grad_regions(program))
        return _with_hints(to_graph_module(program, found.parameters), input_leaves(program, args, kwargs))


def _from_program(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> fx.GraphModule:
    if args or kwargs:
        try:
            check_inputs(program, args, kwargs)
        except Exception as error:
            raise ARGUMENTS(name=name, signature="", reason=_first_line(error)) from None
    with _refusals(name), exporting():
        decomposed = decompose(program)
        if not (args or kwargs) and program.example_inputs is not None:
            args, kwargs = program.example_inputs
        return _with_hints(to_graph_module(decomposed, {}), input_leaves(program, args, kwargs))


def _with_hints(gm: fx.GraphModule, examples: Sequence[Any]) -> fx.GraphModule:
    """``gm``, whose nodes now know the names of their dims and the hint blocks around ``capture``, in place."""
    name_inputs(gm, examples)
    add_surrounding_scopes(gm.graph)
    return gm


def _load(path: Path) -> ExportedProgram:
    if not path.is_file():
        raise NO_FILE(path=path)
    try:
        with exporting():
            return torch.export.load(path)
    except Exception as error:
        raise BAD_FILE(path=path, reason=_first_line(error)) from None


def _own_memory(examples: Any, module: nn.Module, found: Reachable) -> Any:
    """``examples`` with memory of its own for each tensor: torch would take two that share theirs for one input."""
    state = [*module.parameters(), *module.buffers(), *found.parameters.values()]
    taken = {storage_key(tensor) for tensor in state}

    def own(tensor: torch.Tensor) -> torch.Tensor:
        key = storage_key(tensor)
        if key is None or key not in taken:
            taken.add(key)
            return tensor
        copied = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        memory: Any = tensor.detach().untyped_storage()
        copied.set_(memory.clone(), tensor.storage_offset(), tensor.size(), tensor.stride())
        return copied.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, own, examples)


@contextlib.contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Torch's exceptions while tracing, as a ``CaptureError`` that names the user's line."""
    try:
        yield
    except SpyreFxError as error:
        raise error.with_traceback(None) from None
    except GuardOnDataDependentSymNode as error:
        raise CONTROL_FLOW(name=name, where=_where(error)) from None
    except Exception as error:
        kind = type(error).__name__
        raise NOT_TRACEABLE(name=name, where=_where(error), error=kind, reason=_first_line(error)) from None


def _as_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A builtin, partial or callable object as the Python function that torch wants, with the argument names."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    if (signature := _signature(function)) is not None:
        forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _where(error: Exception) -> str:
    line = user_line(error)
    return f", at {line}" if line else ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")

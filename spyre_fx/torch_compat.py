"""The parts of torch that carry no promise of stability, each used through this one file.

When a new torch release moves something, this is where it is mended.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import fx, nn
from torch._dynamo.convert_frame import compile_lock
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.export import ExportedProgram
from torch.export._tree_utils import reorder_kwargs
from torch.fx import proxy as fx_proxy
from torch.fx import traceback as fx_traceback
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.fx.graph import _BoxedCodeGen as BoxedCodeGen
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes as without_modes

__all__ = [
    "BoxedCodeGen",
    "CustomOpDef",
    "FakeTensor",
    "FakeTensorMode",
    "GuardOnDataDependentSymNode",
    "LazyGraphModule",
    "ShapeEnv",
    "annotate",
    "check_inputs",
    "copy_calling_convention",
    "core_aten_decompositions",
    "export",
    "exporting",
    "generated_line",
    "give_up_graph",
    "has_kernel",
    "has_tangents",
    "in_transform",
    "input_leaves",
    "is_composite",
    "is_symbolically_traced",
    "is_traced",
    "is_wrapped",
    "keep_without_users",
    "program_calling_convention",
    "proxy_tracer",
    "quiet",
    "size_at",
    "size_symbol",
    "storage_key",
    "traced_inputs",
    "traced_size",
    "upper_bound",
    "without_modes",
]

_TRACING = compile_lock
"""Dynamo's lock: what nodes inherit while any tracer makes them stands in a global of torch.fx.traceback."""

annotate = fx_traceback.annotate
"""A context manager, which Dynamo knows as well: nodes made in it have the given entries in ``meta["custom"]``."""

_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor", "torch.export")


def copy_calling_convention(source: fx.Graph, destination: fx.Graph) -> None:
    """Let ``destination`` take and return the nested structures (dicts, tuples, ...) that ``source`` does."""
    destination.set_codegen(copy.copy(source._codegen))


def program_calling_convention(program: ExportedProgram, destination: fx.Graph) -> None:
    """Let ``destination`` take and return the structures of ``program``, under the argument names of its module."""
    call = program.module_call_graph[0].signature
    assert call is not None
    positional, keywords = call.in_spec.children()
    names = call.forward_arg_names or [f"arg_{i}" for i in range(positional.num_children)] + list(keywords.context)
    destination.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(names), call.in_spec, call.out_spec)))


def export(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """``torch.export`` without Dynamo, keeping what the user annotated (``torch.fx.traceback.annotate``)."""
    with fx_traceback.preserve_node_meta():
        return torch.export.export(module, args, kwargs, strict=False)


def check_inputs(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where the arguments do not fit the structure, sizes, ranges and dtypes of ``program``."""
    program._graph_module_flat_inputs(args, kwargs)
    names = program.graph_signature.user_inputs
    wanted = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    for name, given in zip(
        names, pytree.tree_leaves((args, reorder_kwargs(kwargs, program.call_spec.in_spec))), strict=True
    ):
        dtype = getattr(wanted.get(str(name)), "dtype", None)
        if dtype is not None and given.dtype != dtype:
            raise ValueError(f"{name} is {given.dtype} and should be {dtype}")


def core_aten_decompositions(keep: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """Torch's table of decompositions to core ATen, without those of the ops to ``keep``."""
    table: Any = torch.export.default_decompositions()
    for op in keep:
        table.pop(op, None)
    return cast("dict[Any, Callable[..., Any]]", table)


def is_wrapped(value: Any) -> bool:
    """Whether ``value`` is a tensor of some tracer or torch.func transform rather than one with memory."""
    if not isinstance(value, torch.Tensor):
        return False
    return isinstance(value, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(value)


def storage_key(tensor: torch.Tensor) -> int | None:
    """A number that two tensors share if they share memory; None where a tensor has no memory of the plain kind."""
    if isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)


def has_kernel(op: OpOverload, device: str) -> bool:
    """True if ``op`` has a kernel of its own for a type of device; generated ``out=`` overloads have none."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(_name(op), device.upper()))


def is_composite(op: OpOverload) -> bool:
    """True if ``op`` is written in terms of other ops, so that its schema may not tell whether it returns a view."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(_name(op), "CompositeImplicitAutograd"))


def _name(op: OpOverload) -> str:
    return op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")


def is_traced(values: Iterable[Any]) -> bool:
    """True if what happens to ``values`` is recorded rather than only run: by a tracer, a fake or functional mode, or a
    tensor subclass.
    """
    modes = torch._C._TorchDispatchModeKey
    return (
        any(torch._C._get_dispatch_mode(mode) is not None for mode in (modes.PROXY, modes.FAKE, modes.FUNCTIONAL))
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or any(isinstance(value, fx.Proxy) or not _is_plain(value) for value in values)
    )


def has_modes() -> bool:
    """True if a dispatch mode, be it the user's or a tracer's, or a profiler looks at the ops of this thread."""
    return bool(torch._C._len_torch_dispatch_stack()) or torch._C._autograd._profiler_enabled()


def in_transform() -> bool:
    """True inside ``torch.func.grad``, ``vmap`` or ``jvp``, which see an ``autograd.Function`` but not a custom op."""
    interpreter = torch._C._functorch.peek_interpreter_stack()
    kinds = torch._C._functorch.TransformType
    return interpreter is not None and interpreter.key() in (kinds.Grad, kinds.Vmap, kinds.Jvp)


def has_tangents(values: Iterable[Any]) -> bool:
    """True if one of ``values`` carries a derivative in forward mode, outside of ``torch.func``."""
    if forward_ad._current_level < 0:
        return False
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)  # type: ignore[no-untyped-call]


def _is_plain(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from logging what its exceptions say as well."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_silence)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_silence)


@contextlib.contextmanager
def exporting(functions: Iterable[types.FunctionType] = ()) -> Iterator[None]:
    """Run torch.export alone and quietly, with the frames of ``functions`` among the recorded stack traces.

    Torch keeps the state of an export in module globals, hence one at a time; it records only frames named ``forward``
    and registered ones; it dumps the unfinished graph of a failed export to stderr, beside the exception; it warns
    about its own use of a deprecated class, and about attributes that ``capture`` refuses.
    """
    anchors: set[tuple[str, str]] = getattr(fx_proxy, "_STACK_TRACE_ANCHORS", set())
    stderr = io.StringIO()
    with _TRACING, warnings.catch_warnings(), quiet():
        warnings.filterwarnings(
            "ignore", message=".*(LeafSpec|_register_pytree_node).* deprecated", category=FutureWarning
        )
        warnings.filterwarnings("ignore", message="The tensor attribute|A model attribute", category=UserWarning)
        added = {anchor for function in functions for anchor in _frames(function.__code__)} - anchors
        anchors |= added
        try:
            with contextlib.redirect_stderr(stderr):
                yield
            sys.stderr.write(stderr.getvalue())
        finally:
            anchors -= added


def _frames(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """File and name of ``code`` and of the functions defined in it."""
    yield code.co_filename, code.co_name
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _frames(constant)


def _silence(record: logging.LogRecord) -> bool:
    return False


def calling_convention(graph: fx.Graph) -> tuple[pytree.TreeSpec | None, pytree.TreeSpec | None]:
    """Structures of the ``((args), {kwargs})`` that ``graph`` takes and of what it returns; None where it takes one
    positional argument per placeholder, or returns what its output node says.
    """
    codegen = graph._codegen
    if not isinstance(codegen, _PyTreeCodeGen):
        return None, None
    info = codegen.pytree_info
    return info.in_spec, info.out_spec


def generated_line(gm: fx.GraphModule, line: int) -> fx.Node | None:
    """The node that a line of the code generated for ``gm`` runs."""
    numbers = getattr(gm, "_lineno_map", None) or {}
    position = numbers.get(line - getattr(gm, "_prologue_start", 0))
    nodes = [*gm.graph.nodes]
    return nodes[position] if position is not None and position < len(nodes) else None


def input_leaves(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of the arguments, in the order of the user's inputs among the placeholders of ``program``."""
    leaves: list[Any] = pytree.tree_leaves((args, reorder_kwargs(kwargs, program.call_spec.in_spec)))
    return leaves


def keep_without_users(op: OpOverload) -> OpOverload:
    """Let the calls of an op without results stay where torch removes what nobody reads."""
    fx.node.has_side_effect(op)
    return op


def give_up_graph(reason: str) -> None:
    """Let Dynamo, while it traces the caller, go on in eager mode, or fail with this reason if it must not."""
    torch._dynamo.graph_break(msg=reason)


def proxy_tracer() -> Any:
    """The tracer of make_fx, or of torch.export by its means, that is at work in this thread, or None."""
    mode = get_proxy_mode()
    return None if mode is None else mode.tracer


def traced_inputs(tracer: Any) -> Iterator[tuple[torch.Tensor, fx.Node]]:
    """The tensors that make_fx was called with, each with its placeholder.

    For a tracing mode that works on fake tensors they are the tensors which the fake ones stand for.
    """
    for tensor, value in list(tracer.tensor_tracker.items()):
        node = value.proxy.node
        if node.op == "placeholder":
            yield _real(tensor), node


def _real(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, FakeTensor):
        return tensor
    converter = tensor.fake_mode.fake_tensor_converter.meta_converter
    known: Iterable[tuple[torch.Tensor, Any]] = converter.describer.lookup_tensor.items()  # type: ignore[no-untyped-call]
    return next((real for real, number in known if converter.tensor_memo.get(number) is tensor), tensor)


def is_symbolically_traced() -> bool:
    """Whether this thread is inside ``fx.symbolic_trace`` or ``torch.jit.trace``."""
    if torch._C._get_tracing_state() is not None:
        return True
    if not fx._symbolic_trace.is_fx_symbolic_tracing():  # which is a flag of the whole process
        return False
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code is not fx.Tracer.trace.__code__:
        frame = frame.f_back
    return frame.f_code is fx.Tracer.trace.__code__


def size_symbol(size: torch.SymInt) -> str | None:
    """The name of the symbol that a size is, or None for a size computed from symbols."""
    expression = size.node.expr
    return str(expression) if expression.is_Symbol else None


def size_at(size: Any, values: Mapping[str, int]) -> int:
    """A size, given the values of all symbols by name."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = size.node.expr
    return int(expression.subs({symbol: values[str(symbol)] for symbol in expression.free_symbols}))


def traced_size(size: Any) -> Any:
    """The number that a symbolic size had when it was traced, or None where it had none; any other number itself."""
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size
    return size.node.hint if size.node.has_hint() else None


def upper_bound(size: torch.SymInt) -> int | None:
    """The largest value of a symbol, where the tracer was given one."""
    ranges = size.node.shape_env.var_to_range.get(size.node.expr)
    return int(ranges.upper) if ranges is not None and ranges.upper.is_Integer else None

"""Shapes for every node: a copy of a graph whose values are fake tensors under one mode.

Tracers differ in what they leave in ``node.meta["val"]``: ``make_fx`` gives every node a fake mode of its own,
``torch.export`` has none at its outputs, ``symbolic_trace`` records nothing. Passes that compare, slice or run values
first put the graph through ``ensure_fake``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from spyre_fx.analysis.sizes import symbolic
from spyre_fx.analysis.statistics import true_value
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors.capture import EXAMPLE_COUNT, NO_FAKE_RESULT, NO_SHAPES, NOT_STRIDED
from spyre_fx.errors.schedule import NOT_A_GRAPH
from spyre_fx.torch_compat import FakeTensor, FakeTensorMode, LazyGraphModule, ShapeEnv, copy_calling_convention, quiet


def ensure_fake(
    gm: fx.GraphModule, example_args: Sequence[Any] | None = None, *, compiled: bool = True
) -> fx.GraphModule:
    """A copy of ``gm`` in which every node has a fake ``meta["val"]``, all under one ``FakeTensorMode``.

    Recorded values keep their shape (symbolic sizes included), strides, dtype and device; what was not recorded is
    computed from the operands. ``gm`` is not edited; parameters, buffers and submodules are shared with it.

    args:
        gm: a graph of ATen ops; nested graph modules are copied and filled as well.
        example_args: tensors and numbers as ``gm`` takes them. Recorded values are then set aside, and all
            shapes are those that the examples give.
        compiled: False for a copy that is only read, whose Python code is then never generated.

    errors: ``CaptureError`` where an input has neither a recorded value nor an example, or where an op does not run on
        fake tensors.
    """
    copied = copy_graph(gm, compiled=compiled)
    known = _recorded(copied) if example_args is None else _examples_by_placeholder(copied, example_args)
    with quiet():
        return _fill(copied, known, _mode_for(known.values()))


def check_graph(gm: object) -> None:
    """``CaptureError`` for anything but a graph module."""
    if not isinstance(gm, fx.GraphModule):
        raise NOT_A_GRAPH(found=type(gm).__name__)


def copy_graph(gm: fx.GraphModule, *, compiled: bool = True) -> fx.GraphModule:
    """A graph module with a graph of its own and the parameters, buffers and submodules of ``gm``."""
    check_graph(gm)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    copy_calling_convention(gm.graph, graph)
    kind = fx.GraphModule if compiled else LazyGraphModule
    copied = kind(gm, graph, class_name=type(gm).__name__)
    copied.meta = dict(gm.meta)
    copied.training = gm.training
    return copied


def fake_like(tensor: Any, mode: FakeTensorMode, name: str = "") -> FakeTensor:
    """A fake tensor under ``mode`` with the shape, strides, dtype and device of ``tensor``.

    ``tensor`` is anything with these four: a tensor, real or fake, or a ``TensorType``.
    """
    if isinstance(tensor, FakeTensor) and tensor.fake_mode is mode:
        return tensor
    if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
        raise NOT_STRIDED(layout=tensor.layout, name=name)
    shape, device = tuple(tensor.shape), torch.device(tensor.device)
    stride = tuple(tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride)
    if device.type != "meta" and not symbolic(*shape, *stride):  # many times faster than to ask the mode for one
        return FakeTensor(mode, torch.empty_strided(shape, stride, dtype=tensor.dtype, device="meta"), device)
    with mode:
        fake = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=device)
    assert isinstance(fake, FakeTensor)
    return fake


def _examples_by_placeholder(gm: fx.GraphModule, example_args: Sequence[Any]) -> dict[fx.Node, Any]:
    placeholders = gm.graph.find_nodes(op="placeholder")
    examples = pytree.tree_leaves(tuple(example_args))
    if len(examples) != len(placeholders):
        names = ", ".join(node.name for node in placeholders)
        raise EXAMPLE_COUNT(given=len(examples), wanted=len(placeholders), names=names)
    return dict(zip(placeholders, examples, strict=True))


def _recorded(gm: fx.GraphModule) -> dict[fx.Node, Any]:
    return {node: node.meta["val"] for node in gm.graph.nodes if "val" in node.meta and node.op != "output"}


def _mode_for(values: Iterable[Any]) -> FakeTensorMode:
    """A new mode or, where sizes have symbols, the one of all ``values``, else a new one that knows these.

    A mode serves one thread at a time: with one for each copy, passes in several threads may read the same graph.
    """
    leaves = pytree.tree_leaves(list(values))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = [*leaves, *(size for tensor in tensors for size in (*tensor.shape, *tensor.stride()))]
    shape_env: ShapeEnv | None = next((s.node.shape_env for s in sizes if isinstance(s, torch.SymInt)), None)
    modes = {id(tensor.fake_mode): tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)}
    if shape_env is not None and len(modes) == 1 and all(isinstance(tensor, FakeTensor) for tensor in tensors):
        return next(iter(modes.values()))
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)


def _fill(gm: fx.GraphModule, known: dict[fx.Node, Any], mode: FakeTensorMode) -> fx.GraphModule:
    """Set ``meta["val"]`` of all nodes of ``gm``, in place: from ``known`` where it can be, else by running them."""
    values: dict[fx.Node, Any] = {}
    with torch.no_grad():
        for node in gm.graph.nodes:
            nested = node.op == "call_module" and not hasattr(gm.get_submodule(str(node.target)), "result_types_at")
            if node not in known or nested:  # a nested graph is filled even if its results are known
                known.setdefault(node, _run(gm, node, values, mode))
            found = true_value(node, values, known[node])
            values[node] = node.meta["val"] = _fake_tree(found, mode, node.name)
    return gm


def _fake_tree(value: Any, mode: FakeTensorMode, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        return fake_like(value, mode, name)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: fake_like(tensor, mode, name), value)


def _run(gm: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any], mode: FakeTensorMode) -> Any:
    """The value of ``node``, from those of its operands."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    try:
        with mode:
            match node.op:
                case "placeholder":
                    return _loop_argument(gm, node, mode)
                case "get_attr":
                    value = operator.attrgetter(str(node.target))(gm)
                    return value if isinstance(value, torch.Tensor) else None
                case "call_function" if callable(node.target):
                    return node.target(*args, **kwargs)
                case "call_method":
                    return getattr(args[0], str(node.target))(*args[1:], **kwargs)
                case "call_module":
                    return _run_module(gm, str(node.target), args, kwargs, mode)
                case _:
                    return args[0]
    except SpyreFxError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise NO_FAKE_RESULT(node=node, op=node.target, reason=reason) from None


def _loop_argument(gm: fx.GraphModule, placeholder: fx.Node, mode: FakeTensorMode) -> Any:
    """An input as the counted loops that take it say it is: pickling a graph keeps loops whole but drops its meta.

    An input that nobody reads may be anything, as a number that ``make_fx`` has put into the ops.
    """
    for user in placeholder.users:
        types = getattr(gm.get_submodule(str(user.target)), "argument_types", ()) if user.op == "call_module" else ()
        for kind in (kind for argument, kind in zip(user.args, types, strict=False) if argument is placeholder):
            if kind is not None:
                return fake_like(kind, mode, placeholder.name)
    if not placeholder.users:
        return None
    raise NO_SHAPES(name=placeholder.name)


def _run_module(gm: fx.GraphModule, name: str, args: Any, kwargs: Any, mode: FakeTensorMode) -> Any:
    module = gm.get_submodule(name)
    result_types = getattr(module, "result_types", None)
    if hasattr(module, "result_types_at"):  # it depends on sizes
        result_types = module.result_types_at(args)  # type: ignore[operator]
    if result_types is not None:  # a counted loop says what it returns
        results = tuple(fake_like(result, mode, name) for result in result_types)
        return results[0] if len(results) == 1 else results
    if isinstance(module, fx.GraphModule) and "." not in name:
        copied = copy_graph(module)
        gm.set_submodule(name, _fill(copied, _recorded(copied) | _examples_by_placeholder(copied, args), mode))
        return copied.graph.output_node().meta["val"]
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    fakes: dict[str, torch.Tensor] = {key: fake_like(tensor, mode, key) for key, tensor in state.items()}
    return torch.func.functional_call(module, fakes, args, kwargs)

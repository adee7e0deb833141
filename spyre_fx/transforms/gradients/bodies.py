"""The gradient of one trip as a graph of its own.

def body(x, w):               def vjp(x, w, g):
    y = relu(mm(x, w))   ->       y = relu(mm(x, w))              # computed again
    return (y,)                   d = threshold_backward(g, y, 0)
                                  return (mm(d, w.t()), mm(x.t(), d))
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.errors import SpyreFxError
from spyre_fx.errors import loop as messages
from spyre_fx.torch_compat import FakeTensorMode
from spyre_fx.transforms.executor.slices import compact_tile
from spyre_fx.transforms.loop_structure import LoopStructure
from spyre_fx.transforms.loop_types import Assembled, Carried, Leaves, Phase, Slice, TensorType

aten = torch.ops.aten
T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """Which gradients are asked for: of the arguments ``needed``, when those of the results ``given`` are known."""

    needed: tuple[int, ...]
    given: tuple[int, ...]


def vjp_body(
    loop: LoopStructure, phase: Phase, request: Request, *, active: Sequence[int], sums: bool
) -> fx.GraphModule:
    """The graph of one trip's gradient.

    Args:
        loop: the loop whose gradient it is.
        phase: the phase whose body and tile it is for.
        request: what is asked for. The graph takes the tiles of all arguments and the gradients of the given results.
        active: the given results whose gradients count in this trip.
        sums: take for each needed argument that is passed whole a running sum as well, and return its next value.

    Raises:
        TilingError: an op of the body has no derivative.
    """
    body = loop.body(phase)
    begin, end = len(loop.arguments), len(loop.arguments) + len(request.given)

    def vjp(*inputs: Any) -> tuple[torch.Tensor, ...]:
        tiles, running = list(inputs[:begin]), iter(inputs[end:])
        for position in request.needed:
            tiles[position] = tiles[position].detach().requires_grad_()
        results = body(*tiles)
        known = dict(zip(request.given, inputs[begin:end], strict=True))
        outputs = [(results[i], known[i]) for i in active if results[i].requires_grad]
        grads = _grad(outputs, [tiles[position] for position in request.needed])
        whole = [sums and loop.arguments[position] is None for position in request.needed]
        return tuple(_added(next(running), g) if is_sum else g for g, is_sum in zip(grads, whole, strict=True))

    def trace() -> fx.GraphModule:
        with FakeTensorMode(allow_non_fake_inputs=True):
            tiles = [_example(k, cut, phase) for k, cut in zip(loop.argument_types, loop.arguments, strict=True)]
            grads = [_example(loop.result_types[i], _cut(loop.results[i]), phase) for i in request.given]
            running = [_example(kind, None, phase) for kind in sum_types(loop, request)] if sums else []
            return make_fx(vjp)(*tiles, *grads, *running)

    try:
        gm = trace()
    except SpyreFxError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise messages.NO_GRADIENT(label=loop.title, reason=reason) from None
    return _cleaned(gm)


def constant_results(loop: LoopStructure, active: Sequence[int]) -> list[int]:
    """The results that eager would not connect with a gradient, when the arguments ``active`` require one: what comes
    through ``detach``, a comparison, or a result of an op that has no derivative.
    """
    carried = {result.argument: i for i, result in enumerate(loop.results) if isinstance(result, Carried)}
    requiring = frozenset(active)
    while True:
        live = in_clean_thread(functools.partial(_requiring, loop, loop.phases[0], requiring))
        before, requiring = requiring, requiring | {argument for argument, i in carried.items() if i in live}
        if requiring == before:
            return [i for i in range(len(loop.results)) if i not in live]


def _requiring(loop: LoopStructure, phase: Phase, arguments: Collection[int]) -> set[int]:
    """The results of one trip that require a gradient when ``arguments`` do."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
        tiles = [_example(k, cut, phase) for k, cut in zip(loop.argument_types, loop.arguments, strict=True)]
        for position in arguments:
            tiles[position].requires_grad_()
        return {i for i, result in enumerate(loop.body(phase)(*tiles)) if result.requires_grad}


def sum_types(loop: LoopStructure, request: Request) -> list[TensorType]:
    """The types of the running sums: those of the arguments, but fp32 for half types, to be rounded once at the end."""
    kinds = [loop.argument_types[p] for p in request.needed if loop.arguments[p] is None]
    return [
        replace(dense_type(kind), dtype=_SUM_DTYPES.get(kind.dtype, kind.dtype)) for kind in kinds if kind is not None
    ]


def dense_type(kind: TensorType) -> TensorType:
    """The type of a gradient: strides as recorded, but row-major where an argument was recorded with overlaps."""
    value = torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device="meta")
    return replace(kind, stride=torch.empty_like(value).stride())


_SUM_DTYPES = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def in_clean_thread(fn: Callable[[], T]) -> T:
    """The result of ``fn`` run without the tracers, modes and dispatch state of the caller.

    A backward may be asked for inside the trace of a larger graph or inside the kernel of an op, where autograd is off.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(fn())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _grad(outputs: Sequence[tuple[torch.Tensor, torch.Tensor]], wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients, zeros for what does not depend."""
    if not outputs:
        return [torch.zeros_like(tile) for tile in wanted]
    results, grads = zip(*outputs, strict=True)
    found = torch.autograd.grad(results, wanted, grads, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]


def _added(total: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    return total + grad.to(total.dtype)


def _example(kind: TensorType | None, cut: Slice | None, phase: Phase) -> Any:
    if kind is None:
        return 1
    whole = torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device=kind.device)
    return compact_tile(whole, cut, phase.start, phase.tile)


def _cut(result: Leaves) -> Slice | None:
    return result.slice if isinstance(result, Assembled) else None


def _cleaned(gm: fx.GraphModule) -> fx.GraphModule:
    """Without ``detach``, transposes of transposes and what only the forward needed; inner loops as modules."""
    from spyre_fx.transforms.loop_link import link_loops  # links to loops, which have gradients made here

    for node in gm.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    for node in gm.graph.find_nodes(op="call_function", target=aten.t.default):
        (before,) = node.args
        if before.target == aten.t.default:
            node.replace_all_uses_with(before.args[0])
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return link_loops(gm)

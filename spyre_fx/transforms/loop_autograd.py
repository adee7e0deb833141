"""Gradients of a ``CountedLoop``: of the forward only the arguments are kept; the backward computes each tile again.

Calls on plain tensors record ``LoopFunction``; the op of a traced graph registers the same formula (``loop_op``). Where
the loop carries sums only, the backward is a loop itself, and so has a gradient in turn; else the trips are replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spyre_fx.errors.loop import NO_FORWARD_MODE
from spyre_fx.transforms.gradients.additive import sums_only
from spyre_fx.transforms.gradients.bodies import Request, sum_types
from spyre_fx.transforms.loop_types import Carried

if TYPE_CHECKING:
    from spyre_fx.transforms.counted_loop import CountedLoop


class LoopFunction(torch.autograd.Function):
    """A call of a loop on plain tensors, some of which require a gradient."""

    @staticmethod
    def forward(loop: CountedLoop, *args: Any) -> tuple[Tensor, ...]:
        return loop.run(args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.loop, *args = inputs
        ctx.others = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(arg for arg in args if isinstance(arg, Tensor)))
        active = [i for i, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad]
        ctx.mark_non_differentiable(*(output[i] for i in ctx.loop.constant_results(active)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        args = [
            next(saved) if kind is not None else o for o, kind in zip(ctx.others, ctx.loop.argument_types, strict=True)
        ]
        wanted = [position for position in range(len(args)) if ctx.needs_input_grad[position + 1]]
        found = loop_gradients(ctx.loop, args, grads, wanted)
        return None, *(found.get(position) for position in range(len(args)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        raise NO_FORWARD_MODE(label=ctx.loop.title)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], loop: CountedLoop, *args: Any) -> tuple[Any, Any]:
        """One call for each element of the batch."""
        pairs = [*zip(args, in_dims[1:], strict=True)]
        calls = [
            loop.values(*(arg if dim is None else arg.select(dim, index) for arg, dim in pairs))
            for index in range(info.batch_size)
        ]
        results = tuple(torch.stack(values) for values in zip(*calls, strict=True))
        return results, (0,) * len(results)


def loop_gradients(
    loop: CountedLoop, args: Sequence[Any], grads: Sequence[Tensor | None], wanted: Sequence[int]
) -> dict[int, Tensor]:
    """The gradients of the ``wanted`` arguments, by position; one that is missing is zero.

    Args:
        loop: the loop.
        args: the arguments of the call.
        grads: per result its gradient, None for zero.
        wanted: positions of arguments that are tensors of a floating type.

    Raises:
        TilingError: an op of a body has no derivative.
    """
    given = {i: grad for i, grad in enumerate(grads) if grad is not None and grad.is_floating_point()}
    if not given:
        return {}
    if sums_only(loop):
        return _by_loop(loop, args, given, wanted)
    return _by_replay(loop, args, given, wanted)


def _by_loop(
    loop: CountedLoop, args: Sequence[Any], given: dict[int, Tensor], wanted: Sequence[int]
) -> dict[int, Tensor]:
    carried = {result.argument: i for i, result in enumerate(loop.results) if isinstance(result, Carried)}
    found = {position: given[i] for position, i in carried.items() if position in wanted and i in given}
    request = Request(tuple(position for position in wanted if position not in carried), tuple(given))
    if not request.needed:
        return found
    back = loop.derived(request)
    zeros = [torch.zeros((), dtype=k.dtype, device=k.device).expand(k.shape) for k in sum_types(loop, request)]
    values = back(*args, *given.values(), *zeros)
    values = values if isinstance(values, tuple) else (values,)
    for position, value in zip(request.needed, values, strict=True):
        found[position] = value.to(args[position].dtype)
    return found


def _by_replay(
    loop: CountedLoop, args: Sequence[Any], given: dict[int, Tensor], wanted: Sequence[int]
) -> dict[int, Tensor]:
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    ints = [arg for arg in args if not isinstance(arg, Tensor)]
    op = torch.ops.spyre_fx.counted_loop_replay
    values = op(tensors, ints, [*given.values()], [*wanted], [*given], loop.key())
    return dict(zip(wanted, values, strict=True))

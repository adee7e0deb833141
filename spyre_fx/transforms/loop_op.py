"""A loop as one op, ``spyre_fx::counted_loop``, which no tracer unrolls and no compiler fuses into.

    loop_0(x, w)      under make_fx, torch.export or torch.compile     ->     counted_loop([x, w], [], "loop_0:...")[0]

The key holds the whole loop as text, so that the op needs no registry: the graph that carries it can outlive the
module, be copied, saved, and loaded by another process that has imported ``spyre_fx``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spyre_fx.errors import loop as messages
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.run import execute
from spyre_fx.transforms.gradients.bodies import Request, dense_type, in_clean_thread
from spyre_fx.transforms.gradients.replay import Replay, replay, replay_of
from spyre_fx.transforms.loop_autograd import loop_gradients
from spyre_fx.transforms.loop_text import loop_from_key


@torch.library.custom_op("spyre_fx::counted_loop", mutates_args=())
def counted_loop(tensors: Sequence[Tensor], ints: Sequence[int], key: str) -> list[Tensor]:
    """Run the loop that ``key`` holds.

    Args:
        tensors: the tensors among its arguments, in order.
        ints: the other arguments, in order.
        key: what ``loop_to_key`` made.

    Returns:
        The results, each fresh.
    """
    loop = loop_of(key)
    args = join_arguments(loop, tensors, ints)
    loop.check_arguments(args)
    return execute(loop.plan(), args, loop.result_types)


@counted_loop.register_fake
def _(tensors: Sequence[Tensor], ints: Sequence[int], key: str) -> list[Tensor]:
    loop = loop_of(key)
    loop.check_arguments(join_arguments(loop, tensors, ints))
    return [torch.empty_strided(k.shape, k.stride, dtype=k.dtype, device=k.device) for k in loop.result_types]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, ctx.ints, ctx.key = inputs
    ctx.save_for_backward(*tensors)
    loop = loop_of(ctx.key)
    args = join_arguments(loop, tensors, ctx.ints)
    active = [i for i, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad]
    ctx.mark_non_differentiable(*(output[i] for i in loop.constant_results(active)))


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[list[Tensor | None], list[Any] | None, None]:
    loop, tensors = loop_of(ctx.key), ctx.saved_tensors
    args = join_arguments(loop, tensors, ctx.ints)
    places = [position for position, kind in enumerate(loop.argument_types) if kind is not None]
    wanted = [place for place, needed in zip(places, ctx.needs_input_grad[0], strict=True) if needed]
    found = loop_gradients(loop, args, grads, wanted)
    return [found.get(place) for place in places], None if ctx.ints else [], None  # torch takes [] for tensors


counted_loop.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("spyre_fx::counted_loop_replay", mutates_args=())
def counted_loop_replay(
    tensors: Sequence[Tensor],
    ints: Sequence[int],
    grads: Sequence[Tensor],
    needed: Sequence[int],
    given: Sequence[int],
    key: str,
) -> list[Tensor]:
    """The gradients of the ``needed`` arguments of a loop that carries more than sums, by replaying it."""
    loop = loop_of(key)
    args = join_arguments(loop, tensors, ints)
    totals = replay(_replay_of(key, tuple(needed), tuple(given)), loop, args, dict(zip(given, grads, strict=True)))
    return [_like_argument(loop, position, totals[position]) for position in needed]


@counted_loop_replay.register_fake
def _(
    tensors: Sequence[Tensor],
    ints: Sequence[int],
    grads: Sequence[Tensor],
    needed: Sequence[int],
    given: Sequence[int],
    key: str,
) -> list[Tensor]:
    kinds = [
        dense_type(kind) for kind in (loop_of(key).argument_types[position] for position in needed) if kind is not None
    ]
    return [torch.empty_strided(k.shape, k.stride, dtype=k.dtype, device=k.device) for k in kinds]


def _refuse(ctx: Any, *grads: Any) -> Any:
    raise messages.NO_SECOND_GRADIENT(label=loop_of(ctx.key).title)


def _save_key(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.key = inputs[-1]


counted_loop_replay.register_autograd(_refuse, setup_context=_save_key)


@functools.lru_cache(maxsize=256)
def loop_of(key: str) -> CountedLoop:
    """The loop that a key holds. It keeps nothing of a call, so that one may serve all who name it."""
    return loop_from_key(key, CountedLoop)


@functools.lru_cache(maxsize=256)
def _replay_of(key: str, needed: tuple[int, ...], given: tuple[int, ...]) -> Replay:
    return in_clean_thread(lambda: replay_of(loop_of(key), Request(needed, given)))


def _like_argument(loop: CountedLoop, position: int, value: Tensor) -> Tensor:
    """A fresh tensor of the type of an argument's gradient."""
    kind = loop.argument_types[position]
    assert kind is not None
    kind = dense_type(kind)
    if value.dtype == kind.dtype and value.stride() == kind.stride:
        return value
    return torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device=kind.device).copy_(value)


def join_arguments(loop: CountedLoop, tensors: Sequence[Any], ints: Sequence[Any]) -> list[Any]:
    """The arguments in the order of the loop."""
    rest, others = iter(tensors), iter(ints)
    return [next(others) if kind is None else next(rest) for kind in loop.argument_types]

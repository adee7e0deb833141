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

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.executor.run import execute
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


@functools.lru_cache(maxsize=256)
def loop_of(key: str) -> CountedLoop:
    """The loop that a key holds. It keeps nothing of a call, so that one may serve all who name it."""
    return loop_from_key(key, CountedLoop)


def join_arguments(loop: CountedLoop, tensors: Sequence[Any], ints: Sequence[Any]) -> list[Any]:
    """The arguments in the order of the loop."""
    rest, others = iter(tensors), iter(ints)
    return [next(others) if kind is None else next(rest) for kind in loop.argument_types]

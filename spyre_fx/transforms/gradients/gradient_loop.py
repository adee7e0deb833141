"""The gradient of a loop as a loop over the same tiles.

    for tile:                             for tile:
        r[tile] = body(x[tile], w)   ->       d_x[tile], d = vjp(x[tile], w, d_r[tile])
                                              d_w += d

A sliced argument gets its gradient slice by slice, one that is passed whole gets the sum over the trips. The result is
a ``CountedLoop`` like any other: it runs as fast, nests, is one op under a tracer, and has a gradient itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.gradients.bodies import Request, dense_type, sum_types, vjp_body
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Leaves, Phase, Slice, TensorType


def gradient_loop(loop: CountedLoop, request: Request) -> CountedLoop:
    """The loop that takes the arguments of ``loop``, the gradients of the given results, and for each needed argument
    that is passed whole the value to begin its sum with; it returns the gradients of the needed arguments.

    ``loop`` must carry sums only, and no carried argument may be among the needed ones.
    """
    sums = sum_types(loop, request)
    phases = [*_phases(loop, request)]
    bodies = {
        phase.body: vjp_body(loop, replace(phase, body=original), request, active=active, sums=True)
        for phase, original, active in phases
    }
    slices = [_slice(loop.results[i]) for i in request.given]
    return CountedLoop(
        count=loop.count,
        phases=[phase for phase, _, _ in phases],
        bodies=bodies,
        arguments=[*loop.arguments, *slices, *(None for _ in sums)],
        results=_results(loop, request),
        argument_types=[*loop.argument_types, *(loop.result_types[i] for i in request.given), *sums],
        result_types=_result_types(loop, request),
        label=f"{loop.label}_grad",
    )


def _phases(loop: CountedLoop, request: Request) -> Iterator[tuple[Phase, str, list[int]]]:
    """The phases with the name of the body each is the gradient of, and the results whose gradients count in it: that
    of the value of the last trip counts in the last trip alone, which is a phase of its own then.
    """
    always = [i for i in request.given if not isinstance(loop.results[i], Last)]
    if len(always) == len(request.given):
        yield from ((phase, phase.body, always) for phase in loop.phases)
        return
    phases = [phase for phase in loop.phases if phase.trips]
    yield from ((phase, phase.body, always) for phase in phases[:-1])
    final = phases[-1]
    if final.trips > 1:
        yield replace(final, trips=final.trips - 1), final.body, always
    start = final.start + (final.trips - 1) * final.tile
    yield Phase(start, 1, final.tile, f"{final.body}_last"), final.body, list(request.given)


def _results(loop: CountedLoop, request: Request) -> list[Leaves]:
    results: list[Leaves] = []
    total = len(loop.arguments) + len(request.given)
    for cut in (loop.arguments[position] for position in request.needed):
        results.append(Carried(total) if cut is None else Assembled(cut))
        total += cut is None
    return results


def _result_types(loop: CountedLoop, request: Request) -> list[TensorType]:
    sums = iter(sum_types(loop, request))
    kinds = ((loop.arguments[position], loop.argument_types[position]) for position in request.needed)
    return [next(sums) if cut is None else dense_type(kind) for cut, kind in kinds if kind is not None]


def _slice(result: Leaves) -> Slice | None:
    return result.slice if isinstance(result, Assembled) else None

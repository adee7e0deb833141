"""Unrolls loops into flat ops: an option of lowering, and the oracle for the addresses of loops.

A trip becomes a window: each tensor's advance is turned into constants of its device coordinates::

    LoopSpec(2, [op on c0 of advance 65536])   ->   op on c0, op on c0 + 512

so the addresses of the flat ops come from the layout alone, by another way than those of the affine maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import sympy

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.layout import steps_of, word_bytes
from spyre_fx.codegen.program import Execute, Program
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp
from spyre_fx.codegen.symbolic import at_largest, trip_count
from spyre_fx.codegen.tensor_dims import access_of, describe, label
from spyre_fx.codegen.trace import Dispatch, dispatches
from spyre_fx.errors.spec import ADDRESSES_DIFFER, BAD_SPEC, DISPATCHES_DIFFER, FILES_DIFFER, SYMBOLIC_UNROLL
from spyre_fx.target import Target


def unroll(specs: Sequence[Spec]) -> tuple[OpSpec | UnimplementedOp, ...]:
    """All ops of ``specs`` in the order in which they run, one per trip.

    Raises:
        LoweringError: for a loop whose count is known at launch only.
        SpecError: for an advance that leaves the buffer, or is not a step along its dims.
    """
    return tuple(_flat(specs, ()))


def unroll_windows(specs: Sequence[Spec], depth: int = 0) -> tuple[Spec, ...]:
    """``specs`` without the loops whose trips move along buffers in LX, where addresses are constants.

    for i in 2: [op on LX window i of y]    ->    op on window 0 of y, op on window 1 of y
    """
    found: list[Spec] = []
    for spec in specs:
        if not isinstance(spec, LoopSpec):
            found.append(spec)
            continue
        body = unroll_windows(spec.body, depth + 1)
        if any(map(partial(_moves_in_lx, depth=depth), body)):
            count, _, _ = trip_count(spec)
            assert isinstance(count, int), "only loops of known count move along LX"
            found += (_in_trip(inner, depth, trip) for trip in range(count) for inner in body)
        else:
            found.append(replace(spec, body=body))
    return tuple(found)


def _moves_in_lx(spec: Spec, depth: int) -> bool:
    match spec:
        case LoopSpec():
            return any(_moves_in_lx(inner, depth) for inner in spec.body)
        case OpSpec():
            return any("lx" in arg.allocation and arg.advance[depth] != 0 for arg in spec.args)
    return False


def _in_trip(spec: Spec, depth: int, trip: int) -> Spec:
    """``spec`` in one trip of the loop at ``depth``, without that loop."""
    match spec:
        case LoopSpec():
            return replace(spec, body=tuple(_in_trip(inner, depth, trip) for inner in spec.body))
        case OpSpec():
            args = tuple(
                replace(
                    arg,
                    advance=_without(arg.advance, depth),
                    device_coordinates=_moved(spec, arg, arg.advance[depth] * trip),
                )
                for arg in spec.args
            )
            return replace(spec, args=args, tiled_symbols=_without(spec.tiled_symbols, depth))
    return spec


def _without(entries: tuple[Any, ...], position: int) -> tuple[Any, ...]:
    return (*entries[:position], *entries[position + 1 :])


def _flat(specs: Sequence[Spec], trips: tuple[int, ...]) -> Iterator[OpSpec | UnimplementedOp]:
    for spec in specs:
        match spec:
            case LoopSpec():
                count, _, _ = trip_count(spec)
                if isinstance(count, str):
                    raise SYMBOLIC_UNROLL(count=spec.count)
                for trip in range(count):
                    yield from _flat(spec.body, (*trips, trip))
            case OpSpec():
                args = tuple(_at_trip(spec, arg, trips) for arg in spec.args)
                yield replace(spec, args=args, tiled_symbols=())
            case UnimplementedOp():
                yield spec


def _at_trip(spec: OpSpec, arg: TensorArg, trips: tuple[int, ...]) -> TensorArg:
    move = sum(stride * trip for stride, trip in zip(arg.advance, trips, strict=False))
    moved = replace(arg, advance=(), device_coordinates=_moved(spec, arg, move))
    access_of(spec, moved)
    return moved


def _moved(spec: OpSpec, arg: TensorArg, move: int) -> tuple[sympy.Expr, ...]:
    """The coordinates of ``arg``, ``move`` bytes further on."""
    *steps, lane = steps_of(arg.device_size, move // word_bytes(arg.device_dtype))
    if lane or move < 0 or move % word_bytes(arg.device_dtype):
        raise BAD_SPEC(
            found=f"an advance of {move} bytes of {label(spec, arg)}",
            where=describe(spec),
            expected="whole sticks",
            do="tile by whole sticks",
        )
    return tuple(at + step for at, step in zip(arg.device_coordinates, (*steps, 0), strict=True))


def check_unrolled(program: Program, specs: Sequence[Spec], target: Target | None = None) -> None:
    """Compare what ``program`` executes, trip by trip, with its specs unrolled: the addresses, and the files.

    Raises:
        SpecError: at the first dispatch that differs.
    """
    fixed, sizes = at_largest(specs)
    launch = _argument_addresses(specs) | sizes
    flat = build_program(unroll(fixed), target)
    looped, unrolled = list(dispatches(program, launch)), list(dispatches(flat, launch))
    if len(looped) != len(unrolled):
        raise DISPATCHES_DIFFER(looped=len(looped), flat=len(unrolled))
    for position, (one, other) in enumerate(zip(looped, unrolled, strict=True)):
        _compare(position, one, other)
        if _relative(program, one.execute) != _relative(flat, other.execute):
            raise FILES_DIFFER(position=position, looped=one.execute.file, flat=other.execute.file)


def _compare(position: int, looped: Dispatch, flat: Dispatch) -> None:
    for operand, (one, other) in enumerate(zip_longest(looped.addresses, flat.addresses)):
        if one != other:
            file, trips = looped.execute.file, looped.trips
            raise ADDRESSES_DIFFER(position=position, file=file, trips=trips, operand=operand, looped=one, flat=other)


def _relative(program: Program, execute: Execute) -> Any:
    """The op that a file describes, with its symbols numbered by operand."""
    operands = {str(identifier): f"operand {position}" for position, identifier in enumerate(execute.symbol_ids)}
    ((_, op),) = program.files[execute.file].items()
    ((name, dsc),) = op["dscs_"][0].items()
    starts = [
        [operands.get(start, start) for start in node["startAddressCoreCorelet_"]["data_"].values()]
        for node in dsc["scheduleTree_"]
    ]
    nodes = [{**node, "startAddressCoreCorelet_": None} for node in dsc["scheduleTree_"]]
    return name, starts, {**op, "dscs_": None, "debug_handle_": None}, {**dsc, "scheduleTree_": nodes}


def _argument_addresses(specs: Sequence[Spec]) -> dict[str, int]:
    """Address of each argument, by the name of its parameter."""
    addresses: dict[str, int] = {}
    for spec in specs:
        match spec:
            case LoopSpec():
                addresses |= _argument_addresses(spec.body)
            case OpSpec():
                for arg in spec.args:
                    if arg.arg_index >= 0:
                        addresses[f"arg_{arg.arg_index}"] = arg.allocation["hbm"]
    return addresses

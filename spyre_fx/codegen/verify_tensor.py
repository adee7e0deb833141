"""The verifier's rules for one tensor of an op: its form, and that no trip and no core leaves its buffer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import sympy

from spyre_fx.codegen.layout import core_ranges, lanes_of, padded_ranges, size_bytes, steps_of, word_bytes
from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.codegen.tensor_dims import access_of
from spyre_fx.target import Target


class Problem(NamedTuple):
    """A broken rule: what was found, what was expected, what to do."""

    found: str
    expected: str
    do: str


Problems = Iterator[Problem]


def check_shape(spec: OpSpec, position: int, arg: TensorArg, depth: int, target: Target) -> Problems:
    """Rules that need no address: sizes, coordinates, allocation, advance."""
    name = _name(position, arg)
    lanes = lanes_of(arg.device_dtype)
    if not arg.device_size or any(size < 1 for size in arg.device_size):
        yield Problem(f"device size {list(arg.device_size)} of {name}", "positive sizes", "give the buffer's layout")
    elif arg.device_size[-1] != lanes:
        yield Problem(
            f"{arg.device_size[-1]} lanes of {name}", f"{lanes}, as {arg.device_dtype} fills a stick", "correct it"
        )
    if len(arg.device_coordinates) != len(arg.device_size):
        yield Problem(
            f"{len(arg.device_coordinates)} coordinates for {len(arg.device_size)} device dims of {name}",
            "one per device dim",
            "correct it",
        )
    unknown = {symbol for coordinate in arg.device_coordinates for symbol in coordinate.free_symbols}
    unknown -= set(spec.iteration_space)
    if unknown:
        listed = ", ".join(sorted(map(str, unknown)))
        yield Problem(f"the symbols {listed} in coordinates of {name}", "iteration symbols", "correct them")
    yield from _allocation(name, arg)
    yield from _advance(spec, name, arg, depth, target)


def _allocation(name: str, arg: TensorArg) -> Problems:
    kinds = list(arg.allocation)
    if len(kinds) != 1 or kinds[0] not in ("hbm", "lx"):
        yield Problem(f"the allocation {arg.allocation} of {name}", "one address, in 'hbm' or 'lx'", "place it")
        return
    (address,) = arg.allocation.values()
    if not isinstance(address, int) or address < 0 or address % 128:
        yield Problem(f"{name} at byte {address}", "a multiple of 128 from 0 on", "align the buffer")
    if arg.arg_index < -1 or (arg.arg_index >= 0 and kinds[0] != "hbm"):
        yield Problem(
            f"argument {arg.arg_index} for {name} in {kinds[0]}", "-1, or an argument in HBM", "correct arg_index"
        )


def _advance(spec: OpSpec, name: str, arg: TensorArg, depth: int, target: Target) -> Problems:
    if len(arg.advance) not in (0, depth):
        yield Problem(
            f"{len(arg.advance)} advances of {name} in {depth} loops", "one per enclosing loop", "use 0 where it stays"
        )
        return
    if any(stride % target.stick_bytes for stride in arg.advance):
        yield Problem(
            f"advances {list(arg.advance)} of {name}",
            f"whole sticks of {target.stick_bytes} bytes",
            "tile the stick dim by whole sticks",
        )
    moving = [level for level, stride in enumerate(arg.advance) if stride]
    if moving and (arg.per_tile_fixed or "lx" in arg.allocation):
        why = "is fixed per tile" if arg.per_tile_fixed else "lies in LX"
        yield Problem(f"advances {list(arg.advance)} of {name}, which {why}", "no advance", "use 0")
    for level in moving:
        if level < len(spec.tiled_symbols) and spec.tiled_symbols[level] is None:
            yield Problem(f"{name} advances in loop {level}, of which the op has no axis", "no advance there", "use 0")


def check_range(spec: OpSpec, position: int, arg: TensorArg, counts: Sequence[int], target: Target) -> Problems:
    """Rules on addresses: the buffer lies in memory, and the last trip of all loops lies in the buffer."""
    name = _name(position, arg)
    yield from _memory(spec, name, arg, target)
    access = access_of(spec, arg)
    extents = padded_ranges(spec)
    last = [access.windows[symbol] + extents[symbol] for symbol in access.order]
    for level, (count, stride) in enumerate(zip(counts, arg.advance, strict=False)):
        if count == 1 or not stride:
            continue
        if steps_of(arg.device_size, stride // word_bytes(arg.device_dtype))[-1]:
            yield Problem(f"an advance of {stride} bytes of {name}", "a step along its dims", "recompute it")
            return
        moved = dict(zip(access.order, _by_symbol(spec, arg, stride), strict=True))
        yield from _direction(spec, name, level, moved)
        last = [at + (count - 1) * moved[symbol] for at, symbol in zip(last, access.order, strict=True)]
    for symbol, end in zip(access.order, last, strict=True):
        if end > access.extents[symbol]:
            yield Problem(
                f"{name} reaches element {end} along {symbol} in the last trip",
                f"at most {access.extents[symbol]}, the end of its buffer",
                "check window, tile and count",
            )


def _direction(spec: OpSpec, name: str, level: int, moved: Mapping[sympy.Symbol, int]) -> Problems:
    """A trip moves along the dims that its loop cuts, by a tile at least, so that tiles do not overlap."""
    entry = spec.tiled_symbols[level]
    cut = entry if isinstance(entry, tuple) else (entry,)
    for symbol, step in moved.items():
        if not step:
            continue
        tile = int(spec.iteration_space[symbol][0])
        if symbol not in cut or step < tile:
            yield Problem(
                f"{name} moves by {step} elements along {symbol} in loop {level}",
                f"a move along {', '.join(map(str, cut))} alone, by a tile at least",
                "recompute the advance from the layout of the full buffer",
            )


def _memory(spec: OpSpec, name: str, arg: TensorArg, target: Target) -> Problems:
    if "lx" in arg.allocation:
        extents, padded = core_ranges(spec), padded_ranges(spec)
        shares = [padded[symbol] // extents[symbol] for symbol in access_of(spec, arg).order]
        end = arg.allocation["lx"] + size_bytes(arg.device_size, arg.device_dtype) // math.prod(shares)
        if end > target.usable_lx_bytes:
            yield Problem(
                f"{name} ends at LX byte {end}", f"at most {target.usable_lx_bytes} on a core", "place it in HBM"
            )
        return
    start = arg.allocation["hbm"]
    end = start + size_bytes(arg.device_size, arg.device_dtype)
    segment = target.hbm_segment_bytes
    if end > segment * target.hbm_segments:
        yield Problem(f"{name} ends at HBM byte {end}", f"at most {segment * target.hbm_segments}", "use less memory")
    elif start // segment != (end - 1) // segment:
        yield Problem(f"{name} crosses byte {end // segment * segment}", "a buffer within one segment", "move it")


def _by_symbol(spec: OpSpec, arg: TensorArg, stride: int) -> list[int]:
    """An advance in bytes as elements along each dim of ``access_of``."""
    access = access_of(spec, arg)
    moved = dict.fromkeys(access.order, 0)
    steps = steps_of(arg.device_size, stride // word_bytes(arg.device_dtype))
    for coordinate, step in zip(arg.device_coordinates[:-1], steps[:-1], strict=True):
        # Where a tile is no wider than a stick, the coordinate that counts sticks has no symbol.
        for symbol in coordinate.free_symbols or {access.stick} & set(access.order):
            moved[symbol] += step * arg.device_size[-1] if symbol == access.stick else step
    return [moved[symbol] for symbol in access.order]


def _name(position: int, arg: TensorArg) -> str:
    role = "input" if arg.is_input else "output"
    return f"{role} {position}" + (f" ({arg.name})" if arg.name else "")

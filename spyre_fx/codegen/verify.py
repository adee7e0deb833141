"""The verifier of specs: every rule that a list of ``OpSpec``s and ``LoopSpec``s must keep before text is printed.

``verify_specs`` collects what is wrong into one error; each message names op, loop path, tensor and graph node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from spyre_fx.codegen.device_ops import DEVICE_OPS, OpKind
from spyre_fx.codegen.layout import cores_used, padded_ranges, stick_units
from spyre_fx.codegen.sdsc_dims import dims_and_operands
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp
from spyre_fx.codegen.symbolic import trip_count
from spyre_fx.codegen.tensor_dims import describe
from spyre_fx.codegen.verify_tensor import Problem, Problems, check_range, check_shape
from spyre_fx.errors import SpyreFxError, collect
from spyre_fx.errors.names import near
from spyre_fx.errors.spec import BAD_SPEC
from spyre_fx.target import Target


@dataclass(frozen=True)
class Place:
    """Where a spec stands: the loops around it, outermost first, and how many trips each makes at most."""

    path: str = ""
    counts: tuple[int, ...] = ()

    def inside(self, count: int) -> Place:
        name = f"loop {len(self.counts)} of {count}"
        return Place(f"{self.path} / {name}" if self.path else name, (*self.counts, count))


def verify_specs(specs: Sequence[Spec], target: Target | None = None) -> None:
    """Check all rules on all of ``specs``.

    Raises:
        SpecError: listing every broken rule.
        LoweringError: for an op, coordinate or layout that the device has no form for.
    """
    errors = list(_list(specs, Place(), target or Target()))
    if errors:
        raise collect(errors)


def _list(specs: Sequence[Any], place: Place, target: Target) -> Iterator[SpyreFxError]:
    for spec in specs:
        match spec:
            case LoopSpec():
                yield from _loop(spec, place, target)
            case OpSpec():
                yield from _op(spec, place, target)
            case UnimplementedOp() if not place.counts:
                continue
            case _:
                where = place.path or "the list of specs"
                yield BAD_SPEC(
                    found=f"a {type(spec).__name__}", where=where, expected="an OpSpec or LoopSpec", do="cut it out"
                )


def _loop(spec: LoopSpec, place: Place, target: Target) -> Iterator[SpyreFxError]:
    try:
        count, step, parameter = trip_count(spec)
    except SpyreFxError as error:
        yield error
        return
    largest = count if isinstance(count, int) else (parameter.max_value or 1) // step if parameter else 1
    inner = place.inside(largest)
    if not spec.body:
        yield BAD_SPEC(found="an empty body", where=inner.path, expected="an op at least", do="drop the loop")
    yield from _list(spec.body, inner, target)


def _op(spec: OpSpec, place: Place, target: Target) -> Iterator[SpyreFxError]:
    """Problems of the first stage that has any: later stages rely on the rules of earlier ones."""
    where = describe(spec, place.path)
    try:
        for stage in _STAGES:
            problems = [problem for rule in stage for problem in rule(spec, place, target)]
            yield from (BAD_SPEC(where=where, **problem._asdict()) for problem in problems)
            if problems:
                return
    except SpyreFxError as error:
        yield error


def _name(spec: OpSpec, place: Place, target: Target) -> Problems:
    if not isinstance(spec.op, str) or not spec.op:
        yield Problem(f"the op name {spec.op!r}", "a non-empty string", "name the op")
    elif spec.op not in DEVICE_OPS:
        yield Problem(f"device op {spec.op!r}{near(spec.op, DEVICE_OPS)}", "an op of the table", "decompose the op")
    if not isinstance(spec.is_reduction, bool):
        yield Problem(f"is_reduction {spec.is_reduction!r}", "a bool", "correct it")


def _space(spec: OpSpec, place: Place, target: Target) -> Problems:
    for symbol, (extent, split) in spec.iteration_space.items():
        if not isinstance(symbol, sympy.Symbol):
            yield Problem(f"the iteration symbol {symbol!r}", "a sympy Symbol", "correct it")
        if not sympy.sympify(extent).is_Integer or extent < 1:
            yield Problem(f"range {extent} of {symbol}", "a positive int", "give the tile's extent")
        if not isinstance(split, int) or isinstance(split, bool) or split < 1:
            yield Problem(f"{symbol} split over {split!r} cores", "a positive int", "use 1 for no split")


def _args(spec: OpSpec, place: Place, target: Target) -> Problems:
    if not all(isinstance(arg, TensorArg) for arg in spec.args):
        yield Problem("an argument that is no TensorArg", "TensorArgs", "correct it")
        return
    roles = [arg.is_input for arg in spec.args]
    if roles.count(False) != 1 or roles[-1:] != [False]:
        yield Problem(f"{roles.count(False)} outputs among {len(roles)} tensors", "inputs, then one output", "reorder")


def _tiled(spec: OpSpec, place: Place, target: Target) -> Problems:
    depth = len(place.counts)
    if len(spec.tiled_symbols) != depth:
        yield Problem(
            f"{len(spec.tiled_symbols)} tiled symbols in {depth} loops",
            "one entry per enclosing loop, outermost first",
            "use None at a level that the op has no axis of",
        )
    for level in spec.tiled_symbols:
        for symbol in level if isinstance(level, tuple) else () if level is None else (level,):
            if symbol not in spec.iteration_space:
                yield Problem(f"the tiled symbol {symbol!r}", "an iteration symbol", "correct it")


def _kind(spec: OpSpec, place: Place, target: Target) -> Problems:
    op = DEVICE_OPS[spec.op]
    inputs = sum(arg.is_input for arg in spec.args)
    if spec.is_reduction != op.is_reduction:
        yield Problem(f"is_reduction={spec.is_reduction}", f"{op.is_reduction} for {spec.op!r}", "correct it")
    if inputs not in op.input_counts:
        wanted = " or ".join(map(str, op.input_counts))
        yield Problem(f"{inputs} inputs", wanted, "give a tensor for each input; scalars are tensors too")
    elif inputs > op.inputs:
        yield from _total(spec, spec.args[inputs - 1], spec.args[-1])
    output = {symbol for coordinate in spec.args[-1].device_coordinates for symbol in coordinate.free_symbols}
    reduced = {symbol for symbol, (extent, _) in spec.iteration_space.items() if extent > 1} - output
    if op.kind is OpKind.POINTWISE:
        reduced -= _copies(spec)
    if op.kind is OpKind.POINTWISE and reduced:
        yield Problem(f"an output without {_names(reduced)}", "all symbols in its coordinates", "add them")


def _total(spec: OpSpec, total: TensorArg, output: TensorArg) -> Problems:
    """What an op adds its result to has the elements of the result, in its format."""
    if total.device_dtype != output.device_dtype:
        found, wanted = f"an accumulator in {total.device_dtype}", f"{output.device_dtype}, as the output has"
        yield Problem(found, wanted, "correct it")
    long = {symbol for symbol, (extent, _) in spec.iteration_space.items() if extent > 1}
    own, needed = (
        {symbol for coordinate in arg.device_coordinates for symbol in coordinate.free_symbols} & long
        for arg in (total, output)
    )
    if own != needed:
        yield Problem(f"an accumulator over {_names(own)}", f"{_names(needed)}, as the output has", "correct it")


def _copies(spec: OpSpec) -> set[sympy.Symbol]:
    """Symbols of an op with its output in LX that no tensor has: each core along them makes a copy of its own."""
    used = {symbol for arg in spec.args for coordinate in arg.device_coordinates for symbol in coordinate.free_symbols}
    whole = {symbol for symbol, (extent, split) in spec.iteration_space.items() if extent == split}
    return whole - used if "lx" in spec.args[-1].allocation else set()


def _constants(spec: OpSpec, place: Place, target: Target) -> Problems:
    constants = spec.op_info.get("constants", {})
    for name in DEVICE_OPS[spec.op].constants:
        if name not in constants and spec.op.startswith("mean"):
            yield Problem(f"no constant {name!r}", "a number", "set it in op_info['constants']")
    for name, value in constants.items():
        if isinstance(value, (int, float)) and not (isinstance(value, float) and math.isnan(value)):
            continue
        yield Problem(f"the constant {name} = {value!r}", "a number", "set it in op_info['constants']")


def _division(spec: OpSpec, place: Place, target: Target) -> Problems:
    used = cores_used(spec)
    if used > target.cores:
        yield Problem(f"work for {used} cores", f"at most {target.cores}", "split less")
    units, padded = stick_units(spec.args), padded_ranges(spec)
    for symbol, (_, split) in spec.iteration_space.items():
        unit = units.get(symbol, 1)
        if padded[symbol] % (split * unit):
            slices = f"equal slices of whole sticks ({unit} elements)" if unit > 1 else "equal slices"
            yield Problem(f"{symbol} of {padded[symbol]} over {split} cores", slices, "choose a divisor")


def _names(symbols: set[sympy.Symbol]) -> str:
    return ", ".join(sorted(map(str, symbols)))


def _tensor_shapes(spec: OpSpec, place: Place, target: Target) -> Problems:
    for position, arg in enumerate(spec.args):
        yield from check_shape(spec, position, arg, len(place.counts), target)


def _tensor_ranges(spec: OpSpec, place: Place, target: Target) -> Problems:
    dims_and_operands(spec)
    for position, arg in enumerate(spec.args):
        yield from check_range(spec, position, arg, place.counts, target)


Rule = Callable[[OpSpec, Place, Target], Problems]
_STAGES: tuple[tuple[Rule, ...], ...] = (
    (_name, _space, _args, _tiled),
    (_tensor_shapes,),
    (_kind, _constants, _division),
    (_tensor_ranges,),
)

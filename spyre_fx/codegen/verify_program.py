"""The verifier of programs: names, scopes, maps, files and the range of every address, whoever wrote the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spyre_fx.codegen.program import Apply, Execute, For, Program, Statement
from spyre_fx.errors import SpyreFxError, collect
from spyre_fx.errors.spec import BAD_PROGRAM
from spyre_fx.target import Target

Scope = Mapping[str, tuple[int, int]]
"""Least and greatest value of each name that may be used."""


def verify_program(
    program: Program, target: Target | None = None, arguments: Mapping[str, tuple[int, int]] | None = None
) -> None:
    """Check that ``program`` can run, and that no address leaves memory.

    Args:
        arguments: least and greatest value of each parameter that is an address; by default any address in memory.

    Raises:
        SpecError: listing everything that is wrong.
    """
    errors = list(_program(program, target or Target(), arguments or {}))
    if errors:
        raise collect(errors)


def _program(program: Program, target: Target, arguments: Mapping[str, tuple[int, int]]) -> Iterator[SpyreFxError]:
    scope: dict[str, tuple[int, int]] = {}
    for parameter in program.parameters:
        default = (0, 0) if parameter.max_value is None else (1, parameter.max_value)
        if parameter.name in scope:
            yield _bad(f"a second parameter {parameter.name}", "the parameters", "different names")
        scope[parameter.name] = arguments.get(parameter.name, default)
    for base in program.bases:
        if base.name in scope:
            yield _bad(f"a second base {base.name}", "the bases", "different names")
        if base.of and base.of not in scope:
            yield _bad(f"the unknown name {base.of}", f"base {base.name}", "a parameter or an earlier base")
            continue
        low, high = scope[base.of] if base.of else (0, 0)
        scope[base.name] = low + base.value, high + base.value
    for index, affine_map in enumerate(program.maps):
        if not affine_map.strides or affine_map in program.maps[:index]:
            yield _bad("an empty or repeated affine map", f"map {index}", "different maps of one stride at least")
    yield from _body(program, program.body, scope, "", target)
    yield from _files(program)


def _body(
    program: Program, body: Sequence[Statement], outer: Scope, path: str, target: Target
) -> Iterator[SpyreFxError]:
    scope = dict(outer)
    for position, statement in enumerate(body):
        where = f"{path}statement {position}"
        match statement:
            case Apply():
                yield from _apply(program, statement, scope, where)
            case Execute():
                yield from _execute(program, statement, scope, where, target)
            case For():
                yield from _for(program, statement, scope, where, target)
            case _:
                yield _bad(f"a {type(statement).__name__}", where, "an Apply, Execute or For")


def _apply(program: Program, statement: Apply, scope: dict[str, tuple[int, int]], where: str) -> Iterator[SpyreFxError]:
    unknown = [name for name in (statement.base, *statement.loops) if name not in scope]
    if unknown or statement.result in scope:
        yield _bad(f"the names {unknown or [statement.result]}", where, "names in scope, and a new one as the result")
        return
    if not 0 <= statement.map < len(program.maps):
        yield _bad(f"map {statement.map}", where, f"one of {len(program.maps)} maps")
        return
    strides = program.maps[statement.map].strides
    if len(strides) != len(statement.loops):
        yield _bad(f"a map of {len(strides)} dims on {len(statement.loops)} loops", where, "one loop per dim")
        return
    low, high = scope[statement.base]
    for stride, loop in zip(strides, statement.loops, strict=True):
        ends = [stride * end for end in scope[loop]]
        low, high = low + min(ends), high + max(ends)
    scope[statement.result] = low, high


def _execute(program: Program, statement: Execute, scope: Scope, where: str, target: Target) -> Iterator[SpyreFxError]:
    if statement.file not in program.files:
        yield _bad(f"the file {statement.file!r}", where, f"one of the {len(program.files)} files of the program")
    ids = statement.symbol_ids
    if len(ids) != len(statement.operands) or len(set(ids)) != len(ids) or any(identifier >= 0 for identifier in ids):
        found = f"symbol ids {list(ids)} for {len(statement.operands)} operands"
        yield _bad(found, where, "a negative id of its own for each operand")
    for operand in statement.operands:
        if operand not in scope:
            yield _bad(f"the unknown name {operand}", where, "a base, or an address of this or an outer body")
            continue
        low, high = scope[operand]
        top = target.hbm_segment_bytes * target.hbm_segments
        if low < 0 or high >= top:
            yield _bad(f"{operand} from byte {low} to {high}", where, f"addresses from 0 to {top}")
        if low % target.stick_bytes or high % target.stick_bytes:
            yield _bad(f"{operand} from byte {low} to {high}", where, f"whole sticks of {target.stick_bytes} bytes")


def _for(
    program: Program, statement: For, scope: dict[str, tuple[int, int]], where: str, target: Target
) -> Iterator[SpyreFxError]:
    if isinstance(statement.count, str):
        if statement.count not in scope:
            yield _bad(f"the unknown count {statement.count}", where, "a size parameter")
            return
        last = scope[statement.count][1] - statement.step
    else:
        last = statement.count - 1
        if statement.count < 1:
            yield _bad(f"{statement.count} trips", where, "one at least")
    if statement.step < 1 or (statement.step != 1 and isinstance(statement.count, int)):
        yield _bad(f"a step of {statement.step}", where, "1, or the tile of a symbolic count")
    if statement.variable in scope:
        yield _bad(f"the name {statement.variable} again", where, "an induction variable of its own")
    if not any(isinstance(inner, (Execute, For)) for inner in statement.body):
        yield _bad("a loop that executes nothing", where, "an op at least")
    inner = {**scope, statement.variable: (0, max(last, 0))}
    yield from _body(program, statement.body, inner, f"{where} / {statement.variable} / ", target)


def _files(program: Program) -> Iterator[SpyreFxError]:
    """Each file is named as its root key says, and knows the operands by the ids that its executes give."""
    executes = list(_executes(program.body))
    for name, data in program.files.items():
        root = next(iter(data), "") if isinstance(data, dict) else ""
        if name != f"sdsc_{root.partition('_')[0]}.json":
            yield _bad(f"the root {root!r}", name, "the index of the file name, then the op")
            continue
        used = [execute for execute in executes if execute.file == name]
        if not used:
            yield _bad("a file that nothing executes", name, "an execute of it")
        for execute in used:
            known = _symbols(data)
            if known != set(execute.symbol_ids):
                wanted = f"those of its execute, {list(execute.symbol_ids)}"
                yield _bad(f"symbols {sorted(known, reverse=True)}", name, wanted)


def _executes(body: Sequence[Statement]) -> Iterator[Execute]:
    for statement in body:
        match statement:
            case Execute():
                yield statement
            case For():
                yield from _executes(statement.body)


def _symbols(data: Mapping[str, Any]) -> set[int]:
    """The symbol ids in the start addresses of a SuperDSC; empty where it has not the form of one."""
    try:
        (op,) = data.values()
        (dsc,) = op["dscs_"][0].values()
        hbm = [node for node in dsc["scheduleTree_"] if node["component_"] == "hbm"]
        return {int(start) for node in hbm for start in node["startAddressCoreCorelet_"]["data_"].values()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return set()


def _bad(found: str, where: str, expected: str) -> SpyreFxError:
    return BAD_PROGRAM(found=found, where=where, expected=expected)

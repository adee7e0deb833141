"""Single changes of a generated program that make it wrong."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any

from spyre_fx.codegen.program import AffineMap, Base, Execute, For, Program, Statement, statements

Mutation = Callable[[Program, random.Random], Program]


def replaced(program: Program, chosen: Statement, change: Callable[[Any], Any]) -> Program:
    """``program`` with one of its statements changed."""

    def walk(body: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            change(at) if at is chosen else dataclasses.replace(at, body=walk(at.body)) if isinstance(at, For) else at
            for at in body
        )

    return dataclasses.replace(program, body=walk(program.body))


def changed_stride(program: Program, rng: random.Random) -> Program:
    maps = list(program.maps)
    at = rng.randrange(len(maps))
    strides = list(maps[at].strides)
    strides[rng.randrange(len(strides))] += 128 * rng.choice([-8, -1, 1, 2, 8])
    maps[at] = AffineMap(tuple(strides))
    return dataclasses.replace(program, maps=tuple(maps))


def changed_offset(program: Program, rng: random.Random) -> Program:
    bases = list(program.bases)
    at = rng.randrange(len(bases))
    bases[at] = Base(bases[at].name, bases[at].value + 128 * rng.choice([-1, 1, 8]), bases[at].of)
    return dataclasses.replace(program, bases=tuple(bases))


def changed_count(program: Program, rng: random.Random) -> Program:
    loops = [at for _, at in statements(program.body) if isinstance(at, For)]
    chosen, step = rng.choice(loops), rng.choice([-1, 1])
    return replaced(program, chosen, lambda at: dataclasses.replace(at, count=at.count + step))


def in_file(
    program: Program, rng: random.Random, suits: Callable[[Any, Any], bool], change: Callable[[Any, Any], None]
) -> Program:
    """One of the files for which ``suits`` holds, changed; both take the root and the op's own part."""
    files = copy.deepcopy(program.files)
    parts = [(root, body) for data in files.values() for root in data.values() for body in root["dscs_"][0].values()]
    change(*rng.choice([part for part in parts if suits(*part)]))
    return dataclasses.replace(program, files=files)


def changed_slice(program: Program, rng: random.Random) -> Program:
    def swap(root: Any, body: Any) -> None:
        one, other = rng.sample(sorted(root["coreIdToWkSlice_"]), 2)
        table = root["coreIdToWkSlice_"]
        table[one], table[other] = table[other], table[one]

    return in_file(program, rng, lambda root, body: root["numCoresUsed_"] > 1, swap)


def changed_lifetime(program: Program, rng: random.Random) -> Program:
    """A value in LX moves, partly or wholly, over another one."""

    def in_lx(root: Any, body: Any) -> bool:
        return any(node["component_"] == "lx" for node in body["scheduleTree_"])

    def move(root: Any, body: Any) -> None:
        node = rng.choice([node for node in body["scheduleTree_"] if node["component_"] == "lx"])
        starts, shift = node["startAddressCoreCorelet_"]["data_"], 128 * rng.choice([1, 2, 4])
        starts.update({core: str(int(start) + shift) for core, start in starts.items()})

    return in_file(program, rng, in_lx, move)


def changed_operands(program: Program, rng: random.Random) -> Program:
    """The addresses of one op, in another order."""
    executes = [at for _, at in statements(program.body) if isinstance(at, Execute) and len(set(at.operands)) > 1]

    def turned(at: Execute) -> Execute:
        return dataclasses.replace(at, operands=(*at.operands[1:], at.operands[0]))

    return replaced(program, rng.choice(executes), turned)


MUTATIONS: tuple[Mutation, ...] = (
    changed_stride,
    changed_offset,
    changed_count,
    changed_slice,
    changed_lifetime,
    changed_operands,
)

"""One random change of a generated program: a verifier or the device finds it, unless the values stay the same."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.program import AffineMap, Apply, Execute, For, Program, Statement, statements
from spyre_fx.errors import DeviceError, LoweringError, SpecError
from spyre_fx.target import Target
from tests.codegen.spec_samples import SAMPLES

STEPS = [128 * factor * sign for factor in (1, 2, 16, 64) for sign in (1, -1)]
SMALL = [name for name in SAMPLES if name != "canonical"]


def change_stride(program: Program, rng: random.Random) -> Program:
    index = rng.randrange(len(program.maps))
    strides = list(program.maps[index].strides)
    strides[rng.randrange(len(strides))] += rng.choice(STEPS)
    maps = [*program.maps[:index], AffineMap(tuple(strides)), *program.maps[index + 1 :]]
    return replace(program, maps=tuple(maps))


def change_base(program: Program, rng: random.Random) -> Program:
    index = rng.randrange(len(program.bases))
    base = program.bases[index]
    moved = replace(base, value=base.value + rng.choice(STEPS))
    return replace(program, bases=(*program.bases[:index], moved, *program.bases[index + 1 :]))


def change_count(program: Program, rng: random.Random) -> Program:
    loop = pick(program, For, rng)
    return put(program, loop, replace(loop, count=loop.count + rng.choice([-1, 1])))


def change_operands(program: Program, rng: random.Random) -> Program:
    execute = pick(program, Execute, rng)
    operands = list(execute.operands)
    rng.shuffle(operands)
    return put(program, execute, replace(execute, operands=tuple(operands)))


def change_loops(program: Program, rng: random.Random) -> Program:
    apply = pick(program, Apply, rng)
    return put(program, apply, replace(apply, loops=apply.loops[::-1]))


def change_file(program: Program, rng: random.Random) -> Program:
    files = copy.deepcopy(program.files)
    *path, last = rng.choice(list(numbers(files)))
    place: Any = files
    for key in path:
        place = place[key]
    step = rng.choice([-64, -1, 1, 2, 64])
    place[last] = place[last] + step if isinstance(place[last], int) else str(int(place[last]) + step)
    return replace(program, files=files)


def numbers(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every number, or text of one."""
    if isinstance(data, (dict, list)):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers(value, (*path, key))
    elif isinstance(data, int) or (isinstance(data, str) and data.lstrip("-").isdigit()):
        yield path


def pick(program: Program, kind: type, rng: random.Random) -> Any:
    return rng.choice([statement for _, statement in statements(program.body) if isinstance(statement, kind)])


def put(program: Program, old: Statement, new: Statement) -> Program:
    def changed(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            new if one is old else replace(one, body=changed(one.body)) if isinstance(one, For) else one for one in body
        )

    return replace(program, body=changed(program.body))


@cache
def case(name: str, bundle_format: str) -> tuple[Bundle, list[torch.Tensor], torch.Tensor]:
    sample = SAMPLES[name]()
    bundle, inputs = sample.bundle(Target(bundle_format=bundle_format)), sample.inputs()
    return bundle, inputs, bundle.run(*inputs)


CHANGES = {"stride": change_stride, "base": change_base, "count": change_count, "operands": change_operands,
           "loops": change_loops, "file": change_file}  # fmt: skip
WITH_LOOPS = ["tiled_matmul", "remainder"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_that_alters_a_value_is_found(kind, seed):
    rng = random.Random(f"{kind} {seed}")
    for _ in range(20 if kind == "file" else 5):
        name = rng.choice(WITH_LOOPS if kind in ("stride", "count", "loops") else SMALL)
        bundle, inputs, expected = case(name, rng.choice(["seed", "1.0"]))
        if kind == "base" and not bundle.programs[0].bases:
            continue
        changed = Bundle(bundle.lowered, (CHANGES[kind](bundle.programs[0], rng),))
        try:
            changed.verify()
            result = changed.run(*inputs)
        except (SpecError, DeviceError, LoweringError):
            continue
        assert torch.equal(result, expected), f"{name}: {kind}"

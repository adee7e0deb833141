"""Files and programs that contradict themselves are refused, with the spot named."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from spyre_fx.codegen.program import AffineMap, Apply, Execute, For, Parameter, Program
from spyre_fx.errors import SpecError
from tests.simulator.bench import C0, C1, Bench, loop, op

SPACE = {C0: (32, 8), C1: (128, 1)}


def looped() -> tuple[Bench, Program]:
    bench = Bench()
    source = bench.tensor("source", torch.randn(64, 128).half())
    target = bench.buffer("target", (64, 128))
    move = op(
        "identity", SPACE, bench.arg(source, (C0, C1), (4096,)), bench.arg(target, (C0, C1), (4096,), output=True)
    )  # fmt: skip
    return bench, bench.program(loop(2, move))


def body_of(data: dict[str, Any]) -> Any:
    (root,) = data.values()
    (body,) = root["dscs_"][0].values()
    return body


Change = Callable[[dict[str, Any], Any], None]


def _set(target: Any, *path: Any) -> None:
    *where, key, value = path
    for step in where:
        target = target[step]
    target[key] = value


FILE_CHANGES: dict[str, tuple[str, Change]] = {
    "extent": ("core slice of 'mb'", lambda root, body: _set(body, "N_", "mb_", 64)),
    "uneven": ("'mb' of 30 over 8 cores", lambda root, body: _set(body, "N_", "mb_", 30)),
    "split": ("core slice of 'mb'", lambda root, body: _set(root, "numWkSlicesPerDim_", "mb", 4)),
    "cores": ("numCoresUsed_ is 7", lambda root, body: _set(root, "numCoresUsed_", 7)),
    "no such dim": ("dims of the work slices", lambda root, body: _set(root, "numWkSlicesPerDim_", "x", 1)),
    "slice twice": (
        "slices that repeat", lambda root, body: _set(root, "coreIdToWkSlice_", "3", {"mb": 2, "out": 0}),
    ),
    "slice outside": (
        "or lie outside", lambda root, body: _set(root, "coreIdToWkSlice_", "3", {"mb": 8, "out": 0}),
    ),
    "stick size": (
        "stick size of Tensor0", lambda root, body: _set(body, "primaryDsInfo_", "OUTPUT", "stickSize_", [32]),
    ),
    "word": ("stick size of Tensor0", lambda root, body: _set(body, "labeledDs_", 0, "wordLength", 4)),
    "op name": ("op name", lambda root, body: _set(body, "computeOp_", 0, "opFuncName", "add")),
    "tensor": ("IndexError", lambda root, body: _set(body, "computeOp_", 0, "inputLabeledDs", ["Tensor9-idx9"])),
    "fold": (
        "core fold of Tensor0",
        lambda root, body: _set(
            body, "scheduleTree_", 0, "coordinates_", "coordInfo", "mb", "folds", "dim_prop_attr", 0, "factor_", 4
        ),
    ),
    "negative gap": (
        "negative gaps", lambda root, body: _set(body, "scheduleTree_", 0, "backGapCore_", {"mb": {"-1": "-16"}}),
    ),
    "broken stick": (
        "lanes left over", lambda root, body: _set(body, "scheduleTree_", 0, "backGapCore_", {"out": {"-1": "3"}}),
    ),
    "no dims": ("KeyError 'N_'", lambda root, body: body.pop("N_")),
    "text": ("ValueError", lambda root, body: _set(body, "N_", "mb_", "many")),
}  # fmt: skip


@pytest.mark.parametrize("change", sorted(FILE_CHANGES))
def test_a_file_that_contradicts_itself(change: str) -> None:
    bench, program = looped()
    words, apply = FILE_CHANGES[change]
    files = copy.deepcopy(program.files)
    (root,) = files["sdsc_0.json"].values()
    apply(root, body_of(files["sdsc_0.json"]))
    with pytest.raises(SpecError, match=words) as caught:
        bench.run_program(dataclasses.replace(program, files=files))
    assert "sdsc_0.json" in str(caught.value)


def test_an_op_that_the_device_lacks() -> None:
    bench, program = looped()
    text = {"0_identty": {**program.files["sdsc_0.json"]["0_identity"], "dscs_": [{"identty": {}}]}}
    with pytest.raises(SpecError, match=r"op 'identty'.*did you mean 'identity'"):
        bench.run_program(dataclasses.replace(program, files={"sdsc_0.json": text}))


def test_more_cores_than_the_device_has() -> None:
    bench, program = looped()
    few = Bench(dataclasses.replace(bench.target, cores=4))
    with pytest.raises(SpecError, match=r"work for 8 cores. Expected at most 4 of them"):
        few.device.run(program)


def edit(program: Program, **changes: Any) -> Program:
    """``program`` with the fields of its only execute changed."""
    (outer,) = program.body
    assert isinstance(outer, For)
    inside = tuple(dataclasses.replace(at, **changes) if isinstance(at, Execute) else at for at in outer.body)
    return dataclasses.replace(program, body=(dataclasses.replace(outer, body=inside),))


def test_a_program_with_a_loose_end() -> None:
    bench, program = looped()
    (outer,) = program.body
    cases = {
        "no file 'sdsc_7.json'": edit(program, file="sdsc_7.json"),
        "operand 'nobody'": edit(program, operands=("nobody", "addr_1")),
        "one operand for each symbol": edit(program, symbol_ids=(-1, -5)),
        "buffer names": edit(program, values=("source",)),
        "a map of 2 dims over 1 loops": dataclasses.replace(program, maps=(AffineMap((1, 2)),)),
        "known map": dataclasses.replace(program, maps=()),
        "known base": dataclasses.replace(program, bases=()),
        "unknown number 'dim_s'": dataclasses.replace(program, body=(dataclasses.replace(outer, count="dim_s"),)),
        "steps of 0": dataclasses.replace(program, body=(dataclasses.replace(outer, step=0),)),
    }
    for words, broken in cases.items():
        with pytest.raises(SpecError, match=words):
            bench.run_program(broken)


def test_an_address_is_not_known_outside_its_loop() -> None:
    bench, program = looped()
    (outer,) = program.body
    (execute,) = (at for at in outer.body if isinstance(at, Execute))
    with pytest.raises(SpecError, match="operand 'addr_0'"):
        bench.run_program(dataclasses.replace(program, body=(outer, execute)))


def test_an_address_by_a_loop_that_is_not_around_it() -> None:
    bench, program = looped()
    (outer,) = program.body
    applies = tuple(dataclasses.replace(at, loops=("i_9",)) if isinstance(at, Apply) else at for at in outer.body)
    with pytest.raises(SpecError, match="loops around it"):
        bench.run_program(dataclasses.replace(program, body=(dataclasses.replace(outer, body=applies),)))


def test_a_missing_parameter() -> None:
    bench, _ = looped()
    bench.target = dataclasses.replace(bench.target, bundle_format="1.0")
    source, target = bench.buffers
    move = op("identity", SPACE, bench.arg(source, ((C0), C1)), bench.arg(target, (C0, C1), output=True))
    with pytest.raises(SpecError, match="no value for arg_0, arg_1"):
        bench.device.run(bench.program(move))


def test_a_loop_over_a_size_counts_elements() -> None:
    """``scf.for i = 0 to s step 32`` with addresses of 128 bytes per row."""
    bench, program = looped()
    (outer,) = program.body
    symbolic = dataclasses.replace(
        program,
        maps=(AffineMap((128,)),),
        body=(dataclasses.replace(outer, count="dim_s", step=32),),
        parameters=(Parameter("dim_s", 32, 64),),
    )
    counters = bench.device.run(symbolic, {"dim_s": 64})
    assert counters.dispatches == 2
    assert bench.read(bench.buffers[1]).shape == (64, 128)
    assert bench.device.run(symbolic, {"dim_s": 0}).dispatches == 0
    with pytest.raises(SpecError, match="a loop to 33 in steps of 32"):
        bench.device.run(symbolic, {"dim_s": 33})

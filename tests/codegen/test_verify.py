"""The verifiers of specs and programs: every rule, by a spec or program that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sympy

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.program import AffineMap, Apply, Base, Execute, Parameter, Program
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp
from spyre_fx.codegen.verify import verify_specs
from spyre_fx.codegen.verify_program import verify_program
from spyre_fx.errors import LoweringError, SpecError
from spyre_fx.target import Target
from tests.codegen.spec_samples import C0, C1, SAMPLES, canonical

TARGETS = [Target(), Target(bundle_format="1.0")]


@pytest.mark.parametrize("name", SAMPLES)
def test_good_specs_and_programs_pass(name):
    specs = SAMPLES[name]().specs
    verify_specs(specs)
    for target in TARGETS:
        verify_program(build_program(specs, target), target)


def add() -> OpSpec:
    spec = canonical().specs[0].body[0].body[0]
    assert isinstance(spec, OpSpec)
    return spec


def nested(*body: Any) -> tuple[Spec, ...]:
    return (LoopSpec(2, (LoopSpec(4, body),)),)


def changed(**fields: Any) -> tuple[Spec, ...]:
    """The canonical addition with other fields."""
    return nested(replace(add(), **fields))


def with_arg(position: int, **fields: Any) -> tuple[Spec, ...]:
    """The canonical addition with one tensor changed."""
    args = list(add().args)
    args[position] = replace(args[position], **fields)
    return changed(args=tuple(args))


def space(**changes: Any) -> dict[sympy.Symbol, Any]:
    return {C0: changes.get("c0", (512, 32)), C1: changes.get("c1", (1024, 1))}


BAD_SPECS: dict[str, tuple[tuple[Any, ...], str]] = {
    "not a spec": ((3,), r"a int in the list of specs"),
    "empty body": ((LoopSpec(2, ()),), r"an empty body in loop 0 of 2"),
    "host op in a loop": (nested(UnimplementedOp("sort")), r"a UnimplementedOp in loop 0 of 2 / loop 1 of 4"),
    "no name": (changed(op=""), r"the op name ''"),
    "unknown op": (changed(op="ad"), r"'ad' \(did you mean 'add'\?\) in op 'ad' \(loop 0 of 2 / loop 1 of 4\)"),
    "is_reduction": (changed(is_reduction=1), r"is_reduction 1 .*a bool"),
    "reduction flag": (changed(is_reduction=True), r"is_reduction=True .* Expected False for 'add'"),
    "symbol": (changed(iteration_space={**space(), "c2": (1, 1)}), r"iteration symbol 'c2'"),
    "range": (changed(iteration_space=space(c0=(0, 1))), r"range 0 of c0"),
    "symbolic range": (changed(iteration_space=space(c0=(sympy.Symbol("s"), 1))), r"range s of c0"),
    "split": (changed(iteration_space=space(c0=(512, 0))), r"c0 split over 0 cores"),
    "split of a bool": (changed(iteration_space=space(c0=(512, True))), r"c0 split over True cores"),
    "uneven split": (changed(iteration_space=space(c0=(512, 7))), r"c0 of 512 over 7 cores.*equal slices"),
    "split stick": (changed(iteration_space=space(c0=(512, 1), c1=(1024, 32))), r"c1 of 1024 over 32 .*whole sticks"),
    "too many cores": (changed(iteration_space=space(c1=(1024, 2))), r"work for 64 cores.*at most 32"),
    "no output": (with_arg(2, is_input=True), r"0 outputs among 3 tensors"),
    "output first": (changed(args=(add().args[2], *add().args[:2])), r"inputs, then one output"),
    "no tensor": (changed(args=(1, 2)), r"no TensorArg"),
    "one input": (changed(args=add().args[1:]), r"1 inputs .*Expected 2"),
    "depth": (changed(tiled_symbols=(C0,)), r"1 tiled symbols in 2 loops"),
    "unknown tiled symbol": (changed(tiled_symbols=(C0, sympy.Symbol("c7"))), r"the tiled symbol c7"),
    "lanes": (with_arg(0, device_size=(64, 1024, 32)), r"32 lanes of input 0 \(a\).*64, as SEN169_FP16"),
    "format": (with_arg(0, device_dtype="FP12"), r"device format 'FP12'"),
    "empty size": (with_arg(0, device_size=()), r"device size \[\] of input 0"),
    "zero size": (with_arg(0, device_size=(0, 1024, 64)), r"device size \[0, 1024, 64\]"),
    "coordinates": (with_arg(0, device_coordinates=(C0, C1)), r"2 coordinates for 3 device dims"),
    "foreign symbol": (with_arg(0, device_coordinates=(sympy.Symbol("q"), C0, 0)), r"the symbols q in coordinates"),
    "two allocations": (with_arg(0, allocation={"hbm": 0, "lx": 0}), r"the allocation .* of input 0 \(a\)"),
    "pool": (with_arg(0, allocation={"pool": 0}), r"one address, in 'hbm' or 'lx'"),
    "unaligned": (with_arg(0, allocation={"hbm": 64}), r"input 0 \(a\) at byte 64.*multiple of 128"),
    "negative address": (with_arg(0, allocation={"hbm": -128}), r"at byte -128"),
    "argument in LX": (with_arg(2, arg_index=4), r"argument 4 for output 2 \(y\) in lx"),
    "arg_index": (with_arg(0, arg_index=-2), r"argument -2"),
    "advances": (with_arg(0, advance=(65536,)), r"1 advances of input 0 \(a\) in 2 loops"),
    "part of a stick": (with_arg(0, advance=(65536, 64)), r"whole sticks of 128 bytes"),
    "fixed and advancing": (with_arg(0, per_tile_fixed=True), r"is fixed per tile"),
    "advance in LX": (with_arg(2, per_tile_fixed=False, advance=(0, 128)), r"which lies in LX"),
    "advance without axis": (changed(tiled_symbols=(C0, None)), r"advances in loop 1, of which the op has no axis"),
    "past the end": (with_arg(0, advance=(65536, 2 * 2097152)), r"reaches element 7168 along c1 in the last trip"),
    "wrong dim": (with_arg(0, advance=(4194304, 2048)), r"moves by 2048 elements along c1 in loop 0.*along c0 alone"),
    "overlap": (with_arg(0, advance=(32768, 2097152)), r"moves by 256 elements along c0 in loop 0"),
    "past LX": (with_arg(2, allocation={"lx": 1625344 - 32768 + 128}), r"ends at LX byte 1625472"),
    "past HBM": (with_arg(0, allocation={"hbm": 7 * (1 << 34) - 128}), r"ends at HBM byte"),
    "crossing segments": (with_arg(0, allocation={"hbm": (1 << 34) - 128}), r"crosses byte 17179869184"),
    "lost dim": (with_arg(2, device_size=(16, 64), device_coordinates=(sympy.floor(C1 / 64), sympy.Mod(C1, 64))),
                 r"an output without c0"),
    "constant": (changed(op_info={"constants": {"x": "y"}}), r"the constant x = 'y'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_SPECS)
def test_bad_specs_are_refused_with_the_spot(name):
    specs, words = BAD_SPECS[name]
    with pytest.raises(SpecError, match=words):
        verify_specs(specs)


@pytest.mark.parametrize("count", [0, -2, sympy.Symbol("s"), sympy.Rational(1, 2)])
def test_bad_counts_are_refused(count):
    with pytest.raises(LoweringError, match="the loop count"):
        verify_specs((LoopSpec(count, (add(),)),))


def test_what_has_no_form_keeps_its_class():
    lane = with_arg(0, device_coordinates=(sympy.floor(C1 / 64), C0, sympy.Mod(C1 + 1, 64)))
    with pytest.raises(LoweringError, match="no lane shift exists"):
        verify_specs(lane)


def test_all_problems_are_listed_at_once():
    bad = replace(add(), op="ad", tiled_symbols=(C0,), origin="%add in model.py:7")
    with pytest.raises(SpecError) as caught:
        verify_specs(nested(bad, bad))
    assert len(caught.value.problems) == 4
    assert all("%add in model.py:7" in problem for problem in caught.value.problems)


def test_a_mean_needs_its_factor():
    sample = SAMPLES["stick_sum"]()
    with pytest.raises(SpecError, match="no constant 'scaling_factor'"):
        verify_specs((replace(sample.specs[0], op="mean"),))


def test_a_window_in_a_loop_over_single_sticks():
    """Where a tile is one stick wide, no coordinate counts its sticks, but the advance does."""
    x, z = SAMPLES["row_sum"]().tensors
    args = (x.at(0, C1, C0, advance=(96 * 128,)), z.at(0, C0, advance=(128,), output=True))
    spec = OpSpec("sumnonstick", True, {C0: (64, 1), C1: (96, 1)}, args, tiled_symbols=(C0,))
    verify_specs((LoopSpec(4, (spec,)),))
    with pytest.raises(SpecError, match="reaches element 320 along c0"):
        verify_specs((LoopSpec(5, (spec,)),))


def program() -> Program:
    return build_program(canonical().specs)


def edited(edit: Callable[[list[Any]], Any]) -> Program:
    """The canonical program with its inner body changed in place."""
    whole = program()
    (outer,) = whole.body
    (inner,) = outer.body
    body = list(inner.body)
    edit(body)
    return replace(whole, body=(replace(outer, body=(replace(inner, body=tuple(body)),)),))


def put(position: int, **fields: Any) -> Program:
    def edit(body: list[Any]) -> None:
        body[position] = replace(body[position], **fields)

    return edited(edit)


def outer_loop(**fields: Any) -> Program:
    whole = program()
    return replace(whole, body=(replace(whole.body[0], **fields),))


def without_symbols() -> dict[str, Any]:
    data = program().files["sdsc_0.json"]
    return {**program().files, "sdsc_0.json": {key: {**op, "dscs_": []} for key, op in data.items()}}


BAD_PROGRAMS: dict[str, tuple[Program, str]] = {
    "unknown base": (put(0, base="sym_9"), r"names \['sym_9'\] at statement 0 / i_0 / statement 0 / i_1 / statement 0"),
    "unknown loop": (put(0, loops=("i_0", "i_7")), r"i_7"),
    "result again": (put(1, result="addr_0"), r"addr_0.*a new one as the result"),
    "unknown map": (put(0, map=3), r"map 3"),
    "arity": (put(0, loops=("i_0",)), r"a map of 2 dims on 1 loops"),
    "unknown operand": (put(2, operands=("addr_0", "addr_9")), r"the unknown name addr_9"),
    "ids": (put(2, symbol_ids=(-1,)), r"symbol ids \[-1\] for 2 operands"),
    "positive id": (put(2, symbol_ids=(-1, 2)), r"a negative id of its own"),
    "repeated id": (put(2, symbol_ids=(-1, -1)), r"a negative id of its own"),
    "other ids": (put(2, symbol_ids=(-1, -7)), r"symbols \[-1, -2\] at sdsc_0.json.*\[-1, -7\]"),
    "no file": (put(2, file="sdsc_5.json"), r"the file 'sdsc_5.json'"),
    "unused file": (edited(lambda body: body.pop(2)), r"a file that nothing executes at sdsc_0.json"),
    "use before": (edited(lambda body: body.insert(0, body.pop(2))), r"the unknown name addr_0"),
    "no statement": (edited(lambda body: body.append("execute")), r"a str"),
    "no trips": (outer_loop(count=0), r"0 trips"),
    "step": (outer_loop(step=2), r"a step of 2"),
    "unknown count": (outer_loop(count="dim_s"), r"the unknown count dim_s"),
    "loop variable": (outer_loop(variable="sym_1"), r"the name sym_1 again"),
    "idle loop": (replace(program(), body=(replace(program().body[0], body=()),), files={}), r"executes nothing"),
    "base twice": (replace(program(), bases=(Base("sym_1", 0), *program().bases)), r"a second base sym_1"),
    "base of nothing": (replace(program(), bases=(*program().bases, Base("x_core_1", 1, "x"))), r"the unknown name x"),
    "negative": (replace(program(), bases=(Base("sym_1", -256), *program().bases[1:])), r"addresses from 0"),
    "out of memory": (outer_loop(count=1 << 24), r"addresses from 0 to"),
    "part of a stick": (replace(program(), maps=(AffineMap((65536, 64)),)), r"whole sticks of 128 bytes"),
    "empty map": (replace(program(), maps=(*program().maps, AffineMap(()))), r"an empty or repeated affine map"),
    "root": (replace(program(), files={**program().files, "sdsc_0.json": {"7_add": {}}}), r"the root '7_add'"),
    "no object": (replace(program(), files={**program().files, "sdsc_0.json": []}), r"the root ''"),
    "no symbols": (replace(program(), files=without_symbols()), r"symbols \[\]"),
    "parameters": (replace(program(), parameters=(Parameter("arg_0"),) * 2), r"a second parameter arg_0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_bad_programs_are_refused_with_the_spot(name):
    bad, words = BAD_PROGRAMS[name]
    with pytest.raises(SpecError, match=words):
        verify_program(bad)


def test_addresses_are_checked_from_the_arguments_on():
    target = Target(bundle_format="1.0")
    built = build_program(canonical().specs, target)
    top = target.hbm_segment_bytes * target.hbm_segments
    verify_program(built, target, {"arg_0": (0, top - (8 << 20))})
    with pytest.raises(SpecError, match="addresses from 0"):
        verify_program(built, target, {"arg_0": (top, top)})


def test_unknown_kinds_do_not_crash():
    assert isinstance(Apply("addr_0", 0, (), "sym_1"), Apply)
    with pytest.raises(SpecError):
        verify_program(Program((), (), (Execute("sdsc_0.json", ("x",), (-1,)),)))


def test_rules_name_tensors_without_a_name_by_position():
    arg = add().args[0]
    bad = replace(arg, name="", allocation={"hbm": 1})
    assert isinstance(bad, TensorArg)
    with pytest.raises(SpecError, match=r"input 0 at byte 1"):
        verify_specs(changed(args=(bad, *add().args[1:])))

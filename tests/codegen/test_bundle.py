"""Bundles: run, report, save, load, and every way in which saved files can be wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

import spyre_fx
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lower import bundle_of
from spyre_fx.codegen.lowered import HostStep, Lowered, Value
from spyre_fx.codegen.specs import UnimplementedOp
from spyre_fx.errors import SpecError
from spyre_fx.target import Target
from tests.codegen.bundle_samples import TwoPrograms
from tests.codegen.spec_samples import SAMPLES, canonical, untiled_add

TARGETS = [Target(), Target(bundle_format="1.0")]
aten = torch.ops.aten


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.bundle_format)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_run_before_and_after_saving(name, target, tmp_path):
    pytest.importorskip("xdsl")
    sample = SAMPLES[name]()
    bundle, inputs = sample.bundle(target), sample.inputs()
    result, expected = bundle.run(*inputs), sample.expected(*inputs)
    assert result.dtype == expected.dtype
    if sample.exact:
        assert torch.equal(result, expected)
    else:
        exact = sample.expected(*(value.double() for value in inputs))
        ulp = torch.finfo(expected.dtype).eps * exact.abs().max()
        assert (result - exact).abs().max() <= 2 * (expected - exact).abs().max() + ulp
    loaded = Bundle.load(bundle.save(tmp_path))
    assert loaded.programs == bundle.programs
    assert loaded.specs == bundle.specs
    assert torch.equal(loaded.run(*inputs), result)
    assert loaded.counters == bundle.counters


def test_canonical_figures():
    bundle = canonical().bundle()
    bundle.run(*canonical().inputs())
    counters = bundle.counters
    assert (counters.hbm_bytes, counters.lx_bytes, counters.lx_high_water) == (32 << 20, 16 << 20, 32768)
    assert counters.dispatches == 16
    assert bundle.argument_bytes == 32 << 20


def test_how_a_bundle_shows_itself(golden):
    bundle = TwoPrograms().bundle
    assert repr(canonical().bundle()) == "Bundle(1 program, 2 loops, 2 ops)"
    assert repr(bundle) == "Bundle(2 programs, 2 ops, 1 host step)"
    golden.check(f"{canonical().bundle()}\n\n{bundle}\n\n{SAMPLES['broadcast']().bundle()}")


def test_report_and_diff(golden):
    bundle = canonical().bundle()
    golden.check(f"{bundle.report()}\n\n{bundle.diff(canonical().bundle(unroll=True))}")
    assert "times the minimum" in bundle.report()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.bundle_format)
def test_programs_with_a_host_step_between(target, tmp_path):
    pytest.importorskip("xdsl")
    case = TwoPrograms(target)
    case.check(case.bundle)
    assert [type(spec) for spec in case.bundle.specs][1] is UnimplementedOp
    assert case.bundle.mlir().count("func.func @sdsc_bundle") == 2
    folder = case.bundle.save(tmp_path / "deep" / "out")
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "bundle.json", "wrapper.py", "constants/0.bin", "program_0/bundle.mlir", "program_0/sdsc_0.json",
        "program_1/bundle.mlir", "program_1/sdsc_0.json",
    }  # fmt: skip
    loaded = Bundle.load(folder)
    case.check(loaded)
    assert loaded.lowered.notes == case.lowered.notes
    assert loaded.lowered.target == case.lowered.target


def test_parameters_are_read_when_the_bundle_runs():
    case = TwoPrograms()
    case.scale.fill_(3.0)
    case.check(case.bundle)


def test_saving_twice_leaves_no_old_files(tmp_path):
    TwoPrograms().bundle.save(tmp_path)
    untiled_add().bundle().save(tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"bundle.json", "wrapper.py", "bundle.mlir", "sdsc_0.json"}


def test_saved_files_are_the_same_every_time(tmp_path):
    one, two = (TwoPrograms().bundle.save(tmp_path / name) for name in ("one", "two"))
    for path in one.rglob("*"):
        assert path.is_dir() or path.read_bytes() == (two / path.relative_to(one)).read_bytes()


def sum_of_rows(case: str) -> Bundle:
    """A bundle of host steps only."""
    steps = {
        "plain": HostStep(aten.sum.dim_IntList, (Value("x"), [1], True), {"dtype": torch.float64}, ("y",)),
        "leaves": HostStep(aten.max.dim, (Value("x"), 1), {}, (None, "y")),
        "function": HostStep(torch.sum, (Value("x"),), {}, ("y",)),
        "tensor": HostStep(aten.add.Tensor, (Value("x"), torch.ones(8)), {}, ("y",)),
        "infinite": HostStep(aten.clamp.default, (Value("x"), -math.inf, 0.5), {}, ("y",)),
    }
    types = (((4, 8), torch.float32),)
    return bundle_of(Lowered(Target(), ("x",), (Value("y"),), (), (), (steps[case],), input_types=types))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("plain", lambda x: x.sum(1, keepdim=True, dtype=torch.float64)),
        ("leaves", lambda x: x.max(1).indices),
        ("infinite", lambda x: x.clamp(max=0.5)),
    ],
)
def test_host_steps_survive_saving(case, expected, tmp_path):
    x = torch.randn(4, 8)
    bundle = sum_of_rows(case)
    for one in (bundle, Bundle.load(bundle.save(tmp_path))):
        assert torch.equal(one.run(x), expected(x))


@pytest.mark.parametrize("case", ["function", "tensor"])
def test_host_steps_that_no_file_can_hold_are_refused_before_writing(case, tmp_path):
    bundle = sum_of_rows(case)
    bundle.run(torch.randn(4, 8))
    with pytest.raises(SpecError, match=r"host step .*which no file can hold.*an op of torch\.ops"):
        bundle.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, r"^0 positional arguments\."),
        ((torch.zeros(512, 1024).half(),) * 3, {}, r"3 positional arguments \(Tensor, Tensor, Tensor\)"),
        ((torch.zeros(512, 1024).half(), 3.0), {}, r"a float for 'b'.*a tensor \[512, 1024\] of torch.float16"),
        ((torch.zeros(512, 1024), torch.zeros(512, 1024)), {}, r"of torch.float32 for 'a'"),
        ((torch.zeros(512).half(), torch.zeros(512).half()), {}, r"a tensor \[512\]"),
        ((), {"a": 1}, "0 positional arguments, and by name 'a'"),
    ],
)
def test_other_arguments_are_refused(args, kwargs, words):
    with pytest.raises(SpecError, match=words):
        untiled_add().bundle().run(*args, **kwargs)


def test_structures_of_arguments_are_checked():
    case = TwoPrograms()
    in_spec = pytree.tree_structure((({"x": 0},), {}))
    bundle = bundle_of(replace(case.lowered, in_spec=in_spec))
    assert torch.equal(bundle.run({"x": case.x})["z"], case.bundle.run(case.x)["z"])
    with pytest.raises(SpecError, match=r"1 positional argument \(Tensor\).*the structure"):
        bundle.run(case.x)
    assert "dispatches" in bundle.report()


def test_transposed_and_strided_inputs_run():
    sample = untiled_add()
    a, b = sample.inputs()
    twisted = a.t().contiguous().t()
    assert torch.equal(sample.bundle().run(twisted, b), a + b)


def test_results_have_the_recorded_strides():
    sample = untiled_add()
    lowered = sample.lowered()
    turned = replace(lowered.arguments[-1], stride=(1, 512))
    bundle = bundle_of(replace(lowered, arguments=(*lowered.arguments[:-1], turned)))
    a, b = sample.inputs()
    assert bundle.run(a, b).stride() == (1, 512)
    assert torch.equal(bundle.run(a, b), a + b)


def test_expanded_results_share_memory_as_they_do_in_eager():
    gm = spyre_fx.capture(lambda x: (x + 1).expand(4, 8), torch.zeros(1, 8))
    result = spyre_fx.lower(gm).run(torch.arange(8.0).reshape(1, 8))
    assert result.stride() == (0, 1)
    assert torch.equal(result, (torch.arange(8.0) + 1).expand(4, 8))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: Pair((x + 1) * 2, x.exp()), r"results of the structure Pair\(first=\*, second=\*\)"),
        (lambda x: (x + 1).max(1), r"torch\.return_types\.max\( values=\*, indices=\*\)"),
        (lambda x: {(1, 2): x + 1}, r"\{\(1, 2\): \*\}"),
    ],
)
def test_structures_that_no_file_can_hold_run_in_memory(fn, words, tmp_path):
    x = torch.randn(8, 64).half()
    gm = spyre_fx.capture(fn, x)
    first = gm.graph.find_nodes(op="placeholder")[0].next
    tiled = spyre_fx.tile(gm, [([first], 2)])
    assert tiled.graph.find_nodes(op="call_module")
    bundle = spyre_fx.lower(tiled)
    found, wanted = bundle.run(x), fn(x)
    assert type(found) is type(wanted)
    torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(wanted))
    with pytest.raises(SpecError, match=words):
        bundle.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_arguments_of_a_class_that_no_file_can_hold():
    pair = Pair(torch.randn(8, 64).half(), torch.randn(8, 64).half())
    gm = spyre_fx.capture(lambda pair: pair.first + pair.second, pair)
    bundle = spyre_fx.lower(spyre_fx.tile(gm, [(["add"], 2)]))
    assert torch.equal(bundle.run(pair), pair.first + pair.second)
    with pytest.raises(SpecError, match=r"arguments of the structure \(\(Pair\(first=\*, second=\*\),\), \{\}\)"):
        bundle.save("unused")

"""The wrapper source: what it looks like, and that it gives equal specs back."""

from __future__ import annotations

import math

import pytest
import sympy

from spyre_fx.codegen.prelude import namespace
from spyre_fx.codegen.source import print_source
from spyre_fx.codegen.source_read import read_source
from spyre_fx.codegen.specs import LoopSpec, OpSpec, TensorArg, UnimplementedOp
from spyre_fx.errors import SpecError
from tests.codegen.spec_samples import C0, C1, SAMPLES, canonical


def test_canonical_text(golden):
    golden.check(print_source({"sdsc_fused_add_mul_0": canonical().specs}))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_source_gives_equal_specs(name):
    specs = SAMPLES[name]().specs
    text = print_source({"kernel": specs, "host_1": (UnimplementedOp("aten.sort.default"),)})
    expected = {"kernel": specs, "host_1": (UnimplementedOp("aten.sort.default"),)}
    assert read_source(text) == expected
    for names in (namespace(), {}):
        exec(text, names)
        assert {key: names[key] for key in expected} == expected


def test_a_namespace_of_the_public_names_is_enough():
    names = {"OpSpec": OpSpec, "LoopSpec": LoopSpec, "TensorArg": TensorArg, "UnimplementedOp": UnimplementedOp}
    exec(print_source({"kernel": canonical().specs}), names)
    assert names["kernel"] == canonical().specs


def test_every_field_that_is_set_comes_back():
    tensor = TensorArg(False, 3, "IEEE_FP32", (2, 32), (C0 + 1, sympy.Mod(C1, 32)), {"hbm": 128}, False, (256,), "it's")
    info = {"constants": {"a": math.inf, "b": -1e-5, "c": 3, "d": True}, "list": [1, (2,)], "none": None}
    spec = OpSpec("abs", False, {C0: (1, 1), C1: (32, 1)}, (tensor,), info, ((C0, C1), None, C1), origin="here")
    loop = LoopSpec(sympy.sympify("floor(s/64)"), (spec,), {"s": (512, 64)}, {"s": (0, 1)})
    (read,) = read_source(print_source({"kernel": (loop,)}))["kernel"]
    assert read == loop
    assert read.body[0].op_info["constants"]["a"] == math.inf


def test_unset_fields_are_not_printed():
    text = print_source({"kernel": SAMPLES["untiled_add"]().specs})
    assert "tiled_symbols" not in text
    assert "advance" not in text
    assert "per_tile_fixed" not in text


@pytest.mark.parametrize(
    "text",
    [
        "import os\nk = os.system('true')",
        "k = __import__('os')",
        "k = async_compile.sdsc('k', [OpSpec(**{})])",
        "k = async_compile.sdsc('k', [sympify('__import__(1)')])",
        "k = async_compile.sdsc('k', [sympify('exec(1)')])",
        "k = async_compile.sdsc('k', [sympify('a.b')])",
        "k = [x for x in (1,)]",
        "k = (",
        "k = async_compile.sdsc('k', [OpSpec(op='add')])",
        "k = 1",
        "k = async_compile.other('k', [])",
    ],
)
def test_text_that_does_more_is_refused(text):
    with pytest.raises(SpecError, match=r"w\.py: .*Expected a wrapper source"):
        read_source(text, "w.py")

"""``bundle.mlir``: what is printed, and that reading it gives the program back."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import sympy

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.mlir import IRDL_FILE, print_program
from spyre_fx.codegen.mlir_parse import parse_program
from spyre_fx.codegen.specs import LoopSpec
from spyre_fx.errors import SpecError
from spyre_fx.target import Target
from tests.codegen.spec_samples import C0, C1, SAMPLES, canonical, half, matrix, op, place, untiled_add

SYNTAXES = ("spyre", "generic")
TARGETS = {"seed": Target(), "1.0": Target(bundle_format="1.0")}
MLIR_OPT = shutil.which("mlir-opt-22")


def symbolic():
    """A loop whose count is known at launch."""
    x, z = place(("x", half(512, 64)), ("z", half(512, 64)))
    at, advance = matrix(C0, C1), (64 * 128,)
    spec = op("abs", {C0: (64, 4), C1: (64, 1)}, x.at(*at, advance=advance), z.at(*at, advance=advance, output=True),
              tiled=(C0,))  # fmt: skip
    return (LoopSpec(sympy.sympify("floor(s/64)"), (spec,), {"s": (512, 64)}, {"s": (0, 0)}),)


def specs_of(name):
    return symbolic() if name == "symbolic" else SAMPLES[name]().specs


ALL = [*SAMPLES, "symbolic"]


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_canonical_text(golden, syntax):
    golden.check(print_program(build_program(canonical().specs), syntax))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_newest_format_text(golden, syntax):
    golden.check(print_program(build_program(SAMPLES["tiled_matmul"]().specs, TARGETS["1.0"]), syntax))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_symbolic_text(golden, syntax):
    golden.check(print_program(build_program(symbolic()), syntax))


def test_untiled_programs_have_no_loop_constants():
    text = print_program(build_program(untiled_add().specs))
    assert "scf.for" not in text
    assert "%c0" not in text
    assert "loop_bound" not in text
    assert '"symbol_ids"=[-1, -2, -3]' in text


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_reading_the_text_gives_the_program(name, target, syntax):
    pytest.importorskip("xdsl")
    program = build_program(specs_of(name), TARGETS[target])
    text = print_program(program, syntax)
    read = parse_program(text, program.files)
    assert read == program
    assert print_program(read, syntax) == text


@pytest.mark.skipif(MLIR_OPT is None, reason="needs mlir-opt-22")
@pytest.mark.parametrize("target", TARGETS)
def test_mlir_opt_accepts_the_generic_syntax(target):
    modules = [print_program(build_program(specs_of(name), TARGETS[target]), "generic") for name in ALL]
    assert run_mlir_opt("// -----\n".join(modules)) == ""


@pytest.mark.skipif(MLIR_OPT is None, reason="needs mlir-opt-22")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('sdsc_filename = "sdsc_0.json", ', "", 'attribute "sdsc_filename" is expected'),
        (", symbol_ids = [-1, -2]", "", 'attribute "symbol_ids" is expected'),
        ("sdsc_execute", "sdsc_exec", "sdsc_exec"),
        ("%sym_2 = arith.constant 8388608 : index", "%sym_2 = arith.constant 8388608 : i64", "index"),
    ],
)
def test_mlir_opt_refuses_what_is_no_bundle(old, new, message):
    text = print_program(build_program(canonical().specs), "generic")
    assert old in text
    assert message in run_mlir_opt(text.replace(old, new))


def run_mlir_opt(text):
    command = [MLIR_OPT, f"--irdl-file={IRDL_FILE}", "--split-input-file", "-o", "/dev/null"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False).stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("%addr_0 = affine.apply", "%addr_0 = affine.appl", "affine.appl"),
        ("[%sym_1]", "[%sym_9]", "sym_9"),
        ("65536*d0", "65536*d0*d0", "bundle.mlir"),
        ("s0 + 65536*d0", "2*s0 + 65536*d0", "not s0 plus multiples of dims"),
        ("s0 + 65536*d0", "s0 + 5 + 65536*d0", "not s0 plus multiples of dims"),
        ("s0 + 65536*d0", "s0 + d0 floordiv 2", "not linear"),
        ('sdsc_filename="sdsc_0.json", ', "", "sdsc_filename"),
        ("[-1, -2]", "[-1]", "1 symbol ids for 2 addresses"),
        ("[-1, -2]", "[-1, 2]", "negative"),
        ("@sdsc_bundle", "@other", "@sdsc_bundle"),
        ("scf.for %i_0 = %c0", "scf.for %i_0 = %c1", "begins elsewhere than at 0"),
        ("to %loop_bound_0", "to %i_0", "bundle.mlir"),
        ("return", "", "bundle.mlir"),
        ("module {", "module", "bundle.mlir"),
        ("%sym_4 = arith.constant 25165824 : index", "%sym_4 = arith.muli %c1, %c1 : index", "arith.muli"),
    ],
)
def test_bad_text_is_refused_by_name(old, new, words):
    pytest.importorskip("xdsl")
    text = print_program(build_program(canonical().specs))
    assert old in text
    with pytest.raises(SpecError) as caught:
        parse_program(text.replace(old, new, 1))
    assert "bundle.mlir" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "module {}", "garbage", "\x00", "module { func.func @sdsc_bundle() { return } } x"]
)
def test_text_that_is_no_bundle_is_refused(text):
    pytest.importorskip("xdsl")
    with pytest.raises(SpecError, match=r"bundle\.mlir: .*the MLIR of a bundle"):
        parse_program(text)


@pytest.mark.parametrize("bad", ['"', '"sdsc_0.json\\', '"\\q'], ids=["begun anew", "not ended", "an escape"])
@pytest.mark.parametrize("syntax", ["spyre", "generic"])
def test_a_string_that_does_not_end_is_refused_at_once(syntax, bad):
    """The lexer of xDSL would try every way to cut it into pieces."""
    text = print_program(build_program(canonical().specs), syntax)
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines) if "arith.constant" in line)
    lines[number] = bad + lines[number].strip() * 2
    with pytest.raises(SpecError, match=rf"a string in line {number + 1} that does not end, or an unknown escape"):
        parse_program("\n".join(lines))
    commented = text.replace("\n", '\n// a " quote\n', 1)
    assert parse_program(commented, build_program(canonical().specs).files) == build_program(canonical().specs)


def test_without_xdsl_the_error_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "spyre_fx.codegen.mlir_reader", None)
    with pytest.raises(SpecError, match=r"pip install 'spyre-fx\[mlir\]'"):
        parse_program("module {}")


def test_an_unknown_syntax_is_refused():
    with pytest.raises(SpecError, match=r"MLIR syntax 'llvm'.*'spyre' or 'generic'"):
        print_program(build_program(canonical().specs), "llvm")

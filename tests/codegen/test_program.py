"""Programs from specs: bases, maps, addresses, files, names."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy

from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.program import AffineMap, Apply, Base, Execute, For, Parameter, Program, statements
from spyre_fx.codegen.specs import LoopSpec, OpSpec, UnimplementedOp
from spyre_fx.codegen.trace import dispatches
from spyre_fx.errors import LoweringError, SpecError
from spyre_fx.target import Target
from tests.codegen.spec_samples import C0, C1, canonical, half, matmul, matrix, op, place, untiled_add

V1 = Target(bundle_format="1.0")


def of_kind(program: Program, kind: type) -> list:
    return [statement for _, statement in statements(program.body) if isinstance(statement, kind)]


def test_canonical_example():
    program = build_program(canonical().specs)
    assert program.maps == (AffineMap((65536, 2097152)),)
    assert program.bases == tuple(Base(f"sym_{index + 1}", index * 8 << 20) for index in range(4))
    (outer,) = program.body
    (inner,) = outer.body
    assert (outer.variable, outer.count, inner.variable, inner.count) == ("i_0", 2, "i_1", 4)
    loops = ("i_0", "i_1")
    assert inner.body == (
        Apply("addr_0", 0, loops, "sym_1"),
        Apply("addr_1", 0, loops, "sym_2"),
        Execute("sdsc_0.json", ("addr_0", "addr_1"), (-1, -2)),
        Apply("addr_2", 0, loops, "sym_3"),
        Apply("addr_3", 0, loops, "sym_4"),
        Execute("sdsc_1.json", ("addr_2", "addr_3"), (-3, -4)),
    )
    assert [next(iter(data)) for data in program.files.values()] == ["0_add", "1_mul"]


def test_untiled_ops_use_bases_and_no_loops():
    program = build_program(untiled_add().specs)
    assert not program.maps
    assert program.body == (Execute("sdsc_0.json", ("sym_1", "sym_2", "sym_3"), (-1, -2, -3)),)


def test_an_address_is_applied_once_in_the_outermost_body_where_its_loops_are_known():
    x, y, z = place(("x", half(256, 64)), ("y", half(256, 64)), ("z", half(256, 64)))
    at, space, rows = matrix(C0, C1), {C0: (16, 4), C1: (64, 1)}, 16 * 128
    outer_only = x.at(*at, advance=(4 * rows, 0))
    both = op(
        "add", space, outer_only, y.at(*at, advance=(4 * rows, rows)),
        z.at(*at, advance=(4 * rows, rows), output=True), tiled=(C0, C0),
    )  # fmt: skip
    inner = LoopSpec(4, (both,))
    after = op("abs", space, x.at(*at, advance=(4 * rows,)), z.at(*at, advance=(4 * rows,), output=True), tiled=(C0,))
    program = build_program((LoopSpec(4, (inner, inner, after)),))

    (loop,) = program.body
    kinds = [type(statement).__name__ for statement in loop.body]
    assert kinds == ["Apply", "For", "For", "Apply", "Execute"]
    assert loop.body[0] == Apply("addr_0", 0, ("i_0",), "sym_1"), "x moves in the outer loop only"
    shared = {execute.operands[0] for execute in of_kind(program, Execute)}
    assert shared == {"addr_0"}, "all three ops read x at one address"
    assert [apply.result for apply in of_kind(program, Apply)] == [f"addr_{index}" for index in range(6)]
    assert [loop.variable for loop in of_kind(program, For)] == ["i_0", "i_1", "i_2"]


def test_equal_addresses_share_a_base():
    sample = untiled_add()
    program = build_program(sample.specs * 2)
    assert len(program.bases) == 3
    assert [execute.symbol_ids for execute in of_kind(program, Execute)] == [(-1, -2, -3), (-4, -5, -6)]


def test_identical_ops_share_a_file_if_asked():
    sample = untiled_add()
    program = build_program(sample.specs * 3, share_files=True)
    assert list(program.files) == ["sdsc_0.json"]
    assert {execute.symbol_ids for execute in of_kind(program, Execute)} == {(-1, -2, -3)}
    assert len(build_program(sample.specs * 3).files) == 3


def test_per_core_symbols_of_the_newest_format():
    program = build_program(untiled_add().specs, V1)
    assert program.parameters == tuple(Parameter(f"arg_{index}") for index in range(3))
    (execute,) = program.body
    assert execute.symbol_ids == tuple(-index for index in range(1, 97))
    assert execute.operands[:3] == ("arg_0", "arg_0_core_2048", "arg_0_core_4096")
    assert program.bases[0] == Base("arg_0_core_2048", 2048, "arg_0")
    values = program.addresses({"arg_0": 0, "arg_1": 1 << 20, "arg_2": 2 << 20})
    assert values["arg_1_core_63488"] == (1 << 20) + 31 * 2048


def test_an_unsplit_operand_has_one_symbol_for_all_cores():
    (execute,) = build_program(matmul().specs, V1).body
    assert [name for name in execute.operands if name.startswith("arg_1")] == ["arg_1"]
    assert len(execute.operands) == 8 + 1 + 8


def test_windows_are_slices_of_the_argument():
    x, z = place(("x", half(100, 64)), ("z", half(32, 64)))
    spec = op("abs", {C0: (32, 2), C1: (64, 1)}, x.at(*matrix(C0 + 10, C1)), z.at(*matrix(C0, C1), output=True))
    program = build_program((spec,), V1)
    assert program.bases[:2] == (
        Base("arg_0_slice_1280", 1280, "arg_0"),
        Base("arg_0_slice_1280_core_2048", 2048, "arg_0_slice_1280"),
    )
    seed = build_program((spec,))
    assert seed.bases[0] == Base("sym_1", 1280)


def test_symbolic_counts_become_parameters_that_count_elements():
    x, z = place(("x", half(512, 64)), ("z", half(512, 64)))
    at, advance = matrix(C0, C1), (64 * 128,)
    spec = op("abs", {C0: (64, 4), C1: (64, 1)}, x.at(*at, advance=advance), z.at(*at, advance=advance, output=True),
              tiled=(C0,))  # fmt: skip
    loop = LoopSpec(sympy.sympify("floor(s/64)"), (spec,), {"s": (512, 64)}, {"s": (0, 0)})
    program = build_program((loop,))
    assert program.parameters == (Parameter("dim_s", 64, 512),)
    assert program.maps == (AffineMap((128,)),), "bytes per trip, divided by the tile"
    (statement,) = program.body
    assert (statement.count, statement.step) == ("dim_s", 64)
    rows = [dispatch.addresses[0] for dispatch in dispatches(program, {"dim_s": 192})]
    assert rows == [0, 8192, 16384]


@pytest.mark.parametrize("count", ["s + 1", "2*s", "floor((s + 1)/64)", "s/t", "0", "-1", "3/2"])
def test_other_counts_are_refused(count):
    loop = LoopSpec(sympy.sympify(count), untiled_add().specs, {"s": (512, 64)})
    with pytest.raises(LoweringError, match=r"loop count.*a positive int, a symbol"):
        build_program((loop,))


def test_a_symbol_without_bounds_is_refused():
    with pytest.raises(LoweringError, match="with bounds"):
        build_program((LoopSpec(sympy.Symbol("s"), untiled_add().specs),))


def test_a_host_op_inside_a_program_is_refused():
    with pytest.raises(SpecError, match=r"host op 'sort' inside a device program.*cut the graph"):
        build_program((UnimplementedOp("sort"),))


def test_dispatches_follow_the_loops():
    program = build_program(canonical().specs)
    traced = list(dispatches(program))
    assert len(traced) == 16
    assert traced[0].addresses == (0, 8 << 20)
    last = 65536 + 3 * 2097152
    assert traced[-1].trips == (1, 3)
    assert traced[-1].addresses == ((16 << 20) + last, (24 << 20) + last)


def test_values_name_the_buffers_and_take_no_part_in_equality():
    program = build_program(canonical().specs)
    execute = of_kind(program, Execute)[0]
    assert execute.values == ("a", "b", "y")
    assert execute == replace(execute, values=())


def test_an_op_without_hbm_operands_executes_with_none():
    add = canonical().specs[0].body[0].body[0]
    assert isinstance(add, OpSpec)
    y = add.args[-1]
    spec = replace(add, op="abs", args=(replace(y, is_input=True), y), tiled_symbols=())
    (execute,) = build_program((spec,)).body
    assert execute == Execute("sdsc_0.json", (), ())

"""Ops with more dims than labels: which dims are folded, and that every core still does the same with every element."""

from __future__ import annotations

import itertools

import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.codegen.folding import folded
from spyre_fx.codegen.layout import byte_offset, core_slices
from spyre_fx.codegen.sdsc_dims import dims_and_operands, surplus_dims
from spyre_fx.codegen.specs import OpSpec, TensorArg
from tests.codegen.device_runs import half, host_ops, specs_of
from tests.conformance.device import check
from tests.end_to_end.auto_blocks import made
from tests.end_to_end.test_auto_blocks import TARGETS

C = sympy.symbols("c0:9")


def arg(size, coordinates, address, *, is_input=True, kind="hbm"):
    names = {f"c{position}": symbol for position, symbol in enumerate(C)}
    return TensorArg(
        is_input, -1, "SEN169_FP16", size, [sympy.sympify(at, names) for at in coordinates], {kind: address},
        advance=(0,), name=f"t{address}",
    )  # fmt: skip


def product(extents, splits, *args, tiled=(None,)):
    space = {symbol: (extent, split) for symbol, extent, split in zip(C, extents, splits, strict=False)}
    return OpSpec("batchmatmul", True, space, args, tiled_symbols=tiled)


def batches(splits=(2, 1, 1, 1, 1, 2, 1, 1), offset=0, inner=3):
    """``[2, 3, 2, 2, 1, 4, 64] @ [2, 3, 2, 2, 1, 64, 64]``; ``inner`` is the buffers' size in dim 1."""
    batch = [f"c0 + {offset}", "c1", "c2", "c3", "c4"]
    sizes = [2 + offset, inner, 2, 2, 1]
    return product(
        (2, 3, 2, 2, 1, 4, 64, 64),
        splits,
        arg([*sizes, 4, 1, 64], [*batch, "c5", "floor(c7/64)", "Mod(c7, 64)"], 0),
        arg([*sizes, 64, 1, 64], [*batch, "c7", "floor(c6/64)", "Mod(c6, 64)"], 1024 * 128),
        arg([*sizes, 4, 1, 64], [*batch, "c5", "floor(c6/64)", "Mod(c6, 64)"], 4096 * 128, is_input=False),
        tiled=((C[1], C[4]),),
    )


def touched(spec):
    """For each core the addresses that it combines, in all tensors."""
    extents = {symbol: int(extent) // split for symbol, (extent, split) in spec.iteration_space.items()}
    small = {symbol: range(min(extent, 2)) if extent == 64 else range(extent) for symbol, extent in extents.items()}
    cores = []
    for slices in core_slices(spec):
        points = [
            {symbol: slices[symbol] * extents[symbol] + at for symbol, at in zip(small, index, strict=True)}
            for index in itertools.product(*small.values())
        ]
        cores.append({tuple(byte_offset(a, point) for a in spec.args) for point in points})
    return cores


@pytest.mark.parametrize("splits", [(1,) * 8, (2, 1, 1, 1, 1, 2, 1, 1), (1, 3, 1, 1, 1, 4, 1, 1)])
@pytest.mark.parametrize("offset", [0, 3])
def test_each_core_does_the_same_with_the_same_bytes(splits, offset):
    spec = batches(splits, offset)
    made = folded(spec)
    assert surplus_dims(spec) == 1 and surplus_dims(made) == 0
    assert touched(made) == touched(spec)
    assert [a.allocation for a in made.args] == [a.allocation for a in spec.args]
    dims_and_operands(made)


def test_a_dim_of_one_element_goes_first():
    made = folded(batches())
    assert [int(extent) for extent, _ in made.iteration_space.values()] == [2, 3, 2, 2, 4, 64, 64]
    assert made.tiled_symbols == (C[1],)


def test_two_dims_become_one_where_nothing_else_is_left():
    spec = batches()
    args = [TensorArg(a.is_input, -1, a.device_dtype, (*a.device_size[:4], 2, *a.device_size[5:]), a.device_coordinates,
                      a.allocation, advance=(0,), name=a.name) for a in spec.args]  # fmt: skip
    spec = product((2, 3, 2, 2, 2, 4, 64, 64), (2, 1, 1, 1, 1, 2, 1, 1), *args, tiled=((C[1], C[4]),))
    made = folded(spec)
    assert [int(extent) for extent, _ in made.iteration_space.values()] == [6, 2, 2, 2, 4, 64, 64]
    assert made.iteration_space[C[0]] == (6, 2) and made.tiled_symbols == ((C[0], C[4]),)
    assert touched(made) == touched(spec)


@pytest.mark.parametrize(
    ("splits", "inner"), [((1, 3, 2, 2, 1, 1, 1, 1), 3), ((2, 3, 2, 2, 1, 1, 1, 1), 4)], ids=["split", "longer buffer"]
)
def test_dims_that_are_not_one_stay(splits, inner):
    """A core would get another share of a dim whose inner part is split; beyond a longer buffer lies something else."""
    spec = batches(splits, inner=inner)
    made = folded(spec)
    assert touched(made) == touched(spec)
    assert [extent for extent, _ in made.iteration_space.values()][:4] == [2, 3, 2, 2]


def test_an_op_with_labels_enough_stays_as_it_is():
    spec = product(
        (2, 2, 64, 64), (1, 1, 1, 1),
        arg([2, 2, 1, 64], ["c0", "c1", "floor(c3/64)", "Mod(c3, 64)"], 0),
        arg([2, 64, 1, 64], ["c0", "c3", "floor(c2/64)", "Mod(c2, 64)"], 1024),
        arg([2, 2, 1, 64], ["c0", "c1", "floor(c2/64)", "Mod(c2, 64)"], 65536, is_input=False),
    )  # fmt: skip
    assert folded(spec) is spec


def tiled(function, args, dims, count=2):
    gm = make_fx(function, tracing_mode="fake")(*args)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    made = spyre_fx.tile(gm, [(ops, count, dims)])
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in made.modules())
    return gm, made


CASES = {
    "rows": (lambda a, b: a @ b, [(2, 2, 2, 2, 2, 8, 64), (2, 2, 2, 2, 2, 64, 64)], {"a_1": 5}),
    "a batch dim": (lambda a, b: a @ b, [(2, 2, 2, 2, 2, 8, 64), (2, 2, 2, 2, 2, 64, 64)], {"a_1": 1, "b_1": 1}),
    "nine dims": (lambda a, b: a + b, [(2,) * 9 + (64,), (2,) * 9 + (64,)], {"a_1": 8, "b_1": 8}),
    "a sum over one of nine": (lambda a: a.abs().sum(-1), [(64, *(2,) * 9)], {"a_1": 0}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_op_with_too_many_dims_runs_in_a_loop_on_the_device_in_every_form(case):
    torch.manual_seed(0)
    function, shapes, dims = CASES[case]
    args = [half(*shape) for shape in shapes]
    gm, made = tiled(function, args, dims)
    bundle = spyre_fx.lower(made)
    assert not host_ops(bundle) and "scf.for" in bundle.mlir()
    assert all(surplus_dims(spec) <= 0 for spec in specs_of(bundle))
    assert check(gm, made, args) == ("bit-equal", "")


def test_a_product_of_a_block_runs_on_the_device():
    """Attention of a ViT whose loops cut batch, heads and tokens: two of its product's dims have one element."""
    model, x = made("ViT")
    gm = spyre_fx.capture(model, x)
    bundle = spyre_fx.lower(spyre_fx.tile(gm, spyre_fx.auto_groups(gm, TARGETS["cpu"])))
    assert not host_ops(bundle) and "scf.for" in bundle.mlir()
    torch.testing.assert_close(bundle.run(x), model(x), rtol=1e-4, atol=1e-5)

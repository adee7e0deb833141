"""The canonical example, number for number, and how a lowered graph meets its host."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.codegen.lowered import DeviceStep, Value
from spyre_fx.codegen.specs import LoopSpec
from spyre_fx.errors import LoweringError
from spyre_fx.target import Target
from tests.codegen.device_runs import close, half, host_ops, lowered, same, specs_of

c0, c1 = sympy.symbols("c0 c1")


def add_mul(a, b, c):
    y = a + b
    return y * c


CANONICAL = [(2, [0]), (4, [1])]


@pytest.fixture(scope="module")
def canonical():
    torch.manual_seed(0)
    args = [half(1024, 4096) for _ in range(3)]
    return same(add_mul, *args, levels=CANONICAL)


def test_canonical_loops(canonical):
    (step,) = canonical.lowered.steps
    (outer,) = step.specs
    (inner,) = outer.body
    assert isinstance(outer, LoopSpec) and isinstance(inner, LoopSpec)
    assert (outer.count, inner.count) == (2, 4)
    assert [spec.op for spec in inner.body] == ["add", "mul"]
    assert step.name == "sdsc_fused_add_mul_0"


def test_canonical_ops(canonical):
    add, mul = specs_of(canonical)
    for spec in (add, mul):
        assert spec.iteration_space == {c0: (512, 32), c1: (1024, 1)}
        assert spec.tiled_symbols == (c0, c1)
        for arg in spec.args:
            assert arg.device_coordinates == (sympy.floor(c1 / 64), c0, sympy.Mod(c1, 64))
            assert arg.device_dtype == "SEN169_FP16"
    a, b, y = add.args
    read_y, c, z = mul.args
    assert [arg.device_size for arg in (a, b, c, z)] == [(64, 1024, 64)] * 4
    assert [arg.arg_index for arg in (a, b, c, z)] == [0, 1, 2, 3]
    assert [arg.advance for arg in (a, b, c, z)] == [(65536, 2097152)] * 4
    for arg in (y, read_y):
        assert arg.allocation == {"lx": 0} and arg.device_size == (16, 512, 64) and arg.per_tile_fixed
        assert arg.arg_index == -1 and arg.advance == (0, 0)
    assert [arg.is_input for arg in (a, b, y)] == [True, True, False]


def test_canonical_traffic(canonical):
    counters = canonical.counters
    assert counters.hbm_bytes == 32 << 20 and counters.lx_bytes == 16 << 20
    assert counters.lx_high_water == 32768 and counters.dispatches == 16
    assert canonical.mlir().count("affine.apply") == 4
    assert "s0 + 65536*d0 + 2097152*d1" in canonical.mlir()


def test_canonical_without_lx():
    args = [half(1024, 4096) for _ in range(3)]
    bundle = same(add_mul, *args, levels=CANONICAL, target=Target(lx_planning=False))
    (_, _, y), _ = (spec.args for spec in specs_of(bundle))
    assert y.allocation.keys() == {"hbm"} and y.per_tile_fixed and y.advance == (0, 0)
    assert y.device_size == (16, 512, 64)
    assert bundle.counters.hbm_bytes == 48 << 20


def test_the_graph_is_not_edited():
    graph = make_fx(add_mul)(half(64, 64), half(64, 64), half(64, 64))
    before = graph.code, [sorted(node.meta) for node in graph.graph.nodes]
    spyre_fx.lower(graph)
    assert before == (graph.code, [sorted(node.meta) for node in graph.graph.nodes])


def test_arguments_in_order_and_aligned():
    bundle = same(lambda a, b: (a + b[:3], b * 2), half(3, 70), half(5, 70))
    arguments = {argument.name: argument for argument in bundle.lowered.arguments}
    assert [(a.role, a.arg_index) for a in arguments.values() if a.arg_index >= 0] == [
        ("input", 0),
        ("input", 1),
        ("output", 2),
        ("output", 3),
    ]
    ends = [(a.address, a.address + a.layout.size_bytes) for a in arguments.values()]
    assert all(start % 128 == 0 for start, _ in ends)
    assert all(one[1] <= other[0] or other[1] <= one[0] for one in ends for other in ends if one is not other)


def test_a_tensor_never_crosses_a_segment():
    small = Target(hbm_segment_bytes=64 * 1024, hbm_segments=64)
    bundle = same(lambda a, b: a + b * 2, half(150, 128), half(150, 128), target=small)
    for argument in bundle.lowered.arguments:
        assert argument.address // 65536 == (argument.address + argument.layout.size_bytes - 1) // 65536
    with pytest.raises(LoweringError, match="one HBM segment"):
        lowered(lambda a: a + a, half(1024, 128), target=small)


def test_origin_names_node_and_line():
    model = torch.nn.Linear(64, 64).half()
    bundle = spyre_fx.lower(spyre_fx.capture(model, half(4, 64)))
    assert all("%addmm at " in spec.origin for spec in specs_of(bundle))


def test_parameters_are_read_when_the_bundle_runs():
    model = torch.nn.Linear(64, 64).half().requires_grad_(False)
    bundle = spyre_fx.lower(spyre_fx.capture(model, half(4, 64)))
    assert "ReStickifyOpHBM" not in [spec.op for spec in specs_of(bundle)], "parameters are laid out as they are wanted"
    model.weight.zero_()
    x = half(4, 64)
    assert torch.equal(bundle.run(x), model(x))


def test_host_ops_cut_the_program():
    def function(x):
        return torch.cumsum(x * 2, 1) + 1

    bundle = same(function, half(16, 64))
    assert [type(step).__name__ for step in bundle.lowered.steps] == ["DeviceStep", "HostStep", "DeviceStep"]
    assert host_ops(bundle) == ["aten.cumsum.default"]


def test_scratchpads_do_not_outlive_a_program():
    def function(x):
        y = x * 2
        return torch.cumsum(x, 1) + y

    bundle = same(function, half(16, 64))
    assert not any("lx" in arg.allocation for spec in specs_of(bundle) for arg in spec.args if arg.name == "mul")


def test_an_embedding_feeds_the_device():
    close_to = same(
        lambda ids, table: torch.nn.functional.embedding(ids, table) * 2, torch.randint(0, 10, (2, 8)), half(10, 64)
    )
    assert host_ops(close_to) == ["aten.embedding.default"]


def test_outputs_that_the_host_has():
    bundle = lowered(lambda x: (x, x.t(), x * 2, x * 2, 3, None), half(8, 64))
    x = half(8, 64)
    same_x, turned, one, other, number, nothing = bundle.run(x)
    assert same_x is x and turned.data_ptr() == x.data_ptr()
    assert torch.equal(one, x * 2) and torch.equal(other, one)
    assert number == 3 and nothing is None
    assert isinstance(bundle.lowered.outputs[0], Value)


def test_one_value_twice_among_the_outputs():
    def function(x):
        y = x * 2
        return {"a": y, "b": [y, y + 1]}

    bundle = same(function, half(8, 64))
    assert len([argument for argument in bundle.lowered.arguments if argument.role == "output"]) == 2


def test_writing_to_an_input_comes_last():
    def function(x):
        y = x * 2
        x.add_(1)
        return y

    bundle = lowered(function, half(8, 64))
    x = half(8, 64)
    before = x.clone()
    assert torch.equal(bundle.run(x), before * 2) and torch.equal(x, before + 1)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x * torch.rand(8, 64).half(), "draws random numbers"),
        (lambda x: x.add_(1) * x, "written last of all"),
        (lambda x: x[:0] + 1, "empty tensor"),
    ],
)
def test_refused_by_name(function, words):
    with pytest.raises(LoweringError, match=words):
        lowered(function, half(8, 64))


def test_symbolic_sizes_are_refused():
    graph = make_fx(lambda x: x + 1, tracing_mode="symbolic")(half(8, 64))
    with pytest.raises(LoweringError, match=r"symbolic size|symbol"):
        spyre_fx.lower(graph)


def test_lowering_is_the_same_every_time():
    args = [half(100, 256), half(256, 128)]

    def function(a, b):
        return torch.softmax(a @ b, -1)

    first, second = lowered(function, *args), lowered(function, *args)
    assert first.source() == second.source() and first.mlir() == second.mlir()


def test_a_device_step_holds_specs():
    bundle = close(lambda a: torch.softmax(a, -1), half(32, 128))
    assert [type(step) for step in bundle.lowered.steps] == [DeviceStep]

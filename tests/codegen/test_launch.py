"""Programs that are lowered once and launched at several sizes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import spyre_fx
from spyre_fx.errors import LoweringError, SpecError
from spyre_fx.transforms.fix_sizes import fix_sizes
from tests.codegen.device_runs import half

FORMATS = [spyre_fx.Target(), spyre_fx.Target(bundle_format="1.0")]


def fixed(function, *args, largest):
    gm = make_fx(function, tracing_mode="symbolic")(*args)
    return fix_sizes(gm, {f"{name}_1": dims for name, dims in largest.items()})


def tiled(graph, *levels, names=None):
    names = names or [node.name for node in graph.graph.nodes if node.op == "call_function"]
    result = spyre_fx.tile(graph, [(names, list(levels))])
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in result.modules())
    return result


def check(found, function, args):
    """The numerics rule, against float64."""
    best, eager = function(*(arg.double() for arg in args)), function(*args)
    assert found.shape == eager.shape and found.dtype == eager.dtype and found.stride() == eager.stride()
    largest = best.abs().max().to(eager.dtype)
    ulp = float(torch.nextafter(largest, torch.tensor(math.inf, dtype=eager.dtype)) - largest)
    allowed = 2 * float((eager.double() - best).abs().max()) + ulp
    assert float((found.double() - best).abs().max()) <= allowed


def launches(function, graph, sizes, make, folder):
    """Run one bundle per format at every size, saved and loaded as well; gives the dispatches of each launch."""
    counts = []
    for number, target in enumerate(FORMATS):
        bundle = spyre_fx.lower(graph, target)
        text = bundle.mlir()
        assert "scf.for" in text and "granularity=" in text and text.count("max_value=") >= 2
        bundle.verify()
        loaded = spyre_fx.Bundle.load(bundle.save(folder / str(number)))
        assert loaded.lowered.sizes == bundle.lowered.sizes
        for size in sizes:
            args = make(size)
            found = bundle.run(*args)
            check(found, function, args)
            assert torch.equal(loaded.run(*args), found)
            assert loaded.counters.hbm_bytes == bundle.counters.hbm_bytes
            counts.append(bundle.counters.dispatches)
    return counts[: len(sizes)]


def test_a_batch_that_is_known_at_launch(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(64, 128).half(), torch.nn.Linear(128, 64).half()

        def forward(self, x):
            return x + self.down(self.up(x).relu())

    torch.manual_seed(0)
    model = Model()
    dims = {"x": {0: Dim("batch", max=16)}}
    program = torch.export.export(model, (half(4, 8, 64),), dynamic_shapes=dims)
    graph = tiled(fix_sizes(spyre_fx.capture(program)), (4, [0]))

    def function(x):
        weights = [parameter.detach().to(x.dtype) for parameter in model.parameters()]
        return x + F.linear(F.linear(x, *weights[:2]).relu(), *weights[2:])

    counts = launches(function, graph, [4, 12, 16], lambda n: [half(n, 8, 64)], tmp_path)
    # Copies of the weights stand before the loop.
    per_trip = counts[2] - counts[1]
    assert counts == [counts[0], counts[0] + 2 * per_trip, counts[0] + 3 * per_trip] and per_trip >= 6


def test_rows_and_sticks_that_are_known_at_launch(tmp_path):
    def function(x, y):
        return (x * 2 + y).relu()

    graph = fixed(function, half(16, 128), half(128), largest={"x": {0: 32, 1: 512}})
    graph = tiled(graph, (4, [0]), (4, [1]))
    sizes = [(8, 128), (24, 256), (32, 512), (16, 384)]
    counts = launches(function, graph, sizes, lambda n: [half(*n), half(n[1])], tmp_path)
    assert [count // counts[0] for count in counts] == [1, 6, 16, 6]


def test_a_sum_over_rows_that_are_known_at_launch(tmp_path):
    def function(x):
        return (x * x).sum(0)

    graph = tiled(fixed(function, half(24, 96), largest={"x": {0: 64, 1: 128}}), (2, [1]), (4, {"mul": 0}))
    launches(function, graph, [(16, 64), (48, 128), (64, 64)], lambda n: [half(*n)], tmp_path)


def test_a_matmul_over_a_size_that_is_known_at_launch(tmp_path):
    gm = make_fx(lambda x, y: x @ y, tracing_mode="symbolic")(half(32, 128), half(128, 96))
    graph = fix_sizes(gm, {"x_1": {0: 64, 1: 512}, "y_1": {1: 128}})
    graph = tiled(graph, (2, [0]), (2, [1]), (4, [2]))
    sizes = [(32, 128, 64), (64, 512, 64), (32, 384, 128)]
    launches(torch.matmul, graph, sizes, lambda n: [half(n[0], n[1]), half(n[1], n[2])], tmp_path)


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def test_attention_over_a_sequence_that_is_known_at_launch(tmp_path):
    sequence = Dim("s", max=256)
    dims = {name: {1: sequence} for name in "qkv"}
    args = half(2, 80, 64), half(2, 80, 64), half(2, 80, 64)
    program = torch.export.export(Attention(), args, dynamic_shapes=dims)
    graph = tiled(fix_sizes(spyre_fx.capture(program)), *((count, {"bmm": dim}) for dim, count in enumerate((2, 4, 4))))
    counts = launches(Attention(), graph, [64, 192], lambda n: [half(2, n, 64) for _ in "qkv"], tmp_path)
    assert counts[1] > 3 * counts[0]


class Rows(torch.nn.Module):
    """A function of x, whose rows are counted at launch, and of other tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, others):
        return self.function(x, *others)


def lowered_rows(function, levels, x, *others, target=None, largest=32):
    dims = {"x": {0: Dim("rows", max=largest)}, "others": [None for _ in others]}
    program = torch.export.export(Rows(function), (x, list(others)), dynamic_shapes=dims)
    bundle = spyre_fx.lower(tiled(fix_sizes(spyre_fx.capture(program)), *levels), target)
    assert "scf.for" in bundle.mlir()
    bundle.verify()
    return bundle


def norm_and_project(x, weight):
    return F.layer_norm(x, (128,)) @ weight


ROWS_ALONE = {
    "pointwise": (lambda x, y: (x * 2 + y).relu(), [(4, {"x": 0})], [half(128)]),
    "by ones": (lambda x, y: (x * 2 + y).relu(), [(32, {"x": 0})], [half(128)]),
    "a division": (lambda x, y: y / x, [(4, {"x": 0})], [half(128)]),
    "a norm and a product": (norm_and_project, [(4, {"x": 0})], [half(128, 192) / 11]),
    "a nest": (norm_and_project, [(4, {"x": 0}), (2, {"others_0": 1})], [half(128, 256)]),
    "two results": (lambda x: (x.sum(1, keepdim=True), x + 1), [(4, {"x": 0})], []),
    "a softmax": (lambda x: x.softmax(1) + x, [(2, {"x": 0})], []),
}


@pytest.mark.parametrize("target", FORMATS, ids=["seed", "1.0"])
@pytest.mark.parametrize("name", ROWS_ALONE)
def test_the_last_tile_may_lack_rows_that_nothing_else_is_made_of(name, target, tmp_path):
    torch.manual_seed(0)
    function, levels, others = ROWS_ALONE[name]
    bundle = lowered_rows(function, levels, half(16, 128), *others, target=target)
    (size,) = bundle.lowered.sizes
    assert size.padded and size.multiple_of == {32: 1}.get(levels[0][0], 32 // levels[0][0])
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    for rows in (1, 7, 8, 13, 31, 32):
        x = half(rows, 128)
        results = (pytree.tree_leaves(found) for found in (bundle.run(x, others), loaded.run(x, others)))
        for one, other, eager in zip(*results, pytree.tree_leaves(function(x, *others)), strict=True):
            assert torch.equal(one, other) and one.stride() == eager.stride()
            torch.testing.assert_close(one, eager, rtol=2e-3, atol=2e-3)
    for rows in (0, 33):
        with pytest.raises(SpecError, match=rf"size {rows} of dim 0 of 'x'.*a multiple of 1 from 1 to 32"):
            bundle.run(half(rows, 128), others)


ROWS_TOGETHER = {
    "a sum over rows": (lambda x: (x * x).sum(0), [(4, {"x": 0})]),
    "a product over rows": (lambda x: torch.mm(x.t(), x), [(4, {"x": 0})]),
    "a largest row": (lambda x: x.amax(0), [(4, {"x": 0})]),
    "a sum of ones": (lambda x: x.sum(0), [(32, {"x": 0})]),
}


@pytest.mark.parametrize("name", ROWS_TOGETHER)
def test_rows_that_others_are_made_of_fill_whole_tiles(name):
    torch.manual_seed(0)
    function, levels = ROWS_TOGETHER[name]
    bundle = lowered_rows(function, levels, half(16, 128))
    (size,) = bundle.lowered.sizes
    assert not size.padded
    x = half(24, 128)
    torch.testing.assert_close(bundle.run(x, []), function(x), rtol=2e-3, atol=2e-2)
    if size.multiple_of > 1:
        with pytest.raises(SpecError, match=rf"size 7 of .* a multiple of {size.multiple_of} "):
            bundle.run(half(7, 128), [])


def test_sizes_that_do_not_work_are_refused_at_launch():
    graph = tiled(
        fixed(lambda x, y: (x * y).sum(0), half(16, 128), half(16, 128), largest={"x": {0: 32, 1: 128}}),
        (2, [1]),
        (4, {"mul": 0}),
    )
    bundle = spyre_fx.lower(graph)
    for rows in (4, 12, 40):
        with pytest.raises(SpecError, match=rf"size {rows} of dim 0 of 'x_1'.*a multiple of 8 from 8 to 32"):
            bundle.run(half(rows, 128), half(rows, 128))
    with pytest.raises(SpecError, match=r"size 16 of dim 0 of 'y_1'.*8, as another input has"):
        bundle.run(half(8, 128), half(16, 128))
    with pytest.raises(SpecError, match=r"\[8, 128, 1\]"):
        bundle.run(half(8, 128, 1), half(8, 128))
    assert bundle.run(half(8, 64), half(8, 64)).shape == (64,)


def test_the_report_counts_what_the_launch_moved():
    graph = tiled(fixed(lambda x: x + 1, half(16, 128), largest={"x": {0: 64, 1: 128}}), (4, [0]), (2, [1]))
    bundle = spyre_fx.lower(graph)
    whole = bundle.argument_bytes
    bundle.run(half(16, 128))
    scalar = 128
    assert bundle.argument_bytes == (whole - scalar) // 4 + scalar
    assert "times the minimum" in str(bundle.report())


ROWS = {"x": {0: 64, 1: 128}}


def refused(function, *levels, largest=ROWS, names=None):
    return lambda: spyre_fx.lower(tiled(fixed(function, half(16, 64), largest=largest), *levels, names=names))


REFUSED = {
    "outside": (
        refused(lambda x: (x + 1).relu(), (4, [0]), (2, [1]), names=["add"]),
        r"relufwd .* dim \d.* all at once.*put the op into a group",
    ),
    "another dim": (refused(lambda x: x + 1, (4, [0])), r"add .* dim 1.* all at once"),
    "remainder": (refused(lambda x: x + x, (4, [0]), (2, [1]), largest={"x": {0: 10, 1: 128}}), r"not in equal tiles"),
    "other values": (
        refused(lambda x: (x + 1, x.cumsum(1)), (4, [0]), names=["add"]),
        r"aten\.cumsum.* depend on a size",
    ),
    "host op": (
        refused(lambda x: (x + 1, torch.erfinv(x)), (4, [0]), (2, [1]), names=["add"]),
        r"erfinv.* the host runs",
    ),
    "constant": (
        refused(lambda x: (x + 1, torch.ones(x.shape[0])), (4, [0]), (2, [1]), names=["add"]),
        r"output 1 of shape fixed.*the shape \[s\d+\]",
    ),
}


@pytest.mark.parametrize(("lower", "words"), REFUSED.values(), ids=REFUSED)
def test_what_depends_on_a_size_otherwise_is_refused(lower, words):
    with pytest.raises(LoweringError, match=words):
        lower()


def test_loops_of_symbolic_count_are_not_unrolled():
    graph = tiled(fixed(lambda x: x + x, half(16, 128), largest={"x": {0: 64, 1: 128}}), (4, [0]), (2, [1]))
    with pytest.raises(LoweringError, match="in a program to unroll"):
        spyre_fx.lower(graph, unroll=True)

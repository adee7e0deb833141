"""Loops over sizes that only the run knows: each call is cut for its own sizes, and equals the untiled graph."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch.export import Dim
from torch.nn import functional as F

import spyre_fx
from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.errors import LoweringError, TilingError
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.sized_loop import MOST, SizedLoop
from spyre_fx.transforms.tile import tile
from tests.transforms.test_other_sizes import BLOCKS, W, group_of
from tests.transforms.tiling import loops_of, ops_of, same_values, traced


def symbolic(fn: Any, *args: Any) -> fx.GraphModule:
    return traced(fn, *args, tracing_mode="symbolic")


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, length, width = q.shape
    heads = [x.view(x.shape[0], x.shape[1], 2, x.shape[2] // 2).transpose(1, 2) for x in (q, k, v)]
    scores = heads[0] @ heads[1].transpose(2, 3) * (width // 2) ** -0.5
    return (torch.softmax(scores, -1) @ heads[2]).transpose(1, 2).reshape(batch, length, width)


def loop_sizes(loop: CountedLoop) -> list[tuple[int, int, int]]:
    """Trips, tile and remainder of each loop inside the one trip."""
    inner = loops_of(loop)[1:]
    return [(one.phases[0].trips, one.phases[0].tile, sum(p.tile for p in one.phases[1:])) for one in inner]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("case", BLOCKS)
def test_every_size_that_the_graph_takes(case: str, dim: int) -> None:
    """Along the first dim and along the one next to it: 1, primes, sizes below the count, and none."""
    gm = symbolic(BLOCKS[case], torch.randn(7, 6), W)
    tiled = tile(gm, group_of(gm, dim))
    (loop,) = (module for module in tiled.modules() if isinstance(module, SizedLoop))
    for rows in (7, 1, 2, 3, 5, 11, 13, 0):
        x = torch.randn(rows, 6)
        assert same_values(gm(x, W), tiled(x, W)), rows
        extent = rows if dim == 0 else 6  # which "heads" splits into 2 x 3: a tile of 2 holds no whole head
        if rows and extent > 1:
            found = loop_sizes(list(loop._known.values())[-1])
            tile_size = -(-extent // 3)
            expected = (2, 1, 0) if case == "heads" and dim else (extent // tile_size, tile_size, extent % tile_size)
            assert expected in found, rows


def test_trips_follow_from_the_size_of_the_call() -> None:
    gm = symbolic(lambda x: (x + 1).relu(), torch.randn(7, 6))
    tiled = tile(gm, [(["add", "relu"], 4)])
    loop = tiled.loop_0
    found = {rows: loop_sizes(loop.at([torch.randn(rows, 6)])) for rows in (1, 2, 4, 7, 13, 64)}
    assert found == {
        1: [],  # one element is one tile: the trip around the loops
        2: [(2, 1, 0)],
        4: [(4, 1, 0)],
        7: [(3, 2, 1)],
        13: [(3, 4, 1)],
        64: [(4, 16, 0)],
    }


def test_what_is_seen_of_a_loop() -> None:
    gm = symbolic(lambda x, w: (x @ w).relu(), torch.randn(7, 6), W)
    tiled = tile(gm, [(["mm", "relu"], 4, {"x_1": 0})])
    tiled.graph.lint()
    (call,) = tiled.graph.find_nodes(op="call_module")
    assert isinstance(tiled.get_submodule(str(call.target)), CountedLoop)
    size = gm.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0]
    assert isinstance(call.meta["val"].shape[0], torch.SymInt)
    assert str(call.meta["val"].shape[0]) == str(size)
    outer, inner = spyre_fx.summary(tiled).loops
    assert outer.form == (f"4 (of {size}, here 7)",)
    assert (inner.name, inner.trips, inner.tile, inner.remainder) == ("loop_0.loop_0", 3, 2, 1)
    assert str(size) in str(spyre_fx.summary(tiled))
    assert "loop_0" in str(spyre_fx.summary(tiled, spyre_fx.Target(), gm))
    assert "relu" in spyre_fx.draw(tiled)._repr_mimebundle_()["image/svg+xml"]
    assert str(spyre_fx.explain(gm, [(["mm", "relu"], 4, {"x_1": 0})])).count("tiled")


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 3), st.integers(2, 5))
def test_attention_over_batch_queries_and_keys(batch: int, queries: int, keys: int, which: int, count: int) -> None:
    """Three sizes that are not known, cut along each of them and along two at once."""
    shapes = [(3, 6, 8), (3, 7, 8), (3, 7, 8)]
    gm = symbolic(attention, *map(torch.randn, shapes))
    names = [name for name in ops_of(gm) if "sym_size" not in name]
    first = {"q_1": 0, "k_1": 0, "v_1": 0}
    choices: list[Any] = [
        (names, count, first),
        (names, count, {"q_1": 1}),
        (names, count, {"k_1": 1, "v_1": 1}),
        (names, [(2, {"q_1": 0}), (count, {"q_1": 1})]),
    ]
    tiled = tile(gm, [choices[which]])
    assert loops_of(tiled)
    args = torch.randn(batch, queries, 8), torch.randn(batch, keys, 8), torch.randn(batch, keys, 8)
    assert same_values(gm(*args), tiled(*args))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(BLOCKS)),
    st.integers(0, 1),
    st.integers(1, 9),
    st.lists(st.integers(0, 17), min_size=1, max_size=3),
    st.booleans(),
)
def test_counts_and_sizes(case: str, dim: int, count: int, sizes: list[int], copied: bool) -> None:
    gm = symbolic(BLOCKS[case], torch.randn(7, 6), W)
    ((names, _, dims),) = group_of(gm, dim)  # type: ignore[misc]
    tiled = tile(gm, [(names, min(count, 6), dims)])
    assert loops_of(tiled)
    if copied:
        tiled = pickle.loads(pickle.dumps(copy.deepcopy(tiled)))
    for rows in sizes:
        x = torch.randn(rows, 6)
        assert same_values(gm(x, W), tiled(x, W))


def test_the_loop_for_known_sizes_runs_by_itself() -> None:
    """Also where nothing is cut, so that views stand in the body as they were traced."""

    class Recorder(fx.Interpreter):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            self.seen = args
            return super().call_module(target, args, kwargs)

    gm = symbolic(attention, *map(torch.randn, [(3, 6, 8), (3, 7, 8), (3, 7, 8)]))
    names = [name for name in ops_of(gm) if "sym_size" not in name]
    tiled = tile(gm, [(names, 2, {"q_1": 0, "k_1": 0, "v_1": 0})])
    for batch in (1, 5):
        args = [torch.randn(batch, 4, 8), torch.randn(batch, 5, 8), torch.randn(batch, 5, 8)]
        recorder = Recorder(tiled)
        want = recorder.run(*args)
        assert same_values(gm(*args), want)
        known = tiled.loop_0.at(recorder.seen)
        assert type(known) is CountedLoop
        assert len(loop_sizes(known)) == (batch > 1)
        assert torch.allclose(known(*recorder.seen).reshape(want.shape), want, atol=1e-5)


def test_two_dims_in_a_nest_and_as_a_tree() -> None:
    gm = symbolic(lambda x, y: ((x + y).exp() * 2).sum(1), torch.randn(7, 5), torch.randn(7, 5))
    groups = (
        [(["add", "exp", "mul", "sum_1"], [(3, {"x_1": 0}), (2, {"x_1": 1})])],
        [(["add", "exp", "mul", "sum_1"], [(3, {"x_1": 0}), (2, {"x_1": 0})])],
        [LoopGroup(3, {"x_1": 0}, ["add", LoopGroup(2, {"add": 1}, ["exp"]), LoopGroup(4, {"exp": 1}, ["mul"])])],
    )
    for some in groups:
        tiled = tile(gm, some)
        assert len(loops_of(tiled)) >= 3
        for shape in ((7, 5), (1, 5), (5, 1), (1, 1), (2, 11), (13, 2), (0, 4)):
            args = torch.randn(shape), torch.randn(shape)
            assert same_values(gm(*args), tiled(*args)), shape


def test_tiles_that_would_straddle_are_rounded_up() -> None:
    gm = symbolic(lambda x: x.view(x.shape[0] * 4) + 1, torch.randn(6, 4))
    tiled = tile(gm, [(["view", "add"], 3, {"add": 0})])
    for rows, inner in ((6, (3, 2, 0)), (7, (2, 3, 1)), (5, (2, 2, 1)), (3, (3, 1, 0)), (1, (2, 2, 0))):
        x = torch.randn(rows, 4)
        assert same_values(gm(x), tiled(x))
        assert loop_sizes(list(tiled.loop_0._known.values())[-1]) == [inner], rows


def test_several_groups_views_and_sizes_between_them() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Any, ...]:
        y = (x @ w).relu()
        low, high = torch.chunk(y, 2, 1)
        var, mean = torch.var_mean(high, 1)
        z = low.reshape(low.shape[0] * 3) * 2
        return z, y.t(), mean, var, x, z.shape[0]

    gm = symbolic(function, torch.randn(7, 6), W)
    first = [name for name in ("mm", "relu", "split", "t") if name in ops_of(gm)]
    tiled = tile(gm, [(first, 3, {"x_1": 0}), (["var_mean"], 2)])
    assert len([module for module in tiled.modules() if isinstance(module, SizedLoop)]) == 2
    for rows in (7, 1, 3, 10):
        x = torch.randn(rows, 6)
        for want, got in zip(gm(x, W), tiled(x, W), strict=True):
            assert same_values(want, got)
        found = tiled(x, W)
        assert found[4] is x
        assert found[1]._base is not None


def test_an_exported_program_with_parameters() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6), nn.LayerNorm(6)).requires_grad_(False)
    example = torch.randn(4, 5, 6)
    exported = torch.export.export(model, (example,), dynamic_shapes=({0: Dim("batch"), 1: Dim("length", max=64)},))
    saved = io.BytesIO()
    torch.export.save(exported, saved)
    saved.seek(0)
    gm = spyre_fx.capture(exported)
    again = spyre_fx.capture(torch.export.load(saved))
    source = gm.graph.find_nodes(op="placeholder")[-1].name
    names = [n.name for n in gm.graph.nodes if n.op == "call_function" and isinstance(n.meta["val"], (Tensor, tuple))]
    names = [name for name in names if "getitem" not in name and "_assert" not in name]
    for some in (gm, again):
        for dim in (0, 1):
            tiled = tile(some, [(names, 3, {source: dim})])
            assert loops_of(tiled)
            for batch, length in ((4, 5), (2, 7), (7, 2), (3, 64)):
                x = torch.randn(batch, length, 6)
                assert torch.allclose(model(x), tiled(x), atol=1e-5)


def test_gradients_transforms_and_other_tracers() -> None:
    gm = symbolic(BLOCKS["mlp"], torch.randn(7, 6), W)
    tiled = tile(gm, group_of(gm, 0))
    for rows in (5, 2):
        x = torch.randn(rows, 6)
        want = torch.autograd.grad(gm(x.requires_grad_(), W).square().sum(), x)[0]
        got = torch.autograd.grad(tiled(x, W).square().sum(), x)[0]
        assert torch.allclose(want, got, atol=1e-4)
        assert torch.allclose(torch.func.grad(lambda x: tiled(x, W).square().sum())(x.detach()), want, atol=1e-4)
        x = x.detach()
        again = traced(tiled, x, W)
        assert any("counted_loop" in str(node.target) for node in again.graph.nodes)
        assert same_values(gm(x, W), again(x, W))
        assert same_values(gm(x, W), fx.Interpreter(tiled).run(x, W))
        assert same_values(gm(x, W), torch.compile(tiled, backend="eager")(x, W))
    with pytest.raises(TilingError, match=r"has the symbolic size .*known when the loop is called"):
        symbolic(tiled, torch.randn(7, 6), W)


def test_a_known_dim_beside_an_unknown_one() -> None:
    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x * 2, 1).sum(0)

    gm = spyre_fx.capture(torch.export.export(Block(), (torch.randn(5, 6),), dynamic_shapes=({0: Dim("n")},)))
    names = [name for name in ops_of(gm) if "sym" not in name]
    tiled = tile(gm, [(names, 4, {"x": 1})])
    assert "4 (of 6)" in str(spyre_fx.summary(tiled))
    for rows in (5, 2, 9, 1, 0):
        x = torch.randn(rows, 6)
        assert same_values(gm(x), tiled(x))
    with pytest.raises(TilingError, match="count 7 in groups"):
        tile(gm, [(names, 7, {"x": 1})])


def test_strict_counts_and_calls_that_do_not_fit_are_refused() -> None:
    gm = symbolic(lambda x, w: (x @ w).relu(), torch.randn(6, 6), torch.randn(6, 5))
    group = [(["mm", "relu"], 3, {"x_1": 0})]
    strict, tiled, w = tile(gm, group, strict=True), tile(gm, group), torch.randn(6, 5)
    assert same_values(gm(torch.ones(9, 6), w), strict(torch.ones(9, 6), w))
    for rows in (7, 2, 1):
        with pytest.raises(TilingError, match="count 3 in groups"):
            strict(torch.ones(rows, 6), w)
    with pytest.raises(TilingError, match="does not divide 6"):
        tile(gm, [(["mm", "relu"], 4, {"x_1": 0})], strict=True)
    with pytest.raises(TilingError, match=r"dtype torch.float64"):
        tiled(torch.ones(6, 6, dtype=torch.float64), w)
    with pytest.raises(TilingError, match=r"number of dims 3"):
        tiled(torch.ones(1, 6, 6), w)
    with pytest.raises(TilingError, match=r"sizes \[\[6, 4\], \[6, 5\]\]"):
        tiled(torch.ones(6, 4), w)


def test_no_call_runs_in_part() -> None:
    """The second loop refuses the size: nothing is written before."""
    gm = symbolic(lambda x, y: (y.copy_(x + 1), (x * 2).relu())[1], torch.randn(6, 4), torch.randn(6, 4))
    tiled = tile(gm, [(["add"], 2), (["mul", "relu"], 3)], strict=True)
    y = torch.zeros(6, 4)
    tiled(torch.ones(6, 4), y)
    assert y.eq(2).all()
    y = torch.zeros(8, 4)
    with pytest.raises(TilingError, match=r"count 3 in groups\[1\] does not divide 8"):
        tiled(torch.ones(8, 4), y)
    assert y.eq(0).all()


def test_tiling_again_copies_the_loops_that_are_there() -> None:
    gm = symbolic(lambda x: ((x + 1).exp() * 2).sin().sum(0), torch.randn(7, 4))
    first = tile(gm, [(["add", "exp"], 3)])
    second = tile(first, [(["mul", "sin", "sum_1"], 2, {"mul": 0})])
    assert second.loop_0 is not first.loop_0
    assert len([module for module in second.modules() if isinstance(module, SizedLoop)]) == 2
    for some in (second, copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
        for rows in (1, 5, 8):
            x = torch.randn(rows, 4)
            assert same_values(gm(x), some(x))


def test_a_loop_keeps_a_bounded_number_of_forms() -> None:
    gm = symbolic(lambda x: x + 1, torch.randn(7))
    loop = tile(gm, [(["add"], 2)]).loop_0
    first = loop.at([torch.randn(2)])
    assert loop.at([torch.randn(2)]) is first
    for size in range(3, MOST + 3):
        loop.at([torch.randn(size)])
    assert len(loop._known) == MOST
    assert loop.at([torch.randn(2)]) is not first


def test_groups_that_cannot_be_cut_are_refused_when_tiled() -> None:
    gm = symbolic(lambda x: x.cumsum(0).sin(), torch.randn(7, 6))
    with pytest.raises(TilingError, match=r"cumsum.*cannot be cut"):
        tile(gm, [(["cumsum", "sin"], 2)])

    def leaves_and_returns(x: Tensor) -> Tensor:
        y = x.sin()
        return y + y.sort(0)[0]

    with pytest.raises(TilingError, match=r"sin -> sort -> .*add"):
        tile(symbolic(leaves_and_returns, torch.randn(7, 6)), [(["sin", "add"], 2)])


def test_lowering_asks_for_known_sizes() -> None:
    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x + 1).relu()

    dims = ({0: Dim("n", max=128)},)
    gm = spyre_fx.capture(torch.export.export(Block(), (torch.randn(64, 64).half(),), dynamic_shapes=dims))
    tiled = tile(gm, [(["add", "relu"], 4)])
    with pytest.raises(LoweringError, match="the symbolic size"):
        spyre_fx.lower(tiled)
    for known in (pickle.loads(pickle.dumps(tiled)), ensure_fake(tiled, [torch.randn(128, 64).half()])):
        with pytest.raises(LoweringError, match=r"cut anew for each set of sizes.*fix_sizes"):
            spyre_fx.lower(known)
    fixed = spyre_fx.fix_sizes(gm)
    assert spyre_fx.lower(tile(fixed, [(["add", "relu"], 4)])).specs


def test_attention_block_of_a_model_by_its_path() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.down(F.gelu(self.up(x))) + x

    model = Model().requires_grad_(False)
    dims = ({0: Dim("batch"), 1: Dim("length")},)
    gm = spyre_fx.capture(torch.export.export(model, (torch.randn(3, 5, 6),), dynamic_shapes=dims))
    tiled = tile(gm, [("up", 3)])
    assert loops_of(tiled)
    for shape in ((3, 5, 6), (2, 7, 6)):
        x = torch.randn(shape)
        assert torch.allclose(model(x), tiled(x), atol=1e-6)

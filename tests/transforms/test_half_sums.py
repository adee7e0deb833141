"""``accumulate="operand"``: running sums in the operands' own half precision, by choice and by name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import spyre_fx
from spyre_fx.errors import TilingError
from spyre_fx.group_file import read_groups
from spyre_fx.transforms.explain import explain
from spyre_fx.transforms.groups import ACCUMULATE, LoopGroup
from spyre_fx.transforms.loop_types import Carried
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import clones, loops_of, ops_of, traced

HALVES = [torch.float16, torch.bfloat16]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, -1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~causal, float("-inf")), -1) @ v


@dataclass(frozen=True)
class Case:
    """A program whose ops are all cut along ``dims``, one for each loop of a nest."""

    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dims: tuple[dict[str, int], ...]
    classes: int = 0
    scale: float = 1.0
    """By how much a relative error of what is summed up grows: that of an exponent is its own size."""

    def args(self, dtype: torch.dtype) -> list[Tensor]:
        torch.manual_seed(0)
        made = [(torch.randn(shape) / shape[-1] ** 0.25).to(dtype) for shape in self.shapes]
        return [*made, torch.randint(self.classes, self.shapes[0][:1])] if self.classes else made

    def graph(self, dtype: torch.dtype) -> fx.GraphModule:
        return spyre_fx.capture(self.function, *self.args(dtype))

    def groups(self, gm: fx.GraphModule, count: int) -> list[tuple[Any, Any]]:
        return [(ops_of(gm), [(count, dims) for dims in self.dims])]


QKV = ((2, 48, 16), (2, 64, 16), (2, 64, 16))
CASES = {
    "sum": Case(lambda x: x.exp().sum(0), ((64, 8),), ({"x": 0},)),
    "sum of all": Case(lambda x: (x * x).sum(), ((64, 8),), ({"x": 0},)),
    "mm": Case(lambda x, w: x @ w, ((8, 64), (64, 12)), ({"x": 1},)),
    "addmm": Case(lambda b, x, w: torch.addmm(b, x, w, alpha=0.5), ((12,), (8, 64), (64, 12)), ({"x": 1},)),
    "bmm": Case(lambda x, w: x @ w, ((2, 8, 64), (2, 64, 12)), ({"x": 2},)),
    "mlp": Case(lambda x, up, down: F.gelu(x @ up) @ down, ((24, 16), (16, 64), (64, 16)), ({"up": 1},)),
    "softmax": Case(lambda x: torch.softmax(x.sin(), -1), ((8, 64),), ({"x": 1},)),
    "log softmax": Case(lambda x: torch.log_softmax(x.sin(), -1), ((8, 64),), ({"x": 1},)),
    "attention": Case(attention, QKV, ({"k": 1},), scale=4),
    "rows and keys": Case(attention, QKV, ({"q": 1}, {"k": 1}), scale=4),
    "masked attention": Case(masked, ((2, 64, 16),) * 3, ({"k": 1},), scale=4),
    "losses": Case(
        lambda x, w, t: F.cross_entropy(x @ w.t(), t, reduction="none"), ((16, 8), (64, 8)), ({"w": 0},), 64, scale=4
    ),
}


def with_sums(case: Case, dtype: torch.dtype, count: int, accumulate: Any) -> fx.GraphModule:
    gm = case.graph(dtype)
    return tile(gm, case.groups(gm, count), accumulate=accumulate)


def carried(tiled: fx.GraphModule) -> list[torch.dtype]:
    """The dtypes of the floating-point values that loops carry."""
    return [
        kind.dtype
        for loop in loops_of(tiled)
        for leaves, kind in zip(loop.results, loop.result_types, strict=True)
        if isinstance(leaves, Carried)
    ]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_sums_have_the_dtype_of_the_operands(name: str, dtype: torch.dtype) -> None:
    wide, own = (with_sums(CASES[name], dtype, 4, accumulate) for accumulate in ACCUMULATE)
    assert torch.float32 in carried(wide)
    assert set(carried(own)) == {dtype}
    shown = [line for loop in summary(own).loops for line in loop.form if line.startswith("sums kept in")]
    assert shown and all(str(dtype).removeprefix("torch.") in line for line in shown)
    assert "sums kept in" not in str(summary(wide)) and "sums kept in" in str(summary(own))
    bodies = [module for loop in loops_of(own) for module in loop.bodies.values()]
    made = [node.meta["val"] for body in bodies for node in body.graph.nodes if node.op == "call_function"]
    assert not any(value.dtype is torch.float32 for value in made if isinstance(value, Tensor))


@pytest.mark.parametrize("count", [3, 8])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_results_are_as_near_as_half_precision_sums_can_be(name: str, dtype: torch.dtype, count: int) -> None:
    """Each trip rounds a sum, and scales it where it follows a maximum; each rounding is off by half a unit of the
    largest partial sum. The exponents of a softmax and what else a trip rounds count as two roundings more.
    """
    case = CASES[name]
    args = case.args(dtype)
    tiled = with_sums(case, dtype, count, "operand")
    eager, exact = (
        case.function(*args),
        case.function(*(arg.double() if arg.is_floating_point() else arg for arg in args)),
    )
    found = tiled(*clones(args))
    assert found.dtype == dtype and found.shape == eager.shape
    unit = torch.finfo(dtype).eps * float(exact.abs().max())
    roundings = case.scale * (2 * count + 2)
    assert (
        float((found.double() - exact).abs().max())
        <= float((eager.double() - exact).abs().max()) + roundings * unit / 2
    )


@pytest.mark.parametrize("name", CASES)
def test_the_default_is_float32_to_the_last_bit(name: str) -> None:
    case = CASES[name]
    gm, args = case.graph(torch.float16), case.args(torch.float16)
    default = tile(gm, case.groups(gm, 4))
    named = tile(gm, case.groups(gm, 4), accumulate="float32")
    assert [body.code for loop in loops_of(default) for body in loop.bodies.values()] == [
        body.code for loop in loops_of(named) for body in loop.bodies.values()
    ]
    assert torch.equal(default(*clones(args)), named(*clones(args)))


def test_the_default_sums_in_float32() -> None:
    """By hand: float32 sums of the tiles, added in float32, rounded once."""
    x = torch.randn(64, 8).half()
    gm = spyre_fx.capture(lambda x: x.sum(0), x)
    total = sum((part.sum(0, dtype=torch.float32) for part in x.split(16)), torch.zeros(8))
    assert torch.equal(tile(gm, [(["sum_1"], 4)], {"x": 0})(x), total.half())


def test_half_precision_sums_are_those_of_the_tiles() -> None:
    x = torch.randn(64, 8).half()
    gm = spyre_fx.capture(lambda x: x.sum(0), x)
    total = torch.zeros(8).half()
    for part in x.split(16):
        total = total + part.sum(0)
    assert torch.equal(tile(gm, [(["sum_1"], 4)], {"x": 0}, accumulate="operand")(x), total)


@pytest.mark.parametrize("name", CASES)
def test_nothing_changes_for_float32(name: str) -> None:
    case = CASES[name]
    wide, own = (with_sums(case, torch.float32, 4, accumulate) for accumulate in ACCUMULATE)
    args = case.args(torch.float32)
    assert torch.equal(wide(*clones(args)), own(*clones(args)))
    assert "sums kept in" not in str(summary(own))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mean(0),
        lambda x: x.prod(0),
        lambda x: x.var(0),
        lambda x: torch.linalg.vector_norm(x, dim=0),
        lambda x: F.layer_norm(x.t(), (64,)),
        lambda x: F.rms_norm(x.t(), (64,)),
    ],
    ids=["mean", "prod", "var", "norm", "layer norm", "rms norm"],
)
def test_what_is_no_sum_or_may_leave_the_range_stays_in_float32(function: Callable[..., Tensor]) -> None:
    x = (torch.randn(64, 8) * 300).half()  # squares are infinite in float16, and 64 rows may be
    gm = spyre_fx.capture(function, x)
    wide, own = (tile(gm, [(ops_of(gm), 4, {"x": 0})], accumulate=accumulate) for accumulate in ACCUMULATE)
    assert set(carried(own)) == {torch.float32}
    assert torch.equal(own(x), wide(x))
    assert "sums kept in" not in str(summary(own))


def test_gradients() -> None:
    case = CASES["mlp"]
    args = [arg.requires_grad_() for arg in case.args(torch.bfloat16)]
    case.function(*args).sum().backward()
    eager = [arg.grad.clone() for arg in args if arg.grad is not None]
    for arg in args:
        arg.grad = None
    with_sums(case, torch.bfloat16, 4, "operand")(*args).sum().backward()
    for arg, want in zip(args, eager, strict=True):
        torch.testing.assert_close(arg.grad, want, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("function", "shapes", "dims"),
    [
        (lambda x: torch.logsumexp(x, -1), ((8, 64),), {"x_1": 1}),
        (lambda x: torch.nansum(x, -1), ((8, 64),), {"x_1": 1}),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ((1, 2, 64, 16),) * 3, {"k_1": 2}),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((1, 2, 64, 16),) * 3, {"k_1": 2}),
    ],
    ids=["logsumexp", "nansum", "attention", "causal attention"],
)
def test_composites_of_aten(function: Callable[..., Tensor], shapes: Any, dims: Any, dtype: torch.dtype) -> None:
    args = [torch.randn(shape).to(dtype) for shape in shapes]
    gm = traced(function, *args)
    wide, own = (tile(gm, [(ops_of(gm), 4, dims)], accumulate=accumulate) for accumulate in ACCUMULATE)
    assert torch.float32 in carried(wide) and set(carried(own)) == {dtype}
    exact = function(*(arg.double() for arg in args))
    unit = torch.finfo(dtype).eps * float(exact.abs().max())
    assert float((own(*args).double() - exact).abs().max()) <= 4 * (2 * 4 + 2) * unit / 2


# ---- who says it


def test_a_group_goes_before_the_option() -> None:
    x = torch.randn(64, 8).half()
    gm = spyre_fx.capture(lambda x, y: (x.sum(0), y.sum(0)), x, x.clone())
    groups = [LoopGroup(4, {"x": 0}, ["sum_1"], accumulate="operand"), LoopGroup(4, {"y": 0}, ["sum_2"])]
    assert carried(tile(gm, groups)) == [torch.float16, torch.float32]
    assert carried(tile(gm, groups, accumulate="operand")) == [torch.float16, torch.float16]
    groups = [LoopGroup(4, {"x": 0}, ["sum_1"], accumulate="float32"), LoopGroup(4, {"y": 0}, ["sum_2"])]
    assert carried(tile(gm, groups, accumulate="operand")) == [torch.float32, torch.float16]


@pytest.mark.parametrize("inner", [None, "operand"])
def test_the_outermost_loop_speaks_for_those_inside(inner: Any) -> None:
    x = torch.randn(16, 8, 4).half()
    gm = spyre_fx.capture(lambda x: x.sum((0, 1)), x)
    tree = LoopGroup(4, {"x": 0}, [LoopGroup(2, {"x": 1}, ["sum_1"], accumulate=inner)], accumulate="operand")
    tiled = tile(gm, [tree])
    assert carried(tiled) == [torch.float16, torch.float16]
    assert all("sums kept in float16: sum_1" in loop.form for loop in summary(tiled).loops)
    torch.testing.assert_close(tiled(x), x.sum((0, 1)), rtol=1e-2, atol=1e-2)


def test_loops_of_one_group_share_one_choice() -> None:
    gm = spyre_fx.capture(lambda x: x.sum((0, 1)), torch.ones(16, 8, 4).half())
    tree = LoopGroup(4, {"x": 0}, [LoopGroup(2, {"x": 1}, ["sum_1"], accumulate="operand")])
    message = r"accumulate='operand' in groups\[0\], inside of a loop with 'float32'.*outermost LoopGroup"
    with pytest.raises(TilingError, match=message):
        tile(gm, [tree])


@pytest.mark.parametrize("value", ["half", "float16", torch.float16, None, True])
def test_other_values_are_refused(value: Any) -> None:
    gm = spyre_fx.capture(lambda x: x.sum(0), torch.ones(16, 8).half())
    for name, call in (
        ("tile", lambda: tile(gm, [(["sum_1"], 4)], accumulate=value)),
        ("explain", lambda: explain(gm, [(["sum_1"], 4)], accumulate=value)),
        ("auto_groups", lambda: spyre_fx.auto_groups(gm, accumulate=value)),
    ):
        with pytest.raises(TilingError, match=f"accumulate=.* in the call of {name}. Expected 'float32' or 'operand'"):
            call()
    if value is not None:
        with pytest.raises(TilingError, match=r"accumulate=.* in groups\[0\]. Expected 'float32' or 'operand'"):
            tile(gm, [LoopGroup(4, [0], ["sum_1"], accumulate=value)])


def test_explain_shows_it() -> None:
    gm = spyre_fx.capture(lambda x: x.sum(0), torch.ones(16, 8).half())
    made = explain(gm, [(["sum_1"], 4, {"x": 0})], accumulate="operand")
    assert made.values.loops[0].form == ("sums kept in float16: sum_1",)
    assert "sums kept in float16: sum_1" in str(made)


def test_a_file_of_groups_says_it(tmp_path: Path) -> None:
    entries = [
        {"count": 4, "dims": {"x": 0}, "body": ["sum_1"], "accumulate": "operand"},
        {"count": 2, "dims": {"y": 0}, "ops": ["sum_2"]},
    ]
    (tmp_path / "groups.json").write_text(json.dumps({"groups": entries}))
    groups = read_groups(tmp_path / "groups.json")
    assert [group.accumulate for group in groups] == ["operand", None]
    gm = spyre_fx.capture(lambda x, y: (x.sum(0), y.sum(0)), *[torch.ones(16, 8).half()] * 2)
    assert carried(tile(gm, groups)) == [torch.float16, torch.float32]


def test_pickles_carry_it() -> None:
    case = CASES["attention"]
    args = case.args(torch.float16)
    tiled = with_sums(case, torch.float16, 4, "operand")
    again = pickle.loads(pickle.dumps(tiled))
    assert carried(again) == carried(tiled)
    assert torch.equal(again(*clones(args)), tiled(*clones(args)))
    assert pickle.loads(pickle.dumps(LoopGroup(2, accumulate="operand"))).accumulate == "operand"


def test_sizes_that_only_the_run_knows() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x: Tensor, w: Tensor) -> Tensor:
        return x.tanh() @ w

    args = torch.randn(8, 24).half(), torch.randn(24, 4).half()
    gm = make_fx(function, tracing_mode="symbolic")(*args)
    group = LoopGroup(4, {"x_1": 1}, ops_of(gm), accumulate="operand")
    tiled = tile(gm, [group])
    assert "sums kept in float16" in str(summary(tiled))
    fixed = spyre_fx.fix_sizes(gm, {"x_1": {0: 8, 1: 32}, "w_1": {0: 32, 1: 4}})
    assert set(carried(tile(fixed, [group]))) == {torch.float16}
    for again in (tiled, pickle.loads(pickle.dumps(tiled))):
        x, w = torch.randn(6, 40).half(), torch.randn(40, 5).half()
        total = torch.zeros(6, 5).half()
        for left, right in zip(x.tanh().split(10, 1), w.split(10), strict=True):
            total = torch.addmm(total, left, right)
        assert torch.equal(again(x, w), total)

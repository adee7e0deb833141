"""The traffic model says of chosen groups what the simulated device counts when it runs them.

What every trip needs whole, such as weights, stays in the scratchpad where there is room beside a trip.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import spyre_fx
from spyre_fx.analysis.traffic import traffic, working_sets
from spyre_fx.codegen.lowered import HostStep
from spyre_fx.target import KIB, MIB, Target
from tests.transforms.auto_cases import CASES, Case, attention, mlp, scratchpad


@dataclass(frozen=True)
class Run:
    case: Case
    moved: int
    loops: int = 1


RUNS = {
    "chain": Run(Case(lambda x: x.exp().tanh().relu().sigmoid(), ((512, 256),), 64), 2 * 512 * 256 * 2),
    "rows": Run(Case(lambda x: torch.softmax(x.exp(), -1), ((256, 512),), 64), 2 * 256 * 512 * 2),
    "mlp": Run(
        Case(lambda x, up, down: (x @ up).relu() @ down, ((512, 64), (64, 256), (256, 64)), 96),
        2 * 2 * 512 * 64 + 2 * 2 * 64 * 256,  # 16 trips share both weights
    ),
    "attention": Run(
        Case(lambda q, k, v: torch.softmax(q @ k, -1) @ v, ((2, 256, 64), (2, 64, 256), (2, 256, 64)), 128),
        2 * 2 * 2 * 256 * 64 + 2 * 2 * 2 * 256 * 64,  # 4 tiles of queries share keys and values
        loops=2,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_device_moves_what_the_model_says(name: str) -> None:
    run = RUNS[name]
    gm, target, args = run.case.graph(), scratchpad(run.case.kib), run.case.args()
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, target))
    assert sum(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()) == run.loops
    bundle = spyre_fx.lower(tiled, target)
    eager = run.case.function(*args)
    torch.testing.assert_close(tiled(*args), eager, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(bundle.run(*args), eager, rtol=1e-2, atol=1e-2)
    assert bundle.counters is not None
    assert bundle.counters.hbm_bytes == traffic(tiled, target).total == run.moved


def one_core(kib: int) -> Target:
    """A core of Spyre with a smaller scratchpad: what all cores move is the sum of such parts."""
    return Target(cores=1, lx_bytes=kib * KIB)


SCALED = {
    "chain, one scratchpad": ("chain", scratchpad(64)),
    "chain, core": ("chain", one_core(224)),
    "rows, one scratchpad": ("rows", scratchpad(64)),
    "rows, core": ("rows", one_core(224)),
    "mlp, one scratchpad": ("mlp", scratchpad(96)),
    "mlp with a remainder": ("mlp", scratchpad(128)),
    "mlp, core": ("mlp", one_core(224)),
    "mlp without room for weights": ("mlp", scratchpad(48)),
    "attention, one scratchpad": ("attention whose keys fit", scratchpad(128)),
    "attention, core": ("attention whose keys fit", one_core(320)),
    "attention over blocks of keys, one scratchpad": ("attention over blocks of keys", scratchpad(256)),
    "attention over blocks of keys, core": ("attention over blocks of keys", one_core(320)),
}


@pytest.mark.parametrize("name", SCALED)
def test_scaled_down_workloads_move_what_the_model_says(name: str) -> None:
    case, target = CASES[SCALED[name][0]], SCALED[name][1]
    gm, args = case.graph(), case.args()
    moved = {}
    for tiled in (gm, spyre_fx.tile(gm, spyre_fx.auto_groups(gm, target))):
        bundle = spyre_fx.lower(tiled, target)
        torch.testing.assert_close(bundle.run(*args), case.function(*args), rtol=1e-2, atol=1e-2)
        assert bundle.counters is not None
        moved[tiled] = bundle.counters.hbm_bytes
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    assert moved[tiled] == traffic(tiled, target).total
    assert moved[tiled] < moved[gm]


@pytest.mark.parametrize("kib", [192, 256])
def test_sums_in_halves_move_what_the_model_says(kib: int) -> None:
    """They take half of the room, and no tile beside them for the product of a trip: larger tiles fit."""
    case, target = Case(mlp, ((1024, 128), (128, 512), (512, 128)), kib), scratchpad(kib)
    gm, args = case.graph(), case.args()
    moved = {}
    for accumulate in ("float32", "operand"):
        tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, target, accumulate=accumulate))
        bundle = spyre_fx.lower(tiled, target)
        torch.testing.assert_close(bundle.run(*args), case.function(*args), rtol=1e-2, atol=1e-2)
        assert any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
        assert bundle.counters is not None
        moved[accumulate] = bundle.counters.hbm_bytes
        assert moved[accumulate] == traffic(tiled, target).total
    assert moved["operand"] < moved["float32"]


@pytest.mark.parametrize("length", [512, 1024])
def test_online_attention_is_chosen_where_its_row_values_fit_in_sticks(length: int) -> None:
    """The choice of plain bytes spilled them, and moved twice as much as no loop at all."""
    case, target = Case(attention, ((1, length, 64),) * 3, 128), scratchpad(128)
    gm, args = case.graph(), case.args()
    groups = spyre_fx.auto_groups(gm, target)
    tiled = spyre_fx.tile(gm, groups)
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), case.function(*args), rtol=1e-2, atol=1e-2)
    assert groups and max(working_sets(tiled, target).values()) <= target.capacity_bytes
    assert bundle.counters is not None and bundle.counters.hbm_bytes == traffic(tiled, target).total
    assert bundle.counters.hbm_bytes < {512: 1.1, 1024: 9}[length] * MIB


@pytest.mark.parametrize("queries", [256, 320, 192], ids=["even", "remainder", "one trip each"])
def test_tiles_are_moved_to_other_sticks_where_they_are_read(queries: int) -> None:
    """In the scratchpad, for each tile of queries again: main memory has tiles of queries, keys and values alone."""
    case, target = Case(attention, ((2, queries, 64), (2, 1024, 64), (2, 1024, 64)), 224), scratchpad(224)
    gm, args = case.graph(), case.args()
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiles = -(-queries // 128)
    keys = spyre_fx.LoopGroup(16, {"bmm": 2}, names)
    rows = spyre_fx.LoopGroup(tiles, {"bmm": 1}, [keys], multiple_of=128)
    tiled = spyre_fx.tile(gm, [spyre_fx.LoopGroup(2, {"bmm": 0}, [rows])])
    assert max(working_sets(tiled, target).values()) <= target.capacity_bytes
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), attention(*args), rtol=1e-2, atol=1e-2)
    assert bundle.counters is not None
    whole, numbers = 2 * 1024 * 64 * 2, 128 * 2 * tiles * (3 + 16 * 4)
    assert bundle.counters.hbm_bytes == traffic(tiled, target).total
    assert bundle.counters.hbm_bytes == 2 * 2 * queries * 64 * 2 + tiles * 2 * whole + numbers


def _moved_twice(q: Tensor, k: Tensor) -> Tensor:
    return torch.relu(q @ k.t()) @ k


TURNED = {
    "one product": (lambda q, k: q @ k.t(), [(128, 64), (256, 64)]),
    "two products": (lambda q, k, x: q @ k.t() + x @ k.t(), [(128, 64), (256, 64), (128, 64)]),
    "in their own sticks as well": (_moved_twice, [(128, 64), (256, 64)]),
    "made before": (lambda q, k: q @ (k * 2).t(), [(128, 64), (256, 64)]),
    "attention": (attention, [(1, 128, 64), (1, 256, 64), (1, 256, 64)]),
}


SEEN_TWICE = {"two products": 1, "in their own sticks as well": 2, "made before": 2}
"""How often more the model counts 256 rows of 64 halves: where two arguments of a loop are views of one value; and
where one is made before, which stays in the scratchpad until it is moved there: the model has it in main memory.
"""


@pytest.mark.parametrize("loop", [False, True], ids=["no loop", "loop"])
@pytest.mark.parametrize("name", TURNED)
def test_copies_in_other_sticks_stay_in_lx(name: str, loop: bool) -> None:
    function, shapes = TURNED[name]
    case, target = Case(function, tuple(shapes), 256), scratchpad(256)
    gm, args = case.graph(), case.args()
    if loop:
        names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
        rows = "bmm" if "bmm" in names else "mm"
        if name == "made before":
            names = names[1:]
        gm = spyre_fx.tile(gm, [spyre_fx.LoopGroup(2, {rows: 1 if rows == "bmm" else 0}, names)])
        assert any(isinstance(module, spyre_fx.CountedLoop) for module in gm.modules())
    bundle = spyre_fx.lower(gm, target)
    torch.testing.assert_close(bundle.run(*args), function(*args), rtol=1e-2, atol=1e-2)
    assert bundle.counters is not None
    again = SEEN_TWICE.get(name, 0) * 256 * 64 * 2 if loop else 0
    assert bundle.counters.hbm_bytes == traffic(gm, target).total - again


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("kib", [224, 448, 1024])
def test_keys_that_an_inner_loop_reads_tile_by_tile_are_not_kept(kib: int, windows: bool) -> None:
    """Addresses in LX are fixed: with room for all keys, too, each tile of queries reads them anew.

    Where loops may be unrolled, keys are moved to other sticks before them, and stay if there is room, written and read
    twice in LX: the model does not know, nor that values of rows take whole sticks then.
    """
    case, target = (
        Case(attention, ((1, 256, 64), (1, 1024, 64), (1, 1024, 64)), kib),
        scratchpad(kib, lx_windows=windows),
    )
    gm, args = case.graph(), case.args()
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [spyre_fx.LoopGroup(2, {"bmm": 1}, [spyre_fx.LoopGroup(8, {"bmm": 2}, names)])])
    assert sum(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules()) == 2
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), attention(*args), rtol=1e-2, atol=1e-2)
    assert bundle.counters is not None
    total = traffic(tiled, target).total
    if windows and kib == 224:
        assert bundle.counters.hbm_bytes > total
    else:
        moved, kept = (2, 3) if windows else (0, 0)
        assert bundle.counters.hbm_bytes == total + (moved - kept) * 1024 * 64 * 2
    assert traffic(tiled, target).read > 2 * 2 * 1024 * 64 * 2


@dataclass(frozen=True)
class Spread:
    """A case on several cores, each with so many KiB of its own."""

    case: Case
    cores: int
    kib: int
    loops: bool = True
    """Whether some loop moves less than none: not where each core would read all weights or keys on every trip."""


_CHAIN, _ROWS, _MLP, _ATTENTION = (RUNS[name].case for name in ("chain", "rows", "mlp", "attention"))
_LONG_MLP = Case(_MLP.function, ((1024, 64), (64, 256), (256, 64)), 96)
_ONE_HEAD = Case(attention, ((1, 512, 64),) * 3, 128)
_LONG_ATTENTION = CASES["attention over blocks of keys"]
SPREAD = {
    "chain, 4 cores": Spread(_CHAIN, 4, 16),
    "chain, 32 cores": Spread(_CHAIN, 32, 4),
    "rows, 4 cores": Spread(_ROWS, 4, 16),
    "rows, 32 cores": Spread(_ROWS, 32, 4),
    "mlp, 4 cores": Spread(_MLP, 4, 32),
    "mlp, 4 small cores": Spread(_MLP, 4, 24),
    "mlp, 32 cores": Spread(_MLP, 32, 8, loops=False),
    "long mlp, 4 cores": Spread(_LONG_MLP, 4, 32),
    "long mlp, 32 cores": Spread(_LONG_MLP, 32, 8),
    "attention, 4 cores": Spread(_ATTENTION, 4, 32),
    "attention, 32 cores": Spread(_ATTENTION, 32, 8, loops=False),
    "attention, 32 small cores": Spread(_ATTENTION, 32, 4, loops=False),
    "one head, 4 cores": Spread(_ONE_HEAD, 4, 64),
    "one head, 32 cores": Spread(_ONE_HEAD, 32, 16, loops=False),
    "long attention, 4 cores": Spread(_LONG_ATTENTION, 4, 64),
    "long attention, 32 cores": Spread(_LONG_ATTENTION, 32, 16, loops=False),
}


@pytest.mark.parametrize("name", SPREAD)
def test_loops_move_no_more_than_none_where_each_core_reads_what_it_needs(name: str) -> None:
    """Nothing is broadcast: what every trip needs whole is read, and kept, once for each core that needs it."""
    run = SPREAD[name]
    gm, args, target = run.case.graph(), run.case.args(), scratchpad(run.kib, cores=run.cores)
    groups = spyre_fx.auto_groups(gm, target)
    assert bool(groups) == run.loops
    moved = {}
    for tiled in (gm, spyre_fx.tile(gm, groups)):
        bundle = spyre_fx.lower(tiled, target)
        torch.testing.assert_close(bundle.run(*args), run.case.function(*args), rtol=1e-2, atol=1e-2)
        assert bundle.counters is not None
        moved[tiled] = bundle.counters.hbm_bytes
    assert moved[tiled] < moved[gm] if run.loops else moved[tiled] == moved[gm]


@pytest.mark.parametrize("cores", [1, 4])
def test_weights_that_stay_are_read_once_for_each_core(cores: int) -> None:
    """Rows are divided over the cores, each of which holds all weights: the model is exact here."""
    gm, args, target = _MLP.graph(), _MLP.args(), scratchpad(96, cores=cores)
    tiled = spyre_fx.tile(gm, [spyre_fx.LoopGroup(16, {"mm": 0}, ["mm", "relu", "mm_1"])])
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), _MLP.function(*args), rtol=1e-2, atol=1e-2)
    assert bundle.counters is not None
    weights, rows = 2 * 2 * 64 * 256, 2 * 2 * 512 * 64
    assert bundle.counters.hbm_bytes == traffic(tiled, target).total == rows + cores * weights


def test_groups_whose_loops_move_no_less_are_dropped_with_the_reason() -> None:
    gm = _LONG_ATTENTION.graph()
    groups = spyre_fx.auto_groups(gm, scratchpad(16, cores=32))
    assert not groups
    assert any("loops would save nothing" in reason.text and not reason.tiled for reason in groups.reasons)


def test_losses_move_what_the_model_says() -> None:
    """Of what the device runs: the host finds out which targets are ignored, and sees to it that the rest are classes.

    Within 0.1%: the model keeps in the scratchpad what comes from the host, 512 bytes.
    """
    case, target = CASES["losses"], scratchpad(CASES["losses"].kib)
    gm, args = case.graph(), case.args()
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, target))
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), case.function(*args), rtol=1e-2, atol=1e-2)
    hosted = {name for step in bundle.lowered.steps if isinstance(step, HostStep) for name, _ in step.reasons}
    assert not any(name.startswith("loop") for name in hosted)
    moved = sum(found.total for op, found in traffic(tiled, target).by_node.items() if op.name not in hosted)
    assert bundle.counters is not None
    assert bundle.counters.hbm_bytes == pytest.approx(moved, rel=0.001)


def test_losses_against_targets_of_which_the_device_has_the_weights() -> None:
    """Without a gather the search cuts the classes after the logits, too.

    The figures differ by what a wide statistic of rows is moved with when it is brought back to halves: less than 1%.
    """

    def losses(x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        return torch.logsumexp(x @ weight.T, -1, keepdim=True) - (x * chosen).sum(-1, keepdim=True)

    case, target = Case(losses, ((256, 64), (2048, 64), (256, 64)), 128), scratchpad(128)
    gm, args = case.graph(), case.args()
    tiled = spyre_fx.tile(gm, spyre_fx.auto_groups(gm, target))
    bundle = spyre_fx.lower(tiled, target)
    torch.testing.assert_close(bundle.run(*args), losses(*args), rtol=1e-2, atol=1e-2)
    assert any(isinstance(module, spyre_fx.CountedLoop) for module in tiled.modules())
    assert bundle.counters is not None
    assert bundle.counters.hbm_bytes == pytest.approx(traffic(tiled, target).total, rel=0.01)

"""Running values that depend on each other, as ops of the untiled graph and as loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from spyre_fx.analysis.fake import ensure_fake
from spyre_fx.transforms.loop_types import Carried
from spyre_fx.transforms.recurrence import Recurrence, Recurrences, State, one_trip
from spyre_fx.transforms.rewriting import Emitter
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

aten = torch.ops.aten

X, WEIGHT = torch.randn(6, 12), torch.rand(12)


def counted(emit: Emitter, total: fx.Node) -> list[fx.Node]:
    """A running sum and the running number of its trips, which the sum reads."""
    trips = emit.before(total, 0)
    following = emit(aten.add.Scalar, trips, 1)
    before = emit.before(total, 0)
    added = emit(aten.add.Tensor, before, emit(aten.mul.Tensor, total, following))
    return [emit.after(total, trips, following), emit.after(total, before, added)]


@pytest.fixture
def emitter() -> Emitter:
    gm = ensure_fake(traced(lambda x: x.sum(1).relu(), X))
    return Emitter(next(node for node in gm.graph.nodes if node.name == "relu"))


def test_states_name_their_parts(emitter: Emitter) -> None:
    total = emitter.op.all_input_nodes[0]
    trips, running = counted(emitter, total)
    recurrence = emitter.recurrence()
    assert recurrence is not None
    first, second = recurrence.states
    assert (first.partial, first.after, first.identity) == (total, trips, 0)
    assert first.following.target is aten.add.Scalar
    assert second.after is running and second.following.target is aten.add.Tensor
    assert total not in recurrence.trip  # it was there before
    assert recurrence.trip == set(emitter.ops)


def test_a_trip_holds_only_what_leads_to_a_running_value(emitter: Emitter) -> None:
    total = emitter.op.all_input_nodes[0]
    counted(emitter, total)
    beside = emitter(aten.neg.default, total)
    recurrence = emitter.recurrence()
    assert recurrence is not None and beside not in recurrence.trip
    assert one_trip(recurrence.states, ()).trip == {
        node for state in recurrence.states for node in (state.before, state.after)
    }


def test_without_running_values_there_is_no_recurrence(emitter: Emitter) -> None:
    emitter(aten.neg.default, emitter.op)
    assert emitter.recurrence() is None


def test_what_stands_for_one_trip_and_what_for_all(emitter: Emitter) -> None:
    total = emitter.op.all_input_nodes[0]
    trips, running = counted(emitter, total)
    recurrence = emitter.recurrence()
    assert recurrence is not None
    known = Recurrences([recurrence])
    before = recurrence.states[0].before
    assert known.is_of_one_trip(before) and known.is_of_one_trip(recurrence.states[0].following)
    assert not known.is_of_one_trip(trips) and not known.is_of_one_trip(total)
    assert known.partial(running) is total and known.partial(total) is total
    assert known.by_before[before] is known.by_after[trips]


def test_recurrences_that_read_each_other_share_their_trips(emitter: Emitter) -> None:
    total = emitter.op.all_input_nodes[0]

    def following(source: fx.Node) -> Recurrence:
        before = emitter.before(total, 0)
        value = emitter(aten.add.Tensor, before, source)
        after = emitter(aten.clone.default, value)
        return one_trip([State(total, before, after)], [before, value, after])

    first = following(total)
    apart = following(total)
    of_first_trip = following(first.states[0].following)
    of_last_value = following(first.states[0].after)
    assert [len(trip) for trip in Recurrences([first, apart]).trips] == [3, 3]
    assert [len(trip) for trip in Recurrences([first, of_first_trip]).trips] == [6]
    assert [len(trip) for trip in Recurrences([first, of_last_value]).trips] == [3, 3]
    assert sorted(len(trip) for trip in Recurrences([first, apart, of_first_trip]).trips) == [3, 6]


# ---- in loops

PASSES: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "moments": (lambda x: torch.var_mean(x, 1), 1),
    "extreme with its place": (lambda x: x.max(1), 1),
    "layer norm": (lambda x: F.layer_norm(x, (12,), WEIGHT, WEIGHT), 2),
    "layer norm, then its sum": (lambda x: F.layer_norm(x, (12,), WEIGHT).sum(1), 2),
    "rms norm": (lambda x: F.rms_norm(x, (12,), WEIGHT), 2),
    "two rms norms": (lambda x: F.rms_norm(F.rms_norm(x, (12,)), (12,), WEIGHT), 3),
    "normaliser of a softmax": (lambda x: torch.logsumexp(x, 1), 1),
    "softmax of a layer norm": (lambda x: torch.softmax(F.layer_norm(x, (12,)), 1), 3),
}


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("case", PASSES)
def test_passes_over_the_reduced_axis(case: str, count: int) -> None:
    """The moments of a norm come from one pass over the data, and its result from a second one."""
    fn, passes = PASSES[case]
    gm = traced(fn, X)
    tiled = check_tiled(gm, [(ops_of(gm), count, {"x_1": 1})], X)
    assert len(loops_of(tiled)) == passes


def test_all_running_values_of_a_trip_are_carried_by_one_loop() -> None:
    gm = traced(lambda x: torch.var_mean(x, 1), X)
    (loop,) = loops_of(check_tiled(gm, [(ops_of(gm), 3, {"x_1": 1})], X))
    assert sum(isinstance(result, Carried) for result in loop.results) == 3  # count, mean, squares


@pytest.mark.parametrize("levels", [[(2, 0), (3, 1)], [(3, 1), (2, 0)], [(2, 1), (3, 1)]], ids=str)
@pytest.mark.parametrize("case", PASSES)
def test_in_nests(case: str, levels: list[tuple[int, int]]) -> None:
    gm = traced(PASSES[case][0], X)
    check_tiled(gm, [(ops_of(gm), [(count, {"x_1": dim}) for count, dim in levels])], X)


def test_a_loop_over_another_axis_is_all_of_one_trip() -> None:
    """Rows are cut by the outer level only; the running values of its trips have nothing to do with each other."""
    gm = traced(lambda x: torch.var_mean(x, 1), X)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 0})], X)
    assert not any(isinstance(result, Carried) for loop in loops_of(tiled) for result in loop.results)


# ---- losses over tiled classes

TARGETS, PROBABILITIES = torch.tensor([0, 11, 3, 3, -100, 7]), torch.softmax(torch.randn(6, 12), 1)

LOSSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": lambda x: F.cross_entropy(x, TARGETS),
    "weights": lambda x: F.cross_entropy(x, TARGETS, WEIGHT),
    "weights, sum": lambda x: F.cross_entropy(x, TARGETS, WEIGHT, reduction="sum"),
    "weights, each": lambda x: F.cross_entropy(x, TARGETS, WEIGHT, reduction="none"),
    "smoothing": lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.1),
    "smoothing, each": lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.3, reduction="none"),
    "smoothing and weights": lambda x: F.cross_entropy(x, TARGETS, WEIGHT, label_smoothing=0.1),
    "smoothing and weights, sum": lambda x: F.cross_entropy(x, TARGETS, WEIGHT, label_smoothing=0.1, reduction="sum"),
    "probabilities": lambda x: F.cross_entropy(x, PROBABILITIES),
    "probabilities and weights": lambda x: F.cross_entropy(x, PROBABILITIES, WEIGHT, label_smoothing=0.2),
}


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("case", LOSSES)
def test_cross_entropy(case: str, dim: int) -> None:
    """Over the classes and over the samples, with a class that is to be ignored."""
    gm = traced(LOSSES[case], X)
    check_tiled(gm, [(ops_of(gm), 5, {"x_1": dim})], X)

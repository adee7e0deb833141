"""One element per row out of an axis that is tiled: gather, scatter and the losses of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import spyre_fx
from spyre_fx.analysis.budget import peak_bytes
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

aten = torch.ops.aten

X, TARGET = torch.randn(6, 10), torch.tensor([1, 9, -100, 0, 5, 5])
WEIGHT = torch.rand(10)
NESTS = [[(3, 1)], [(4, 1), (2, 0)], [(2, 0), (4, 1)], [(3, 0)]]

LOSSES: dict[str, Callable[..., Any]] = {
    "none": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "mean": lambda x, t: F.cross_entropy(x, t),
    "sum": lambda x, t: F.cross_entropy(x, t, reduction="sum"),
    "smoothed": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    "both results": lambda x, t: aten.nll_loss_forward(torch.log_softmax(x, 1), t, None, 1, -100),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "gather": lambda x, t: torch.log_softmax(x, 1).gather(1, t.clamp(min=0).unsqueeze(1)),
    "gather of bools": lambda x, t: (x > 0).gather(1, t.clamp(min=0).unsqueeze(1)),
    "scatter": lambda x, t: x.scatter(1, t.clamp(min=0).unsqueeze(1), -1.0),
    "softmax backward": lambda x, t: aten._softmax_backward_data(x.sin(), torch.softmax(x, 1), 1, x.dtype),
    "log_softmax backward": lambda x, t: aten._log_softmax_backward_data(x.sin(), torch.log_softmax(x, 1), 1, x.dtype),
    "safe softmax": lambda x, t: aten._safe_softmax(torch.where(t.unsqueeze(1) == 5, -float("inf"), x), 1),
}


def groups_of(gm: torch.fx.GraphModule, levels: list[tuple[int, int]]) -> Any:
    x = next(iter(gm.graph.nodes)).name
    return [(ops_of(gm), [(count, {x: dim}) for count, dim in levels])]


@pytest.mark.parametrize("capture", [traced, spyre_fx.capture])
@pytest.mark.parametrize("levels", NESTS)
@pytest.mark.parametrize("case", LOSSES)
def test_losses(case: str, levels: list[tuple[int, int]], capture: Callable[..., Any]) -> None:
    gm = capture(LOSSES[case], X, TARGET)
    check_tiled(gm, groups_of(gm, levels), X, TARGET)


@pytest.mark.parametrize("levels", NESTS)
@pytest.mark.parametrize("case", OTHERS)
def test_other_choices(case: str, levels: list[tuple[int, int]]) -> None:
    gm = traced(OTHERS[case], X, TARGET)
    check_tiled(gm, groups_of(gm, levels), X, TARGET)


def test_weights_half_precision_places_and_one_sample() -> None:
    gm = traced(lambda x, t, w: F.cross_entropy(x, t, w), X, TARGET, WEIGHT)
    check_tiled(gm, groups_of(gm, [(3, 1)]), X, TARGET, WEIGHT)
    places, targets = torch.randn(2, 10, 3), torch.randint(0, 10, (2, 3))
    for x, t, dim in ((X.bfloat16(), TARGET, 1), (places, targets, 1), (X[0], TARGET[0], 0)):
        gm = traced(LOSSES["mean"], x, t)
        check_tiled(gm, groups_of(gm, [(3, dim)]), x, t)


def test_gradient_of_the_loss() -> None:
    def fn(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, grad: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return aten.nll_loss_backward(grad, x, t, w, 1, -100, total) * 2

    args = X, TARGET, WEIGHT, torch.tensor(2.0), torch.tensor(3.0)
    gm = traced(fn, *args)
    levels = [(4, {"nll_loss_backward": 1}), (2, {"nll_loss_backward": 0})]
    check_tiled(gm, [(ops_of(gm), levels)], *args)


def test_no_class_hit_twice_and_none_ignored() -> None:
    gm = traced(LOSSES["mean"], X, torch.full((6,), -100))
    check_tiled(gm, groups_of(gm, [(3, 1)]), X, torch.full((6,), -100))  # 0 / 0


def test_infinite_scores() -> None:
    x = X.clone()
    x[0], x[1, 3], x[3, 4], x[4, 5] = -float("inf"), float("inf"), float("nan"), -float("inf")
    gm = traced(lambda x, t: F.cross_entropy(x, t, reduction="none"), x, TARGET)
    check_tiled(gm, groups_of(gm, [(4, 1)]), x, TARGET)


@pytest.mark.parametrize("capture", [traced, spyre_fx.capture])
def test_a_large_vocabulary_in_one_pass(capture: Callable[..., Any]) -> None:
    """Neither the scores nor anything of their size is ever whole."""
    h, w, t = torch.randn(16, 8), torch.randn(32_000, 8), torch.randint(0, 32_000, (16,))
    gm = capture(lambda h, w, t: F.cross_entropy(h @ w.t(), t), h, w, t)
    vocabulary = [node.name for node in gm.graph.nodes if node.op == "placeholder"][1]
    tiled = check_tiled(gm, [(ops_of(gm), 31, {vocabulary: 0})], h, w, t)
    (loop,) = loops_of(tiled)
    assert all(max(kind.shape) <= 16 for kind in loop.result_types)
    assert peak_bytes(tiled) < peak_bytes(gm) / 7


def test_an_index_of_several_places_is_not_searched() -> None:
    index = torch.randint(0, 10, (6, 3))
    gm = traced(lambda x, i: x.gather(1, i), X, index)
    with pytest.raises(spyre_fx.TilingError, match="cannot be cut"):
        tile(gm, [(ops_of(gm), 2, {"x_1": 1})])


def loss_gradient(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return aten.nll_loss_backward(x.new_ones([]), x, t, None, 2, -100, x.new_ones([])) * 2


@pytest.mark.parametrize("levels", NESTS[:3])
@pytest.mark.parametrize("case", ["none", "both results", "gather", "scatter", "gradient"])
def test_an_index_out_of_bounds_raises_as_in_eager(case: str, levels: list[tuple[int, int]]) -> None:
    fn = {
        **LOSSES,
        "gather": lambda x, t: x.gather(1, t.unsqueeze(1)),
        "scatter": lambda x, t: x.scatter(1, t.unsqueeze(1), -1.0),
        "gradient": loss_gradient,
    }[case]
    gm = traced(fn, X, TARGET.clamp(min=0))
    name = "nll_loss_backward" if case == "gradient" else "x_1"
    group = [node for node in ops_of(gm) if "new_ones" not in node]
    tiled = check_tiled(gm, [(group, [(count, {name: dim}) for count, dim in levels])], X, TARGET.clamp(min=0))
    target = TARGET.clamp(min=0)
    for bad in (10, -1, 2**40):
        target[4] = bad
        with pytest.raises((IndexError, RuntimeError), match="out of") as eager:
            gm(X, target)
        with pytest.raises(eager.type, match="out of"):
            tiled(X, target)


def test_a_class_of_a_place_out_of_bounds() -> None:
    x = torch.randn(2, 10, 3, 1)
    target = torch.tensor([[[1], [9], [200]], [[0], [0], [5]]])
    gm = traced(lambda x, t: aten.nll_loss2d_forward(x, t, None, 1, 200), x, target)
    tiled = check_tiled(gm, [(ops_of(gm), 3, {"x_1": 1})], x, target)
    target[0, 0, 0] = 10
    for module in (gm, tiled):
        with pytest.raises(IndexError, match="out of"):
            module(x, target)


def calls_of(graph: torch.fx.Graph) -> list[Any]:
    return [node.target for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("levels", [[(2, 0), (4, 1)], [(4, 1)]], ids=["rows and classes", "classes"])
@pytest.mark.parametrize("view", [False, True], ids=["as it is", "through a view of the group"])
def test_places_from_outside_are_checked_once_before_the_loops(levels: list[tuple[int, int]], view: bool) -> None:
    index = TARGET.clamp(min=0) if view else TARGET.clamp(min=0).unsqueeze(1)
    gm = traced(lambda x, i: x.sin().gather(1, i.unsqueeze(1) if view else i) * 2, X, index)
    tiled = check_tiled(gm, groups_of(gm, levels), X, index)
    bodies = [loop.body(phase).graph for loop in loops_of(tiled) for phase in loop.phases]
    assert bodies and calls_of(tiled.graph).count(aten.gather.default) == 1
    assert all(aten.gather.default not in calls_of(body) for body in bodies)
    assert all(argument.dtype is not torch.int64 for loop in loops_of(tiled) for argument in loop.argument_types)


def test_places_that_the_group_makes_are_checked_in_its_loops() -> None:
    gm = traced(lambda x: x.sin().gather(1, x.argmax(1, True)) * 2, X)
    tiled = check_tiled(gm, groups_of(gm, [(2, 0)]), X)
    assert aten.gather.default not in calls_of(tiled.graph)
    check_tiled(gm, groups_of(gm, [(3, 1)]), X)
    check_tiled(gm, groups_of(gm, [(2, 0), (4, 1)]), X)

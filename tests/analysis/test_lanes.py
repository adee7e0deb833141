"""Products with rows in their sticks: the model lets those have them that lowering does, and counts them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.analysis.storage import SPARSE, Storage
from spyre_fx.analysis.traffic import traffic
from spyre_fx.analysis.traffic.lanes import chosen_lanes
from spyre_fx.codegen.restickify import RESTICKIFY
from tests.codegen.device_runs import half, specs_of
from tests.transforms.auto_cases import scratchpad

STORAGE = Storage(128)


def row_sums(x, w):
    return torch.relu(x @ w.T).sum(1)


def soft_sums(x, w):
    return torch.softmax(x @ w.T, 1).sum(1)


def row_maxima(x, w):
    return (x @ w.T * 0.5).amax(1, keepdim=True)


def log_sums(x, w):
    return torch.logsumexp(x @ w.T, 1)


def columns(count: int, **options: Any) -> Callable[[list[str]], Any]:
    return lambda names: spyre_fx.LoopGroup(count, {"mm": 1}, names, **options)


def nest(names: list[str]) -> Any:
    """Tiles of 64 rows, in each of them tiles of 64 columns."""
    inside = spyre_fx.LoopGroup(16, {"mm": 1}, names, multiple_of=64)
    return spyre_fx.LoopGroup(4, {"mm": 0}, [inside], multiple_of=64)


def tiled(function: Callable[..., Any], args: list[torch.Tensor], group: Any) -> torch.fx.GraphModule:
    gm = spyre_fx.capture(function, *args)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    found = gm if group is None else spyre_fx.tile(gm, [group(names)])
    assert group is None or any(isinstance(module, spyre_fx.CountedLoop) for module in found.modules())
    return found


@pytest.mark.parametrize(("function", "shapes", "kib", "group"), [
    (row_sums, [(128, 64), (1024, 64)], 112, None),
    (soft_sums, [(128, 64), (1024, 64)], 112, None),
    (row_maxima, [(128, 64), (1024, 64)], 112, None),
    (log_sums, [(128, 64), (1024, 64)], 112, None),
    (row_sums, [(128, 64), (1024, 64)], 224, columns(8)),
    (soft_sums, [(128, 64), (1024, 64)], 112, columns(8)),
    (soft_sums, [(128, 64), (1000, 64)], 112, columns(8, multiple_of=64)),
    (row_sums, [(256, 64), (1024, 64)], 112, nest),
    (soft_sums, [(256, 64), (1024, 64)], 112, nest),
])  # fmt: skip
def test_the_smaller_factor_is_moved_where_rows_alone_come_of_the_product(function, shapes, kib, group):
    torch.manual_seed(0)
    args, target = [half(*shape) / 4 for shape in shapes], scratchpad(kib)
    gm = tiled(function, args, group)
    bundle = spyre_fx.lower(gm, target)
    torch.testing.assert_close(bundle.run(*args), function(*args), rtol=1e-2, atol=1e-2)
    assert chosen_lanes(gm, Storage.of(target)).products
    moved = {spec.args[0].name for spec in specs_of(bundle) if spec.op == RESTICKIFY}
    assert any(name.startswith("x") for name in moved) and not any(name.startswith("w") for name in moved)
    assert bundle.counters.hbm_bytes == traffic(gm, target).total


def picked(x, w, places):
    others = torch.arange(w.shape[0], dtype=torch.int32) != places.unsqueeze(1)
    return torch.relu(x @ w.T).masked_fill(others, 0).sum(1)


@pytest.mark.parametrize(("rows", "classes", "group"), [
    (128, 1024, columns(8)),
    (128, 960, columns(8, multiple_of=128)),
    (256, 1024, nest),
])  # fmt: skip
def test_tiles_of_constants_are_read_side_by_side_and_laid_out_in_the_scratchpad(rows, classes, group):
    torch.manual_seed(0)
    args, target = [half(rows, 64) / 4, half(classes, 64) / 4, torch.randint(classes, (rows,)).int()], scratchpad(192)
    gm = make_fx(picked, tracing_mode="fake")(*args)  # where numbers stay in the calls
    gm = spyre_fx.tile(gm, [group([node.name for node in gm.graph.nodes if node.op == "call_function"])])
    laid_out = chosen_lanes(gm, Storage.of(target)).laid_out
    assert laid_out and all(tile.op == "placeholder" for tile in laid_out)
    bundle = spyre_fx.lower(gm, target)
    torch.testing.assert_close(bundle.run(*args), picked(*args), rtol=1e-2, atol=1e-2)
    assert bundle.counters.hbm_bytes == traffic(gm, target).total


def test_tiles_inside_a_stick_of_constants_take_a_stick_for_each_value():
    args = [half(128, 64), half(1024, 64), torch.zeros(128, dtype=torch.int32)]
    lanes = chosen_lanes(tiled(picked, args, columns(64)), STORAGE)
    assert lanes.products and not lanes.laid_out


def test_values_of_rows_lie_side_by_side():
    gm = tiled(log_sums, [half(128, 64), half(1024, 64)], None)
    lanes = chosen_lanes(gm, STORAGE)
    (product,) = lanes.products
    rows = [node for node in lanes.dims if node.meta["val"].numel() == 128]
    assert product.name == "mm" and lanes.dims[product] == 0
    assert rows and all(lanes.dims[node] == 0 for node in rows)
    assert {STORAGE.bytes_of(tuple(n.meta["val"].shape), torch.float16, lane=0) for n in rows} == {256}


def test_what_lacks_rows_has_one_element_to_a_stick():
    gm = tiled(lambda x, w, b: torch.relu(x @ w.T + b).sum(1), [half(128, 64), half(1024, 64), half(1024)], None)
    lanes = chosen_lanes(gm, STORAGE)
    (inputs,) = (copied for op, copied in lanes.copied.items() if op.name == "add")
    assert {node.name: dim for node, dim in inputs.items()} == {"b": SPARSE}


@pytest.mark.parametrize("function", [
    lambda x, w: x @ w.T,
    lambda x, w: torch.relu(x @ w.T),
    lambda x, w: torch.relu(x @ w.T) @ w,
    lambda x, w: torch.cumsum(x @ w.T, 1).sum(1),
    lambda x, w: (x @ w.T).sum(0),
    lambda x, w: (x @ w).sum(1),
], ids=["returned", "returned later", "in a product", "scanned", "over rows", "in its sticks"])  # fmt: skip
def test_products_of_which_more_comes_have_columns_in_their_sticks(function):
    assert not chosen_lanes(tiled(function, [half(64, 64), half(64, 64)], None), STORAGE).products


def test_a_smaller_right_factor_is_moved_itself():
    assert not chosen_lanes(tiled(row_sums, [half(512, 64), half(64, 64)], None), STORAGE).products


def test_parameters_are_laid_out_beforehand():
    model = torch.nn.Linear(64, 1024, bias=False, dtype=torch.float16).requires_grad_(False)
    gm = spyre_fx.capture(lambda x: model(x).sum(1), half(64, 64))
    assert not chosen_lanes(gm, STORAGE).products


def test_tiles_inside_a_stick_of_rows_leave_columns_in_the_sticks():
    args = [half(256, 64), half(1024, 64)]
    even = tiled(row_sums, args, lambda names: spyre_fx.LoopGroup(4, {"mm": 0}, names))
    odd = tiled(row_sums, args, lambda names: spyre_fx.LoopGroup(8, {"mm": 0}, names))
    assert chosen_lanes(even, STORAGE).products and not chosen_lanes(odd, STORAGE).products


def test_one_element_of_each_row_is_looked_for_in_loops_alone():
    def picked(x, w, place):
        return torch.gather(x @ w.T, 1, place).sum(1)

    gm = tiled(picked, [half(64, 64), half(1024, 64), torch.zeros(64, 1, dtype=torch.int64)], None)
    assert not chosen_lanes(gm, STORAGE).products
    assert chosen_lanes(gm, STORAGE, in_loops=True).products

"""Which kind of work each op is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis.schedule import WorkKind, plan
from tests.analysis.planning import check, kinds, ops_of, traced

aten = torch.ops.aten
X = (4, 6)


@pytest.mark.parametrize(
    ("kind", "fn"),
    [
        ("elementwise_single", lambda x: x.tanh()),
        ("elementwise_single", lambda x: x.to(torch.float16)),
        ("elementwise_single", lambda x: aten.clone(x)),
        ("elementwise_single", lambda x: x.masked_fill(torch.ones(6, dtype=torch.bool), 0.0)),
        ("shape", lambda x: x.view(6, 4)),
        ("shape", lambda x: x.t()),
        ("shape", lambda x: x.unsqueeze(0)),
        ("shape", lambda x: x[1]),
        ("shape", lambda x: aten.slice(x, 0, 1, 3)),
        ("shape", lambda x: aten.split(x, 2)),
        ("shape", lambda x: torch.stack([x, x])),
        ("shape", lambda x: x.flip(0)),
        ("shape", lambda x: torch.ops.aten.repeat(x, [2, 1])),
        ("shape", lambda x: x.tril()),
        ("shape", lambda x: aten.slice_scatter(x, x, 0)),
        ("shape", lambda x: x.detach()),
        ("dot_general", lambda x: x @ x.t()),
        ("dot_general", lambda x: aten.addmm(x[:, :4], x, x.t())),
        ("dot_general", lambda x: torch.bmm(x[None], x.t()[None])),
        ("dot_general", lambda x: aten.mm(x[:, :1], x[:1])),
        ("dot_general", lambda x: aten.linear(x, x, x[:, 0])),
        ("dot_general", lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None].transpose(0, 1))),
        ("reduction", lambda x: x.sum()),
        ("reduction", lambda x: x.amax(1)),
        ("reduction", lambda x: x.argmax(1)),
        ("reduction", lambda x: torch.var_mean(x, 0)),
        ("reduction", lambda x: x.max(1)),
        ("reduction", lambda x: torch.logsumexp(x, 1)),
        ("reduction", lambda x: x[:, :1].sum(1)),
        ("row_pipeline", lambda x: x.softmax(1)),
        ("row_pipeline", lambda x: x.log_softmax(0)),
        ("row_pipeline", lambda x: x[:, :1].softmax(1)),
        ("row_pipeline", lambda x: aten.native_layer_norm(x, [6], None, None, 1e-5)),
        ("row_pipeline", lambda x: aten.native_group_norm(x, None, None, 4, 6, 1, 2, 1e-5)),
        ("scan", lambda x: x.cumsum(1)),
        ("scan", lambda x: x.cumprod(0)),
        ("scan", lambda x: x.cummax(0)),
        ("kernel_call", lambda x: x.sort(1)),
        ("kernel_call", lambda x: x.topk(2)),
        ("kernel_call", lambda x: torch.rand_like(x)),
        ("kernel_call", lambda x: aten.native_dropout(x, 0.5, True)),
        ("kernel_call", lambda x: x.add_(1)),
    ],
)
def test_kind_of_an_op(kind, fn):
    gm = traced(fn, X)
    assert kinds(check(gm))[-1] == kind


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, i: x.gather(1, i),
        lambda x, w, i: x[i[0]],
        lambda x, w, i: x.index_select(0, i[0]),
        lambda x, w, i: torch.nn.functional.embedding(i, w),
        lambda x, w, i: x.scatter(1, i, w),
        lambda x, w, i: aten.index_put(x, [i[0]], w[0]),
    ],
)
def test_look_ups_are_shape_work(fn):
    x = torch.empty(4, 6)
    gm = make_fx(fn, tracing_mode="fake")(x, x.clone(), torch.zeros(4, 6, dtype=torch.long))
    assert kinds(check(gm))[-1] == "shape"


def test_an_op_of_several_results_is_one_item_with_the_first_one_that_is_read():
    gm = traced(lambda x: x.max(1)[1] + 1, (4, 6))
    (top,) = ops_of(gm, aten.max.dim)
    item = check(gm).item_for(top)
    assert item.kind is WorkKind.REDUCTION
    assert item.output_value.args == (top, 1)
    assert item.dtype is torch.int64
    assert item.resources.static_write_bytes == 4 * 8


def test_all_results_that_are_read_are_written():
    gm = traced(lambda x: torch.var_mean(x, 1), (4, 6))
    assert check(gm)[0].resources.static_write_bytes == 2 * 4 * 4


def test_a_while_loop_is_iterated_work():
    def loop(x):
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))

    gm = make_fx(loop, tracing_mode="fake")(torch.empty(4, 6))
    assert "iterate" in kinds(check(gm))


def test_attention_in_one_op_is_flash_attention():
    q, k, v = torch.empty(2, 3, 16, 8), torch.empty(2, 3, 32, 8), torch.empty(2, 3, 32, 8)
    fused = aten._scaled_dot_product_flash_attention_for_cpu
    gm = make_fx(lambda q, k, v: fused(q, k, v)[0], tracing_mode="fake")(q, k, v)
    (item,) = check(gm)
    assert item.kind is WorkKind.FLASH_ATTENTION
    assert item.shape == (2, 3, 16, 8)
    assert item.resources.estimated_element_ops == 2 * 2 * 3 * 16 * 32 * (8 + 8)


def test_element_ops_of_a_convolution_count_a_filter_per_result():
    image, weight = torch.empty(2, 4, 8, 8), torch.empty(6, 2, 3, 3)
    gm = make_fx(lambda x, w: torch.nn.functional.conv2d(x, w, groups=2), tracing_mode="fake")(image, weight)
    assert check(gm)[0].resources.estimated_element_ops == 2 * (2 * 6 * 6 * 6) * (2 * 3 * 3)


def test_element_ops_of_batched_products_count_every_step():
    gm = traced(torch.bmm, (5, 4, 6), (5, 6, 8))
    assert check(gm)[0].resources.estimated_element_ops == 2 * 5 * 4 * 6 * 8


class Trips:
    """What the planner needs of a loop's phase."""

    def __init__(self, trips: int, body: str) -> None:
        self.trips, self.body = trips, body


class Loop(torch.nn.Module):
    """A module with phases and bodies, as counted loops have them."""

    def __init__(self, *phases: tuple[int, fx.GraphModule]) -> None:
        super().__init__()
        self.phases = [Trips(trips, str(position)) for position, (trips, _) in enumerate(phases)]
        self.graphs = torch.nn.ModuleDict({str(position): body for position, (_, body) in enumerate(phases)})

    def body(self, phase: Trips) -> Any:
        return self.graphs[phase.body]


def looped(loop: torch.nn.Module, shape: tuple[int, ...]) -> fx.GraphModule:
    gm = traced(lambda x: x.tanh(), shape)
    (tanh,) = ops_of(gm, aten.tanh.default)
    gm.add_module("loop_0", loop)
    with gm.graph.inserting_after(tanh):
        call = gm.graph.call_module("loop_0", (tanh,))
    call.meta["val"] = tanh.meta["val"]
    tanh.replace_all_uses_with(call, delete_user_cb=lambda user: user is not call)
    gm.recompile()
    return gm


def test_a_counted_loop_is_one_item_that_works_as_often_as_its_bodies():
    main, rest = (traced(lambda x: (x.exp() + 1).sum(1), (rows, 6)) for rows in (4, 2))
    gm = looped(Loop((3, main), (1, rest)), (14, 6))
    result = check(gm)
    assert kinds(result) == ["elementwise_single", "iterate"]
    assert result[1].op_count == 1
    assert result[1].resources.estimated_element_ops == 3 * (3 * 4 * 6) + 1 * (3 * 2 * 6)
    assert result.single_work_count == 2


def test_a_loop_without_recorded_shapes_counts_its_results():
    empty = fx.GraphModule(torch.nn.Module(), fx.Graph())
    assert check(looped(Loop((3, empty)), (14, 6)))[1].resources.estimated_element_ops == 14 * 6


def test_another_module_is_a_kernel_call():
    assert kinds(check(looped(torch.nn.Identity(), (4, 6)))) == ["elementwise_single", "kernel_call"]


def test_ops_of_unknown_size_are_listed_and_get_no_item():
    gm = make_fx(lambda x: (x * 2, x.nonzero() * 3), tracing_mode="symbolic")(torch.ones(4, 6))
    result = plan(gm)
    assert len(result.unplanned) >= 2
    assert all(node not in {item.root for item in result} for node in result.unplanned)
    assert "sizes not known before run time: " in str(result)

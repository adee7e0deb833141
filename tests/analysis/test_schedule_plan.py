"""The plan itself: order, saturation, caching, printing, refusals."""

from __future__ import annotations

import copy
import doctest
import json
import pickle
import threading

import pytest
import torch
from torch import fx

from spyre_fx.analysis import budget, schedule
from spyre_fx.analysis.schedule import SchedulePlan, WorkBound, WorkLedger, accounting, kernels, plan, plan_bound
from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.counting import U64_MAX, saturating_add, saturating_mul
from spyre_fx.errors import BudgetExceeded, CaptureError, InternalError, PlanError, SpecError
from tests.analysis.planning import check, kinds, names, ops_of, traced

aten = torch.ops.aten


def meta_graph(*shapes: tuple[int, ...]) -> tuple[fx.Graph, list[fx.Node]]:
    """A graph with inputs of any size, which take no memory: every dim is repeated."""
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x{position}") for position in range(len(shapes))]
    for node, shape in zip(inputs, shapes, strict=True):
        node.meta["val"] = torch.empty(1, device="meta").expand(shape)
    return graph, inputs


def call(graph: fx.Graph, target, args, shape) -> fx.Node:
    node = graph.call_function(target, args)
    node.meta["val"] = torch.empty(1, device="meta").expand(shape)
    return node


def finish(graph: fx.Graph, output) -> fx.GraphModule:
    graph.output(output)
    return fx.GraphModule(torch.nn.Module(), graph)


def test_independent_items_keep_the_order_of_the_graph():
    result = check(traced(lambda x, y: (x.exp(), y.t(), x.sum(), y.sin().cos()), (4, 6), (4, 6)))
    assert [item.root.name for item in result] == ["exp", "t", "sum_1", "cos"]


def test_a_cycle_is_an_error_that_names_it():
    gm = traced(lambda x: x.exp().t().sin(), (4, 4))
    (exp,), (sin,) = ops_of(gm, aten.exp.default), ops_of(gm, aten.sin.default)
    exp.replace_input_with(exp.args[0], sin)
    with pytest.raises(PlanError, match="the work items exp, t, sin wait for each other"):
        plan(gm)


def test_a_misplaced_node_is_put_into_order():
    gm = traced(lambda x: x.exp().t(), (4, 4))
    (exp,), (t,) = ops_of(gm, aten.exp.default), ops_of(gm, aten.t.default)
    t.append(exp)
    assert [item.root for item in plan(gm)] == [exp, t]


def test_dependencies_go_through_ops_without_an_item():
    """The broadcast is absorbed and stands alone; its source must still come first."""
    gm = traced(lambda x, row: x * row.exp().expand(4, 6), (4, 6), (6,))
    assert [names(item) for item in check(gm)] == [["exp"], ["mul"]]


def test_saturating_arithmetic():
    assert saturating_add(U64_MAX, 1) == U64_MAX == saturating_mul(2**32, 2**32)
    assert saturating_mul(2**40, 2**40, 0) == 0


def test_element_ops_saturate():
    graph, (a, b) = meta_graph((2**30, 2**30), (2**30, 2**30))
    (item,) = plan(finish(graph, call(graph, aten.mm.default, (a, b), (2**30, 2**30))))
    assert item.element_count == 2**60
    assert item.resources.estimated_element_ops == U64_MAX
    assert item.resources.static_total_bytes == 3 * 2**62
    assert item.resources.element_ops_per_kib == U64_MAX // (3 * 2**62)


def test_bytes_that_pass_64_bits_are_not_known():
    extent = 2**62
    graph, (x,) = meta_graph((extent,))
    (item,) = plan(finish(graph, call(graph, aten.neg.default, (x,), (extent,))))
    assert not item.resources.static_bytes_complete
    assert item.resources.static_total_bytes == 0
    assert item.resources.element_ops_per_kib == 0
    assert "0+" in str(plan(x.graph.owning_module))


def test_bytes_saturate():
    extent = 2**61
    graph, inputs = meta_graph((extent,), (extent,), (extent,))
    total = call(graph, aten.add.Tensor, tuple(inputs[:2]), (extent,))
    (item,) = plan(finish(graph, call(graph, aten.add.Tensor, (total, inputs[2]), (extent,))))
    assert item.resources.static_read_bytes == U64_MAX == item.resources.static_total_bytes
    assert item.resources.static_write_bytes == 2**63
    assert item.resources.static_bytes_complete


def test_operands_of_unknown_size_make_bytes_incomplete():
    gm = traced(lambda x: x.sum(), (4, 6))
    (x,) = gm.graph.find_nodes(op="placeholder")
    del x.meta["val"]
    x.meta["val"] = torch.empty(4, 6).to_sparse()
    (item,) = plan(gm)
    assert not item.resources.static_bytes_complete
    assert item.resources.static_read_bytes == 0


def test_an_empty_graph_has_an_empty_plan():
    graph, (x,) = meta_graph((4,))
    result = plan(finish(graph, x))
    assert len(result) == 0
    assert str(result) == "0 items: 0 single, 0 fused, 0 kernel calls; 0 ops, 0 elided"


def test_tensors_without_elements():
    (item,) = check(traced(lambda x: x.exp() + 1, (0, 6)))
    assert (item.element_count, item.resources.static_total_bytes, item.resources.element_ops_per_kib) == (0, 0, 0)


def test_the_plan_is_kept_until_the_graph_changes():
    gm = traced(lambda x, y: (x + y).exp(), (4, 6), (4, 6))
    first = plan(gm)
    assert plan(gm) is first
    (exp,) = ops_of(gm, aten.exp.default)
    with gm.graph.inserting_after(exp):
        sin = gm.graph.call_function(aten.sin.default, (exp,))
    sin.meta["val"] = exp.meta["val"]
    exp.replace_all_uses_with(sin, delete_user_cb=lambda user: user is not sin)
    assert names(plan(gm)[0]) == ["add", "exp", sin.name]
    assert names(first[0]) == ["add", "exp"]


@pytest.mark.parametrize("edit", ["target", "argument", "shape", "order"])
def test_every_kind_of_edit_drops_the_plan(edit):
    gm = traced(lambda x, y: ((x + y).t(), x * y), (4, 6), (4, 6))
    before = plan(gm)
    (add,), (mul,) = ops_of(gm, aten.add.Tensor), ops_of(gm, aten.mul.Tensor)
    match edit:
        case "target":
            add.target = aten.sub.Tensor
        case "argument":
            add.replace_input_with(add.args[1], add.args[0])
        case "shape":
            add.meta["val"] = add.meta["val"].to(torch.float64)
        case "order":
            add.prepend(mul)
    assert plan(gm) is not before


def test_copies_and_pickles_do_not_carry_the_plan():
    gm = traced(lambda x: x.exp(), (4, 6))
    result = plan(gm)
    copied = copy.deepcopy(gm)
    assert plan(copied) is not result
    assert plan(copied)[0].root in copied.graph.nodes
    assert plan(gm)[0].root in gm.graph.nodes
    unpickled = pickle.loads(pickle.dumps(gm))
    with pytest.raises(CaptureError):  # pickling a graph loses its shapes
        plan(unpickled)


def test_threads_may_plan_one_graph():
    gm = traced(lambda x: [x := x.exp() for _ in range(200)][-1], (4, 6))
    results: list[SchedulePlan] = []
    threads = [threading.Thread(target=lambda: results.append(plan(gm))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({str(result) for result in results}) == 1
    assert results[0][0].op_count == 200


def test_a_ledger_pays_for_several_graphs():
    gm, other = (traced(lambda x: x.exp(), (4, 6)) for _ in range(2))
    charge = plan_bound(gm).visits
    ledger = WorkLedger(visits=2 * charge)
    assert [len(plan(gm, ledger)), len(plan(other, ledger))] == [1, 1]
    assert ledger.visits_left == 0
    with pytest.raises(BudgetExceeded, match="0 left"):
        plan(gm, ledger)
    assert ledger.exhausted


def test_a_ledger_may_bound_storage():
    gm = traced(lambda x: x.exp(), (4, 6))
    needed = plan_bound(gm).storage_bytes
    assert len(plan(gm, WorkLedger(storage_bytes=needed))) == 1
    with pytest.raises(BudgetExceeded, match=f"{needed} bytes, and the budget has {needed - 1} left"):
        plan(gm, WorkLedger(storage_bytes=needed - 1))


def test_refusals_do_not_depend_on_what_was_planned_before():
    gm = traced(lambda x: x.exp(), (4, 6))
    plan(gm)
    with pytest.raises(BudgetExceeded):
        plan(gm, plan_bound(gm).visits - 1)


def test_a_planner_that_breaks_its_bound_is_our_bug():
    meter = Meter(WorkBound(visits=2, storage_bytes=0))
    meter.visit(2)
    with pytest.raises(InternalError, match="3 visits, and its bound is 2"):
        meter.visit()


@pytest.mark.parametrize("budget", [-1, True, 2.5, "much"])
def test_budgets_that_are_none(budget):
    with pytest.raises(SpecError, match="budget="):
        plan(traced(lambda x: x.exp(), (4, 6)), budget)


def test_what_is_no_graph():
    with pytest.raises(
        CaptureError, match=r"an object of type function where a graph belongs\. Expected a torch\.fx\.GraphModule"
    ):
        plan(lambda x: x)
    with pytest.raises(CaptureError, match="no node of this graph has a value in meta"):
        plan(fx.symbolic_trace(lambda x: x + 1))


def test_the_table():
    gm = traced(lambda x, w, b: torch.nn.functional.layer_norm(x @ w, (8,), b), (4, 6), (6, 8), (8,))
    assert str(plan(gm)).splitlines() == [
        "  item  kind          root                 ops  output            element ops    read    write    ops/KiB",
        "------  ------------  -----------------  -----  --------------  -------------  ------  -------  ---------",
        "     0  dot_general   mm                     1  [4, 8] float32            384     288      128        945",
        "     1  row_pipeline  native_layer_norm      1  [4, 8] float32             32     160      128        113",
        "",
        "2 items: 1 single, 1 fused, 0 kernel calls; 2 ops, 0 elided",
    ]
    assert repr(plan(gm)) == "SchedulePlan(2 items, 2 ops)"


def test_plain_data_for_tools():
    gm = traced(lambda x, row: (x + row.expand(4, 6)).exp(), (4, 6), (6,))
    data = json.loads(json.dumps(plan(gm).to_dict()))
    assert data["single_work_count"] == 0
    assert data["fusion_work_count"] == 1
    assert data["elided"] == ["expand"]
    assert data["unplanned"] == []
    (item,) = data["items"]
    assert {key: item[key] for key in ("id", "kind", "root", "ops", "output_value", "dtype", "shape")} == {
        "id": 0,
        "kind": "elementwise_fusion",
        "root": "exp",
        "ops": ["add", "exp"],
        "output_value": "exp",
        "dtype": "float32",
        "shape": [4, 6],
    }
    assert item["resources"] == {
        "element_count": 24,
        "element_size": 4,
        "op_count": 2,
        "estimated_element_ops": 48,
        "external_input_value_count": 2,
        "external_operand_count": 2,
        "chain_operand_count": 1,
        "static_read_bytes": 120,
        "static_write_bytes": 96,
        "static_total_bytes": 216,
        "static_bytes_complete": True,
        "element_ops_per_kib": 227,
    }


def test_items_by_root_and_by_op():
    gm = traced(lambda x: x.exp().sin(), (4, 6))
    result = plan(gm)
    (exp,), (sin,) = ops_of(gm, aten.exp.default), ops_of(gm, aten.sin.default)
    assert result.item_for(exp) is None
    assert result.item_for(sin) is result.item_with(exp) is result[0]
    assert result.item_with(exp.args[0]) is None
    assert kinds(result) == ["elementwise_fusion"]


@pytest.mark.parametrize("module", [schedule, accounting, kernels, budget])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0

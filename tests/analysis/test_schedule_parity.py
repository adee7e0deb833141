"""The reference numbers of the schedule plan, on ATen, one test for each planned graph.

Names of dialect ops read here as: dot_general is ``mm``, reduce is ``sum``, transpose is ``permute``, pad is
``constant_pad_nd``, iota is ``arange``, concatenate is ``cat``, reshape is ``view``, broadcast_in_dim is ``expand``, and
kernel_call is a custom op.
"""

from __future__ import annotations

import tracemalloc

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.analysis.schedule import (
    KernelDescriptor,
    KernelReduction,
    KernelReuse,
    SchedulePlan,
    WorkBound,
    WorkKind,
    WorkLedger,
    plan,
    plan_bound,
    register_kernel,
)
from spyre_fx.analysis.schedule import cache as plan_cache
from spyre_fx.analysis.schedule.accounting import Census
from spyre_fx.analysis.schedule.kernels import CATALOGUE
from spyre_fx.analysis.schedule.planner import analyse
from spyre_fx.errors import BudgetExceeded

aten = torch.ops.aten
U64_MAX = 2**64 - 1


@torch.library.custom_op("spyre_fx_parity::scale", mutates_args={"out"})
def scale(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out.copy_(x * 2)
    return out.clone()


@scale.register_fake
def _(x, out):
    return torch.empty_like(x)


@torch.library.custom_op("spyre_fx_parity::matrix_product_4x16x8", mutates_args=())
def matrix_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@matrix_product.register_fake
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])


register_kernel(
    matrix_product,
    KernelDescriptor([(4, 16)], [KernelReduction("k", (8,))], [KernelReuse("k", (4, 16))]),
)


def traced(fn, *shapes: tuple[int, ...]) -> fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*(torch.empty(shape) for shape in shapes))


def ops_of(gm: fx.GraphModule, target) -> list[fx.Node]:
    return gm.graph.find_nodes(op="call_function", target=target)


def planned(gm: fx.GraphModule) -> SchedulePlan:
    """The plan, after a second run from scratch within the bound gave the same and stayed below its storage."""
    expected = plan(gm)
    bound = plan_bound(gm)
    tracemalloc.start()
    try:
        actual = analyse(gm, bound, CATALOGUE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert actual.to_dict() == expected.to_dict()
    assert [item.root for item in actual] == [item.root for item in expected]
    assert 0 < actual.visits <= bound.visits
    assert 0 < peak <= bound.storage_bytes
    return expected


def test_emits_one_work_item_for_an_elementwise_fusion_cluster():
    gm = traced(lambda a, b, c: (a + b) * c, (4,), (4,), (4,))
    (mul,) = ops_of(gm, aten.mul.Tensor)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 0
    assert result.fusion_work_count == 1
    assert result.scheduled_op_count == 2
    assert result.total_static_elements == 4

    item = result.item_for(mul)
    assert item.kind is WorkKind.ELEMENTWISE_FUSION
    assert item.op_count == 2
    assert item.dtype is torch.float32
    assert item.rank == 1
    assert item.element_count == 4
    assert item.resources.element_count == 4
    assert item.resources.element_size == 4
    assert item.resources.op_count == 2
    assert item.resources.external_input_value_count == 3
    assert item.resources.external_operand_count == 3
    assert item.resources.chain_operand_count == 1
    assert item.resources.static_read_bytes == 48
    assert item.resources.static_write_bytes == 16
    assert item.resources.static_total_bytes == 64
    assert item.resources.estimated_element_ops == 8
    assert item.resources.element_ops_per_kib == 128
    assert item.resources.static_bytes_complete
    assert item.output_value is mul


def test_emits_standalone_work_when_fusion_is_rejected():
    def escape(a, b, c):
        total = a + b
        return total, total * c

    gm = traced(escape, (4,), (4,), (4,))
    (add,), (mul,) = ops_of(gm, aten.add.Tensor), ops_of(gm, aten.mul.Tensor)
    result = planned(gm)
    assert len(result) == 2
    assert result.single_work_count == 2
    assert result.fusion_work_count == 0
    assert result.scheduled_op_count == 2
    assert result.total_static_elements == 8
    add_work, mul_work = result.item_for(add), result.item_for(mul)
    assert add_work.kind is WorkKind.ELEMENTWISE_SINGLE
    assert mul_work.kind is WorkKind.ELEMENTWISE_SINGLE
    assert add_work.resources.external_input_value_count == 2
    assert add_work.resources.external_operand_count == 2
    assert add_work.resources.static_read_bytes == 32
    assert add_work.resources.static_write_bytes == 16
    assert add_work.resources.static_total_bytes == 48
    assert add_work.resources.estimated_element_ops == 4
    assert mul_work.resources.external_input_value_count == 2
    assert mul_work.resources.external_operand_count == 2
    assert mul_work.resources.chain_operand_count == 0
    assert mul_work.resources.static_total_bytes == 48


def test_emits_dot_general_work_for_static_rank_2_matmul():
    gm = traced(torch.mm, (16, 16), (16, 16))
    (dot,) = ops_of(gm, aten.mm.default)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0
    assert result.scheduled_op_count == 1
    assert result.total_static_elements == 256

    item = result.item_for(dot)
    assert item.kind is WorkKind.DOT_GENERAL
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 2
    assert item.element_count == 256
    assert item.resources.element_count == 256
    assert item.resources.element_size == 4
    assert item.resources.op_count == 1
    assert item.resources.external_input_value_count == 2
    assert item.resources.external_operand_count == 2
    assert item.resources.chain_operand_count == 0
    assert item.resources.static_read_bytes == 2048
    assert item.resources.static_write_bytes == 1024
    assert item.resources.static_total_bytes == 3072
    assert item.resources.estimated_element_ops == 8192
    assert item.resources.element_ops_per_kib == 2730
    assert item.resources.static_bytes_complete


def test_emits_reduction_work_for_static_rank_1_reduce():
    gm = traced(lambda x: x.sum(0), (256,))
    (reduce,) = ops_of(gm, aten.sum.dim_IntList)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0
    assert result.scheduled_op_count == 1
    assert result.total_static_elements == 1

    item = result.item_for(reduce)
    assert item.kind is WorkKind.REDUCTION
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 0
    assert item.element_count == 1
    assert item.resources.element_count == 256
    assert item.resources.element_size == 4
    assert item.resources.op_count == 1
    assert item.resources.external_input_value_count == 1
    assert item.resources.external_operand_count == 1
    assert item.resources.chain_operand_count == 0
    assert item.resources.static_read_bytes == 1024
    assert item.resources.static_write_bytes == 4
    assert item.resources.static_total_bytes == 1028
    assert item.resources.estimated_element_ops == 256
    assert item.resources.element_ops_per_kib == 255
    assert item.resources.static_bytes_complete


def test_emits_kernel_call_work_with_operand_effects():
    """The schema has ``Tensor x, Tensor(a!) out``: x is read, out only written."""
    gm = traced(lambda x, out: scale(x, out), (4,), (4,))
    (call,) = ops_of(gm, torch.ops.spyre_fx_parity.scale.default)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 0
    assert result.fusion_work_count == 0
    assert result.kernel_call_work_count == 1
    assert result.scheduled_op_count == 1
    assert result.total_static_elements == 4

    item = result.item_for(call)
    assert item.kind is WorkKind.KERNEL_CALL
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 1
    assert item.element_count == 4
    assert item.resources.element_count == 4
    assert item.resources.element_size == 4
    assert item.resources.op_count == 1
    assert item.resources.external_input_value_count == 2
    assert item.resources.external_operand_count == 2
    assert item.resources.chain_operand_count == 0
    assert item.resources.static_read_bytes == 16
    assert item.resources.static_write_bytes == 16
    assert item.resources.static_total_bytes == 32
    assert item.resources.estimated_element_ops == 4
    assert item.output_value is call


def test_estimates_catalogue_kernel_call_reductions():
    gm = traced(lambda a, b: matrix_product(a, b), (4, 8), (8, 16))
    (call,) = ops_of(gm, torch.ops.spyre_fx_parity.matrix_product_4x16x8.default)
    result = planned(gm)
    assert Census.of(gm, CATALOGUE).catalogue >= 1
    assert len(result) == 1
    assert result.kernel_call_work_count == 1

    item = result.item_for(call)
    assert item.kind is WorkKind.KERNEL_CALL
    assert item.element_count == 64
    assert item.resources.element_count == 64
    assert item.resources.static_read_bytes == 640
    assert item.resources.static_write_bytes == 256
    assert item.resources.static_total_bytes == 896
    assert item.resources.estimated_element_ops == 1024
    assert item.resources.element_ops_per_kib == 1170


def test_emits_shape_work_for_static_transpose():
    gm = traced(lambda x: x.permute(1, 0), (16, 32))
    (transpose,) = ops_of(gm, aten.permute.default)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0

    item = result.item_for(transpose)
    assert item.kind is WorkKind.SHAPE
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 2
    assert item.element_count == 512
    assert item.resources.static_read_bytes == 2048
    assert item.resources.static_write_bytes == 2048
    assert item.resources.static_total_bytes == 4096


def test_emits_shape_work_for_static_slice():
    """ATen's ``slice`` cuts one dim; the op that cuts a window out of two at once is ``as_strided``."""
    gm = traced(lambda x: x.as_strided((16, 16), (18, 1), 19), (18, 18))
    (window,) = ops_of(gm, aten.as_strided.default)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0

    item = result.item_for(window)
    assert item.kind is WorkKind.SHAPE
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 2
    assert item.element_count == 256
    assert item.resources.static_read_bytes == 1296
    assert item.resources.static_write_bytes == 1024
    assert item.resources.static_total_bytes == 2320


def test_emits_shape_work_for_static_slice_one_dim_at_a_time():
    """As ``x[1:17, 1:17]`` is traced: the first op reads what the window reads, the last one writes what it writes."""
    gm = traced(lambda x: x[1:17, 1:17], (18, 18))
    rows, columns = ops_of(gm, aten.slice.Tensor)
    result = planned(gm)
    assert [item.root for item in result] == [rows, columns]
    assert [item.kind for item in result] == [WorkKind.SHAPE] * 2
    assert result[0].resources.static_read_bytes == 1296
    assert result[0].resources.static_write_bytes == result[1].resources.static_read_bytes == 1152
    assert result[1].resources.static_write_bytes == 1024


def test_emits_shape_work_for_static_pad():
    """ATen pads with a number, not with a tensor of no dims: ``constant_pad_nd(Tensor self, SymInt[] pad, Scalar value)``.

    So there is one external operand where the reference counts two, and 4 bytes less are read: 64 of 68, 208 of 212.
    """
    gm = traced(lambda x: aten.constant_pad_nd(x, [1, 1, 1, 1], 0.5), (4, 4))
    (pad,) = ops_of(gm, aten.constant_pad_nd.default)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0

    item = result.item_for(pad)
    assert item.kind is WorkKind.SHAPE
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 2
    assert item.element_count == 36
    assert item.resources.external_input_value_count == 2 - 1
    assert item.resources.external_operand_count == 2 - 1
    assert item.resources.chain_operand_count == 0
    assert item.resources.static_read_bytes == 68 - 4
    assert item.resources.static_write_bytes == 144
    assert item.resources.static_total_bytes == 212 - 4


def test_emits_shape_work_for_static_iota():
    """``arange`` has one dim, so 4 x 8 elements are counted in one of 32, and the rank is 1 where the reference has 2."""
    gm = traced(lambda: torch.arange(32, dtype=torch.float32))
    (iota,) = ops_of(gm, aten.arange.default) or ops_of(gm, aten.arange.start_step)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0

    item = result.item_for(iota)
    assert item.kind is WorkKind.SHAPE
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 2 - 1
    assert item.element_count == 32
    assert item.resources.external_input_value_count == 0
    assert item.resources.static_read_bytes == 0
    assert item.resources.static_write_bytes == 128
    assert item.resources.static_total_bytes == 128


def test_emits_shape_work_for_static_iota_along_one_of_two_dims():
    """Counting along dim 1 of [4, 8] is ``arange(8)`` repeated; returned, the repetition is made: rank 2, 128 bytes."""
    gm = traced(lambda: torch.arange(8, dtype=torch.float32).expand(4, 8))
    (repeat,) = ops_of(gm, aten.expand.default)
    item = planned(gm).item_for(repeat)
    assert item.kind is WorkKind.SHAPE
    assert item.rank == 2
    assert item.element_count == 32
    assert item.resources.static_write_bytes == 128


def test_emits_shape_work_for_static_concatenate():
    gm = traced(lambda a, b: torch.cat([a, b], 1), (4, 4), (4, 4))
    (cat,) = ops_of(gm, aten.cat.default)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 1
    assert result.fusion_work_count == 0

    item = result.item_for(cat)
    assert item.kind is WorkKind.SHAPE
    assert item.op_count == 1
    assert item.dtype is torch.float32
    assert item.rank == 2
    assert item.element_count == 32
    assert item.resources.external_input_value_count == 2
    assert item.resources.external_operand_count == 2
    assert item.resources.static_read_bytes == 128
    assert item.resources.static_write_bytes == 128
    assert item.resources.static_total_bytes == 256


def test_orders_fusion_after_external_producers():
    def diamond(a, b, c, d):
        shared = a + b
        return (shared * c) * (shared + d)

    gm = traced(diamond, (4,), (4,), (4,), (4,))
    (shared, right), (left, product) = ops_of(gm, aten.add.Tensor), ops_of(gm, aten.mul.Tensor)
    result = planned(gm)
    assert len(result) == 1
    assert result.single_work_count == 0
    assert result.fusion_work_count == 1
    assert result[0].root is product

    fused = result.item_for(product)
    assert fused.kind is WorkKind.ELEMENTWISE_FUSION
    assert fused.op_count == 4
    assert fused.ops == (shared, left, right, product)
    assert fused.resources.external_input_value_count == 4
    assert fused.resources.external_operand_count == 4
    assert fused.resources.chain_operand_count == 4
    assert fused.resources.static_total_bytes == 80


def test_orders_fusion_after_broadcast_source_producers():
    """``expand`` lines up trailing dims, so the row runs along dim 1 where the reference runs it along dim 0."""
    gm = traced(lambda x, row: (x + (row * row).expand(4, 4)) * x, (4, 4), (4,))
    (row_product, product), (total,) = ops_of(gm, aten.mul.Tensor), ops_of(gm, aten.add.Tensor)
    result = planned(gm)
    assert len(result) == 2
    assert result.single_work_count == 1
    assert result.fusion_work_count == 1
    assert result[0].root is row_product
    assert result[1].root is product

    fused = result.item_for(product)
    assert fused.kind is WorkKind.ELEMENTWISE_FUSION
    assert fused.op_count == 2
    assert fused.ops == (total, product)


def test_preserves_the_graph():
    gm = traced(torch.add, (4,), (4,))
    nodes, code, meta = list(gm.graph.nodes), gm.code, [dict(node.meta) for node in gm.graph.nodes]
    plan(gm)
    assert list(gm.graph.nodes) == nodes
    assert gm.graph.python_code("self").src == code
    assert [dict(node.meta) for node in gm.graph.nodes] == meta


def chain(count: int) -> fx.GraphModule:
    def views(x):
        for _ in range(count):
            x = aten.view(x, [2, 3])
        return x

    return traced(views, (2, 3))


@pytest.mark.parametrize("count", [1, 2, 6, 7, 16, 64])
def test_bound_covers_growing_dependency_chains(count, monkeypatch):
    gm = chain(count)
    result = planned(gm)
    assert len(result) == count
    for index, item in enumerate(result):
        assert item.id == index
        assert item.kind is WorkKind.SHAPE
        if index:
            assert item.root.args[0] is result[index - 1].output_value
    for offset in (-1, 0, 1):
        check_admission(count, offset, monkeypatch)


def check_admission(count: int, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One less than the charge refuses before any work, for good; the charge admits."""
    gm = chain(count)
    charge = plan_bound(gm).visits
    ledger = WorkLedger(visits=charge + offset)
    if offset >= 0:
        assert len(plan(gm, ledger)) == count
        assert len(plan(gm, charge + offset)) == count
        assert not ledger.exhausted
        return
    with monkeypatch.context() as patch:
        patch.setattr("spyre_fx.analysis.schedule.analyse", forbidden)
        with pytest.raises(BudgetExceeded, match=f"{charge} visits, and the budget has {charge - 1} left") as first:
            plan(gm, ledger)
        assert ledger.exhausted
        with pytest.raises(BudgetExceeded) as second:
            plan(gm, ledger)
        with pytest.raises(BudgetExceeded) as third:
            plan(gm, charge - 1)
        assert str(first.value) == str(second.value) == str(third.value)
        with pytest.raises(BudgetExceeded):
            plan(traced(torch.relu, (1,)), ledger)
    assert not cached(gm)


def forbidden(*_: object) -> SchedulePlan:
    raise AssertionError("the analysis ran")


def cached(gm: fx.GraphModule) -> bool:
    slot = gm.meta.get(plan_cache._KEY)
    return slot is not None and isinstance(slot._outcome, SchedulePlan)


def test_bound_refuses_what_it_cannot_count():
    with pytest.raises(BudgetExceeded, match=r"passes 2\*\*64 - 1"):
        Census(nodes=U64_MAX, reads=0).bound()
    with pytest.raises(BudgetExceeded, match=r"passes 2\*\*64 - 1"):
        Census(nodes=0, reads=0, catalogue=U64_MAX).bound()
    assert Census(nodes=0, reads=0).bound() == WorkBound(visits=16, storage_bytes=18 * 1024)


def test_reports_aggregate_element_overflow_without_caching_a_plan(monkeypatch):
    """A tensor of 2**63 - 1 elements can only be a repeated one; three of them pass 64 bits."""
    extent = 2**63 - 1

    def views(x):
        for _ in range(3):
            x = aten.view(x, [extent])
        return x

    gm = make_fx(views, tracing_mode="fake")(torch.empty(1).expand(extent))
    ledger = WorkLedger()
    with pytest.raises(BudgetExceeded, match=r"elements of all work items together pass 2\*\*64 - 1") as first:
        plan(gm, ledger)
    assert ledger.exhausted
    assert not cached(gm)
    with monkeypatch.context() as patch:
        patch.setattr("spyre_fx.analysis.schedule.analyse", forbidden)
        for budget in (ledger, None):
            with pytest.raises(BudgetExceeded) as again:
                plan(gm, budget)
            assert str(again.value) == str(first.value)

"""The reference numbers of the schedule plan, on ATen, one test for each planned graph.

Names of dialect ops read here as: dot_general is ``mm``, reduce ``sum``, transpose ``permute``, concatenate ``cat``,
pad ``constant_pad_nd``, iota ``arange``, reshape ``view``, broadcast_in_dim ``expand``; kernel_call is a custom op.
"""

from __future__ import annotations

import torch

from spyre_fx.analysis.schedule import (
    KernelDescriptor,
    KernelReduction,
    KernelReuse,
    WorkKind,
    plan,
    register_kernel,
)
from spyre_fx.analysis.schedule.accounting import Census
from spyre_fx.analysis.schedule.kernels import CATALOGUE
from tests.analysis.planning import ops_of, planned, traced

aten = torch.ops.aten


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


def expect(found: object, **facts: object) -> None:
    """Compare attributes of a plan, an item or its resources."""
    assert {name: getattr(found, name) for name in facts} == facts


def test_emits_one_work_item_for_an_elementwise_fusion_cluster():
    gm = traced(lambda a, b, c: (a + b) * c, (4,), (4,), (4,))
    (mul,) = ops_of(gm, aten.mul.Tensor)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=0, fusion_work_count=1, scheduled_op_count=2, total_static_elements=4)

    item = result.item_for(mul)
    expect(item, kind=WorkKind.ELEMENTWISE_FUSION, op_count=2, dtype=torch.float32, rank=1, element_count=4)
    expect(
        item.resources,
        element_count=4,
        element_size=4,
        op_count=2,
        external_input_value_count=3,
        external_operand_count=3,
        chain_operand_count=1,
        static_read_bytes=48,
        static_write_bytes=16,
        static_total_bytes=64,
        estimated_element_ops=8,
        element_ops_per_kib=128,
        static_bytes_complete=True,
    )
    assert item.output_value is mul


def test_emits_standalone_work_when_fusion_is_rejected():
    def escape(a, b, c):
        total = a + b
        return total, total * c

    gm = traced(escape, (4,), (4,), (4,))
    (add,), (mul,) = ops_of(gm, aten.add.Tensor), ops_of(gm, aten.mul.Tensor)
    result = planned(gm)
    assert len(result) == 2
    expect(result, single_work_count=2, fusion_work_count=0, scheduled_op_count=2, total_static_elements=8)
    add_work, mul_work = result.item_for(add), result.item_for(mul)
    assert add_work.kind is WorkKind.ELEMENTWISE_SINGLE
    assert mul_work.kind is WorkKind.ELEMENTWISE_SINGLE
    expect(
        add_work.resources,
        external_input_value_count=2,
        external_operand_count=2,
        static_read_bytes=32,
        static_write_bytes=16,
        static_total_bytes=48,
        estimated_element_ops=4,
    )
    expect(
        mul_work.resources,
        external_input_value_count=2,
        external_operand_count=2,
        chain_operand_count=0,
        static_total_bytes=48,
    )


def test_emits_dot_general_work_for_static_rank_2_matmul():
    gm = traced(torch.mm, (16, 16), (16, 16))
    (dot,) = ops_of(gm, aten.mm.default)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0, scheduled_op_count=1, total_static_elements=256)

    item = result.item_for(dot)
    expect(item, kind=WorkKind.DOT_GENERAL, op_count=1, dtype=torch.float32, rank=2, element_count=256)
    expect(
        item.resources,
        element_count=256,
        element_size=4,
        op_count=1,
        external_input_value_count=2,
        external_operand_count=2,
        chain_operand_count=0,
        static_read_bytes=2048,
        static_write_bytes=1024,
        static_total_bytes=3072,
        estimated_element_ops=8192,
        element_ops_per_kib=2730,
        static_bytes_complete=True,
    )


def test_emits_reduction_work_for_static_rank_1_reduce():
    gm = traced(lambda x: x.sum(0), (256,))
    (reduce,) = ops_of(gm, aten.sum.dim_IntList)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0, scheduled_op_count=1, total_static_elements=1)

    item = result.item_for(reduce)
    expect(item, kind=WorkKind.REDUCTION, op_count=1, dtype=torch.float32, rank=0, element_count=1)
    expect(
        item.resources,
        element_count=256,
        element_size=4,
        op_count=1,
        external_input_value_count=1,
        external_operand_count=1,
        chain_operand_count=0,
        static_read_bytes=1024,
        static_write_bytes=4,
        static_total_bytes=1028,
        estimated_element_ops=256,
        element_ops_per_kib=255,
        static_bytes_complete=True,
    )


def test_emits_kernel_call_work_with_operand_effects():
    """The schema has ``Tensor x, Tensor(a!) out``: x is read, out only written."""
    gm = traced(lambda x, out: scale(x, out), (4,), (4,))
    (call,) = ops_of(gm, torch.ops.spyre_fx_parity.scale.default)
    result = planned(gm)
    assert len(result) == 1
    expect(
        result,
        single_work_count=0,
        fusion_work_count=0,
        kernel_call_work_count=1,
        scheduled_op_count=1,
        total_static_elements=4,
    )

    item = result.item_for(call)
    expect(item, kind=WorkKind.KERNEL_CALL, op_count=1, dtype=torch.float32, rank=1, element_count=4)
    expect(
        item.resources,
        element_count=4,
        element_size=4,
        op_count=1,
        external_input_value_count=2,
        external_operand_count=2,
        chain_operand_count=0,
        static_read_bytes=16,
        static_write_bytes=16,
        static_total_bytes=32,
        estimated_element_ops=4,
    )
    assert item.output_value is call


def test_estimates_catalogue_kernel_call_reductions():
    gm = traced(lambda a, b: matrix_product(a, b), (4, 8), (8, 16))
    (call,) = ops_of(gm, torch.ops.spyre_fx_parity.matrix_product_4x16x8.default)
    result = planned(gm)
    assert Census.of(gm, CATALOGUE).catalogue >= 1
    assert len(result) == 1
    assert result.kernel_call_work_count == 1

    item = result.item_for(call)
    expect(item, kind=WorkKind.KERNEL_CALL, element_count=64)
    expect(
        item.resources,
        element_count=64,
        static_read_bytes=640,
        static_write_bytes=256,
        static_total_bytes=896,
        estimated_element_ops=1024,
        element_ops_per_kib=1170,
    )


def test_emits_shape_work_for_static_transpose():
    gm = traced(lambda x: x.permute(1, 0), (16, 32))
    (transpose,) = ops_of(gm, aten.permute.default)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0)

    item = result.item_for(transpose)
    expect(item, kind=WorkKind.SHAPE, op_count=1, dtype=torch.float32, rank=2, element_count=512)
    expect(item.resources, static_read_bytes=2048, static_write_bytes=2048, static_total_bytes=4096)


def test_emits_shape_work_for_static_slice():
    """ATen's ``slice`` cuts one dim; the op that cuts a window out of two at once is ``as_strided``."""
    gm = traced(lambda x: x.as_strided((16, 16), (18, 1), 19), (18, 18))
    (window,) = ops_of(gm, aten.as_strided.default)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0)

    item = result.item_for(window)
    expect(item, kind=WorkKind.SHAPE, op_count=1, dtype=torch.float32, rank=2, element_count=256)
    expect(item.resources, static_read_bytes=1296, static_write_bytes=1024, static_total_bytes=2320)


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
    """ATen pads with a number, not with a tensor: ``constant_pad_nd(Tensor self, SymInt[] pad, Scalar value)``.

    So there is one external operand where the reference counts two, and 4 bytes less are read: 64 of 68, 208 of 212.
    """
    gm = traced(lambda x: aten.constant_pad_nd(x, [1, 1, 1, 1], 0.5), (4, 4))
    (pad,) = ops_of(gm, aten.constant_pad_nd.default)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0)

    item = result.item_for(pad)
    expect(item, kind=WorkKind.SHAPE, op_count=1, dtype=torch.float32, rank=2, element_count=36)
    expect(
        item.resources,
        external_input_value_count=2 - 1,
        external_operand_count=2 - 1,
        chain_operand_count=0,
        static_read_bytes=68 - 4,
        static_write_bytes=144,
        static_total_bytes=212 - 4,
    )


def test_emits_shape_work_for_static_iota():
    """``arange`` has one dim: 4 x 8 elements are counted in one of 32, of rank 1 where the reference has 2."""
    gm = traced(lambda: torch.arange(32, dtype=torch.float32))
    (iota,) = ops_of(gm, aten.arange.default) or ops_of(gm, aten.arange.start_step)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0)

    item = result.item_for(iota)
    expect(item, kind=WorkKind.SHAPE, op_count=1, dtype=torch.float32, rank=2 - 1, element_count=32)
    expect(
        item.resources,
        external_input_value_count=0,
        static_read_bytes=0,
        static_write_bytes=128,
        static_total_bytes=128,
    )


def test_emits_shape_work_for_static_iota_along_one_of_two_dims():
    """Counting along dim 1 of [4, 8] is ``arange(8)`` repeated; returned, the repetition is made: rank 2, 128 bytes."""
    gm = traced(lambda: torch.arange(8, dtype=torch.float32).expand(4, 8))
    (repeat,) = ops_of(gm, aten.expand.default)
    item = planned(gm).item_for(repeat)
    expect(item, kind=WorkKind.SHAPE, rank=2, element_count=32)
    assert item.resources.static_write_bytes == 128


def test_emits_shape_work_for_static_concatenate():
    gm = traced(lambda a, b: torch.cat([a, b], 1), (4, 4), (4, 4))
    (cat,) = ops_of(gm, aten.cat.default)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=1, fusion_work_count=0)

    item = result.item_for(cat)
    expect(item, kind=WorkKind.SHAPE, op_count=1, dtype=torch.float32, rank=2, element_count=32)
    expect(
        item.resources,
        external_input_value_count=2,
        external_operand_count=2,
        static_read_bytes=128,
        static_write_bytes=128,
        static_total_bytes=256,
    )


def test_orders_fusion_after_external_producers():
    def diamond(a, b, c, d):
        shared = a + b
        return (shared * c) * (shared + d)

    gm = traced(diamond, (4,), (4,), (4,), (4,))
    (shared, right), (left, product) = ops_of(gm, aten.add.Tensor), ops_of(gm, aten.mul.Tensor)
    result = planned(gm)
    assert len(result) == 1
    expect(result, single_work_count=0, fusion_work_count=1)
    assert result[0].root is product

    fused = result.item_for(product)
    expect(fused, kind=WorkKind.ELEMENTWISE_FUSION, op_count=4, ops=(shared, left, right, product))
    expect(
        fused.resources,
        external_input_value_count=4,
        external_operand_count=4,
        chain_operand_count=4,
        static_total_bytes=80,
    )


def test_orders_fusion_after_broadcast_source_producers():
    """``expand`` lines up trailing dims, so the row runs along dim 1 where the reference runs it along dim 0."""
    gm = traced(lambda x, row: (x + (row * row).expand(4, 4)) * x, (4, 4), (4,))
    (row_product, product), (total,) = ops_of(gm, aten.mul.Tensor), ops_of(gm, aten.add.Tensor)
    result = planned(gm)
    assert len(result) == 2
    expect(result, single_work_count=1, fusion_work_count=1)
    assert result[0].root is row_product
    assert result[1].root is product

    fused = result.item_for(product)
    expect(fused, kind=WorkKind.ELEMENTWISE_FUSION, op_count=2, ops=(total, product))


def test_preserves_the_graph():
    gm = traced(torch.add, (4,), (4,))
    nodes, code, meta = list(gm.graph.nodes), gm.code, [dict(node.meta) for node in gm.graph.nodes]
    plan(gm)
    assert list(gm.graph.nodes) == nodes
    assert gm.graph.python_code("self").src == code
    assert [dict(node.meta) for node in gm.graph.nodes] == meta

"""Custom ops: effects from the schema, element ops from the catalogue."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.analysis.schedule import KernelDescriptor, KernelReduction, KernelReuse, plan, plan_bound, register_kernel
from spyre_fx.analysis.schedule.counting import U64_MAX
from spyre_fx.errors import SpecError
from tests.analysis.planning import check, kinds, traced

N = "spyre_fx_kernels"


@torch.library.custom_op(f"{N}::fill_with", mutates_args={"out"})
def fill_with(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x)


@torch.library.custom_op(f"{N}::update", mutates_args={"state"})
def update(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    state.add_(x)
    return state.clone()


@update.register_fake
def _(x, state):
    return torch.empty_like(x)


@torch.library.custom_op(f"{N}::product", mutates_args=())
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@product.register_fake
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])


@torch.library.custom_op(f"{N}::pair", mutates_args=())
def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clone(), x.sum(1)


@pair.register_fake
def _(x):
    return torch.empty_like(x), x.new_empty(x.shape[0])


@torch.library.custom_op(f"{N}::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


@square.register_fake
def _(x):
    return torch.empty_like(x)


def describe_product(call: OpCall) -> KernelDescriptor:
    (m, k), (_, n) = (tuple(operand.shape) for operand in call.operands)
    return KernelDescriptor([(m, n)], [KernelReduction("k", (k,))], [KernelReuse("k", (m, n))])


register_kernel(product, describe_product)
register_kernel(update, KernelDescriptor([(4, 6)], effects={"state": "read_write"}))


def test_an_op_that_returns_nothing_writes_its_operand():
    (item,) = check(traced(lambda x, out: fill_with(x, out), (4, 6), (4, 6)))
    assert item.kind.value == "kernel_call"
    assert item.output_value.op == "placeholder"
    assert item.resources.static_read_bytes == item.resources.static_write_bytes == 96


def test_effects_of_the_descriptor_come_before_the_schema():
    (item,) = check(traced(lambda x, state: update(x, state), (4, 6), (4, 6)))
    assert item.resources.static_read_bytes == 2 * 96
    assert item.resources.static_write_bytes == 96


def test_a_function_describes_every_shape():
    for m, k, n in ((4, 8, 16), (3, 5, 7)):
        (item,) = check(traced(lambda a, b: product(a, b), (m, k), (k, n)))
        assert item.resources.estimated_element_ops == 2 * m * k * n


def test_without_a_descriptor_results_are_counted():
    (item,) = check(traced(lambda x: pair(x), (4, 6)))
    assert item.resources.estimated_element_ops == 24
    assert item.resources.static_write_bytes == 96 + 16


def test_kernels_never_fuse():
    assert kinds(check(traced(lambda x: square(x.exp()).sin(), (4, 6)))) == [
        "elementwise_single",
        "kernel_call",
        "elementwise_single",
    ]


def test_functionalized_kernels_keep_their_effects():
    graph = fx.Graph()
    x, out = graph.placeholder("x"), graph.placeholder("out")
    x.meta["val"] = out.meta["val"] = torch.empty(4, 6, device="meta")
    functionalized = torch.ops.higher_order.auto_functionalized
    call = graph.call_function(functionalized, (fill_with._opoverload,), {"x": x, "out": out})
    call.meta["val"] = (None, torch.empty(4, 6, device="meta"))
    written = graph.call_function(operator.getitem, (call, 1))
    written.meta["val"] = call.meta["val"][1]
    graph.output(written)
    (item,) = check(fx.GraphModule(torch.nn.Module(), graph))
    assert item.kind.value == "kernel_call"
    assert item.output_value is written
    assert item.resources.external_operand_count == 2
    assert item.resources.static_read_bytes == item.resources.static_write_bytes == 96


def test_registering_a_kernel_drops_the_plans_that_call_it():
    gm = traced(lambda x: square(x), (4, 6))
    before = plan(gm)
    assert plan(gm) is before
    bound = plan_bound(gm)
    register_kernel(square, KernelDescriptor([(4, 6)], [KernelReduction("k", (3,))]))
    after = plan(gm)
    assert (before[0].resources.estimated_element_ops, after[0].resources.estimated_element_ops) == (24, 2 * 3 * 24)
    assert plan_bound(gm).visits > bound.visits


def test_element_ops_of_a_descriptor():
    assert KernelDescriptor([(4, 6), (4,)]).estimated_element_ops() == 28
    assert KernelDescriptor([(4, 6)], [KernelReduction("k", (5, 2))]).estimated_element_ops() == 2 * 24 * 10
    two = KernelDescriptor(
        [(4, 6)],
        [KernelReduction("k", (5,)), KernelReduction("r", (3,))],
        [KernelReuse("r", (2,)), KernelReuse("k", (4, 6))],
    )
    assert two.estimated_element_ops() == 2 * 5 * 24 + 2 * 3 * 2
    assert KernelDescriptor([(2**40, 2**40)]).estimated_element_ops() == U64_MAX


def test_the_same_descriptor_may_be_registered_again_and_another_may_not():
    register_kernel(product, describe_product)
    with pytest.raises(SpecError, match="has another kernel descriptor already"):
        register_kernel(product, KernelDescriptor([(1, 1)]))


def test_ops_are_given_as_overload_packet_or_definition():
    packet = torch.ops.spyre_fx_kernels.product
    for op in (packet, packet.default, product):
        register_kernel(op, describe_product)
    for op in (torch.relu, "aten::relu", torch.ops.aten.add):
        with pytest.raises(SpecError, match="as the op of a kernel"):
            register_kernel(op, describe_product)


def test_a_descriptor_must_fit_the_call():
    gm = traced(lambda x, state: update(x, state), (2, 6), (2, 6))
    with pytest.raises(SpecError, match=r"gives outputs \[\(4, 6\)\], and this call makes \[\(2, 6\)\]") as error:
        plan(gm)
    assert "%update" in str(error.value)


def test_a_descriptor_must_fit_itself():
    with pytest.raises(SpecError, match="reuse of a reduction 'j'"):
        KernelDescriptor([(4,)], [KernelReduction("k", (2,))], [KernelReuse("j", (4,))])
    with pytest.raises(SpecError, match="effect 'erase' of argument 'x'"):
        KernelDescriptor([(4,)], effects={"x": "erase"})


def test_effects_name_arguments_of_the_op():
    register_kernel(pair, lambda call: KernelDescriptor([(4, 6), (4,)], effects={"y": "read"}))
    with pytest.raises(SpecError, match="effect 'read' of argument 'y'"):
        plan(traced(lambda x: pair(x), (4, 6)))


def test_operators_of_python_are_kernels_too():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4, 6, device="meta")
    call = graph.call_function(torch.relu, (x,))
    call.meta["val"] = x.meta["val"]
    graph.output(call)
    assert kinds(check(fx.GraphModule(torch.nn.Module(), graph))) == ["kernel_call"]

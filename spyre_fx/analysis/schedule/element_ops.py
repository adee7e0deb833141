"""How many operations on single elements an op makes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.iteration import Kind, OpCall
from spyre_fx.analysis.iteration_space import call_of
from spyre_fx.analysis.loops import bodies
from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.counting import saturating_add, saturating_mul
from spyre_fx.analysis.schedule.families import Family, op_name
from spyre_fx.analysis.schedule.flow import Flow, flow_of
from spyre_fx.analysis.schedule.kernels import Catalogue, KernelDescriptor
from spyre_fx.analysis.sizes import symbolic


@dataclass(frozen=True)
class Costs:
    """Counts element ops; kernels are looked up in ``catalogue``, loop bodies are visited on ``meter``."""

    catalogue: Catalogue
    meter: Meter

    def element_ops(self, flow: Flow, node: fx.Node) -> int:
        """One per element of the result, or of a reduction's input; two per step of a product; a kernel's own figure;
        for a counted loop those of all its trips.
        """
        match flow.family[node]:
            case Family.REDUCTION | Family.ROW:
                return reduced_elements(flow, node)
            case Family.DOT:
                return _dot_ops(flow, node)
            case Family.ATTENTION:
                return _attention_ops(node)
            case Family.LOOP:
                return self._loop_ops(flow, node) or result_elements(flow, node)
            case Family.KERNEL if (descriptor := self.descriptor(flow, node)) is not None:
                return descriptor.estimated_element_ops()
            case _:
                return result_elements(flow, node)

    def descriptor(self, flow: Flow, node: fx.Node) -> KernelDescriptor | None:
        """What the catalogue has on a custom op."""
        return self.catalogue.describe(node) if flow.family[node] is Family.KERNEL else None

    def _loop_ops(self, flow: Flow, node: fx.Node) -> int:
        """Trips times the work of the body, for every phase; 0 where the bodies are not at hand."""
        return saturating_add(
            *(saturating_mul(trips, self._body_ops(body)) for trips, body in bodies(flow.module, node))
        )

    def _body_ops(self, body: fx.GraphModule) -> int:
        flow = flow_of(body, self.meter)
        return saturating_add(*(self.element_ops(flow, op) for op in flow.work))


def result_elements(flow: Flow, node: fx.Node) -> int:
    """Elements of an op's output; 0 where its sizes are not known."""
    info = flow.result_info(node)
    return 0 if info is None else info.element_count


def reduced_elements(flow: Flow, node: fx.Node) -> int:
    """Elements of an op's first operand, or of its output where the operand's sizes are not known."""
    info = flow.info[flow.operands[node][0]] if flow.operands[node] else None
    return result_elements(flow, node) if info is None else info.element_count


def _dot_ops(flow: Flow, node: fx.Node) -> int:
    """A multiply and an add for each result element and step of the contraction: 2 M N K."""
    special = _WINDOWED.get(op_name(node.target))
    if special is not None:
        return saturating_mul(2, special(call_of(node)))
    space = flow.spaces.get(node)
    axes = () if space is None else space.axes
    contracted = (axis.extent for axis in axes if axis.kind is Kind.REDUCTION)
    return saturating_mul(2, result_elements(flow, node), *contracted)


def _convolution_steps(call: OpCall) -> int:
    """Each result element, or input element of a transposed one, meets one filter's worth of weights."""
    image, weight = call.operands[:2]
    ends = image if call.argument("transposed", False) else call.results[0]
    return _count(ends.shape) * _count(weight.shape[1:])


def _convolution_backward_steps(call: OpCall) -> int:
    """The gradients of input and weight take as many steps each as the forward op."""
    gradient, image, weight = call.operands[:3]
    ends = image if call.argument("transposed", False) else gradient
    gradients = int(sum(call.argument("output_mask")[:2]))
    return gradients * _count(ends.shape) * _count(weight.shape[1:])


_WINDOWED: dict[str, Callable[[OpCall], int]] = {
    "_convolution": _convolution_steps,
    "conv1d": _convolution_steps,
    "conv2d": _convolution_steps,
    "conv3d": _convolution_steps,
    "convolution": _convolution_steps,
    "convolution_backward": _convolution_backward_steps,
}


def _attention_ops(node: fx.Node) -> int:
    """Two products, Q K^T and P V: 2 B H Nq Nk (d + dv). A backward op makes five products where these are two."""
    call = call_of(node)
    query, key, value = (call.argument(name) for name in ("query", "key", "value"))
    if symbolic(*query.shape, *key.shape, *value.shape):
        return 0
    steps = _count(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return saturating_mul(5 * steps) if op_name(node.target).endswith("_backward") else saturating_mul(2, steps)


def _count(shape: tuple[int, ...]) -> int:
    return math.prod(shape)

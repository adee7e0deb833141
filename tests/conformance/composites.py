"""What a graph of several sums may be off by: the numerics rule for each of its sums, carried to its results.

The rule is about one sum or product: its largest error against float64 is at most ``a = 2 e + u``, with ``e`` the
largest error of eager and ``u`` a unit in the last place at the largest magnitude. A composite (attention) has a sum
behind a product: that the product keeps the rule says nothing of how near to eager the end comes, since each lone
number of the product counts there, and not the largest error of all.

Write the results as ``y(d_1, ..., d_n)``, each step of the graph off by ``d_k``, ``|d_k| <= a_k`` element by element,
and ``y(0, ..., 0)`` exact. To first order (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.3, the
running error bound)

    |y_i(d) - y_i(0)|  <=  sum over k and j of |dy_i / dd_k[j]| a_k[j]

with derivatives in float64 at ``d = 0``. The terms of second order are smaller by the size of ``d_k``, here 1e-6. The
``a_k`` are

- of a sum or a product: what the rule allows that one op on the same operands, in float32;
- of arithmetic on single numbers: half a unit in the last place of each result, which is what rounding it once costs;
- of functions (``exp``, ``tanh``): a unit, as torch's own keep;
- of what moves, compares or chooses: nothing.

Signs that all add up are rare, so that the bound is several times what comes about: for attention with scores of 16 it
lets scores pass that are off by 3e-6 of themselves, and none that are off by 1e-5.

A graph is a composite only where one sum reads what another gave, so that nothing changes for a single op. All steps
are known to this table, or else the graph has no bound. Halves have none: fused kernels keep their steps in float32.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tests.conformance.numerics import Double, clones, widened

MOST = 1024
"""No more elements than these get a bound: each takes a pass backwards."""

aten = torch.ops.aten
SUMS = {aten.mm, aten.bmm, aten.mv, aten.dot, aten.addmm, aten.baddbmm, aten.sum, aten.mean, aten.convolution}
ROUNDED_ONCE = {aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.reciprocal, aten.sqrt}
NEVER_ROUNDED = {
    *(aten.neg, aten.abs, aten.sign, aten.relu, aten.where, aten.maximum, aten.minimum, aten.clamp),
    *(aten.clamp_min, aten.clamp_max, aten.masked_fill, aten.clone, aten._to_copy, aten.amax, aten.amin, aten.cat),
    *(
        aten.constant_pad_nd,
        aten.gather,
        aten.index_select,
        aten.embedding,
        aten.full_like,
        aten.zeros_like,
        aten.ones_like,
    ),
}


class Composite:
    """Bounds for the results of a graph; ``used`` says whether one was asked for and kept."""

    def __init__(self, gm: fx.GraphModule, tensors: list[Tensor]) -> None:
        self.gm = gm
        self.tensors = tensors
        self.used = False

    def excuses(self, position: int, error: Tensor, allowed: float) -> bool:
        """Whether every error above ``allowed``, of one result, is one that the steps of a composite explain."""
        places = (error.flatten() > allowed).nonzero().flatten().tolist()
        bounds = bounds_of(self.gm, self.tensors, position, places) if len(places) <= MOST else None
        fine = bounds is not None and bool((error.flatten()[places] <= bounds).all())
        self.used = self.used or fine
        return fine


def bounds_of(gm: fx.GraphModule, tensors: list[Tensor], position: int, places: list[int]) -> Tensor | None:
    """What elements ``places`` of result ``position`` may be off by; None for what is no composite of known steps."""
    steps = decomposed(gm, tensors)
    if not is_composite(steps):
        return None
    run = Disturbed(steps)
    leaf = pytree.tree_leaves(run.run(*(widened(x) for x in clones(tensors))))[position].flatten()
    bounds = []
    for place in places:
        slopes = torch.autograd.grad(leaf[place], run.disturbances, retain_graph=True, allow_unused=True)
        terms = [(slope.abs() * most).sum() for slope, most in zip(slopes, run.most, strict=True) if slope is not None]
        bounds.append(float(sum(terms)))
    return torch.tensor(bounds, dtype=torch.float64)


def decomposed(gm: fx.GraphModule, tensors: list[Tensor]) -> fx.GraphModule:
    """The graph with its composite ops as torch itself writes them out."""
    more = [aten._softmax, aten._log_softmax, aten._safe_softmax, aten.native_layer_norm, aten.native_group_norm]
    more += [aten._scaled_dot_product_flash_attention_for_cpu, aten.addmm, aten.baddbmm]
    table = {**core_aten_decompositions(), **get_decompositions(more), aten.var_mean.correction: variance_and_mean}
    return make_fx(Reshaped(gm).run, table)(*clones(tensors))


def variance_and_mean(x: Tensor, dims: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    axes = list(range(x.dim())) if dims is None else list(dims)
    mean = x.mean(axes, keepdim=True)
    distance = x - mean
    count = math.prod(x.shape[axis] for axis in axes) - (1 if correction is None else correction)
    variance = (distance * distance).sum(axes, keepdim=keepdim) / count
    return variance, mean if keepdim else x.mean(axes)


class Reshaped(fx.Interpreter):
    """Runs a graph with ``reshape`` for ``view``: a decomposed op need not give the strides that the op gives."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(aten.reshape.default if target is aten.view.default else target, args, kwargs)


def is_composite(gm: fx.GraphModule) -> bool:
    """Whether all floats are float32, all steps known, and one sum reads, on whatever way, what another gave."""
    behind: set[fx.Node] = set()
    found = False
    for node in gm.graph.nodes:
        leaves = [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, Tensor)]
        if any(leaf.is_complex() or (leaf.is_floating_point() and leaf.dtype != torch.float32) for leaf in leaves):
            return False
        if node.op != "call_function":
            continue
        if not is_known(node.target) and any(leaf.is_floating_point() for leaf in leaves) and node.all_input_nodes:
            return False
        reads = bool(behind & set(node.all_input_nodes))
        found = found or (reads and packet_of(node.target) in SUMS)
        if reads or packet_of(node.target) in SUMS:
            behind.add(node)
    return found


def packet_of(target: Any) -> Any:
    return getattr(target, "overloadpacket", None)


def is_known(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    known = packet_of(target) in SUMS | NEVER_ROUNDED
    return known or target.is_view or torch.Tag.pointwise in target.tags


class Disturbed(Double):
    """Runs a decomposed graph in float64, with a disturbance of zero added to what each step gives."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.disturbances: list[Tensor] = []
        self.most: list[Tensor] = []
        """How large each disturbance may be, element by element."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = super().call_function(target, args, kwargs)
        if (
            not isinstance(found, Tensor)
            or not found.is_floating_point()
            or not isinstance(target, torch._ops.OpOverload)
        ):
            return found
        with torch.no_grad():
            most = allowance(target, args, kwargs, found)
        if most is None:
            return found
        disturbance = torch.zeros_like(found, requires_grad=True)
        self.disturbances.append(disturbance)
        self.most.append(most)
        return found + disturbance


def allowance(target: Any, args: Any, kwargs: Any, found: Tensor) -> Tensor | None:
    """What one step may be off by, element by element; None for one that rounds nothing."""
    packet = packet_of(target)
    if packet in SUMS:
        given = pytree.tree_map(narrowed, (args, kwargs))
        wide = pytree.tree_map(widened, given)
        exact = target(*wide[0], **wide[1])
        finite = exact.isfinite()
        error = (target(*given[0], **given[1]).double() - exact)[finite].abs()
        size = 2 * float(error.max()) + float(unit(exact[finite].abs().max())) if error.numel() else 0.0
        return torch.full_like(found, size)
    if packet in NEVER_ROUNDED or torch.Tag.pointwise not in target.tags:
        return None
    units = unit(found.nan_to_num(0.0, 0.0, 0.0).abs())
    return units / 2 if packet in ROUNDED_ONCE else units


def unit(magnitude: Tensor) -> Tensor:
    """A unit in the last place of float32."""
    single = magnitude.float()
    return (torch.nextafter(single, torch.full_like(single, math.inf)) - single).double()


def narrowed(leaf: Any) -> Any:
    """Float64 as float32."""
    if isinstance(leaf, Tensor):
        return leaf.float() if leaf.dtype == torch.float64 else leaf
    return torch.float32 if leaf is torch.float64 else leaf

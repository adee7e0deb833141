"""Attention written out: softmax(Q K^T) V between two products, as one item.

bmm -> view -> mul -> add -> softmax -> view -> bmm     one item, whatever the form of the softmax

Both products, and everything between them, form a region that only the second product is read from; Q, K and V (the
mask too) come from outside. That is what an online softmax needs (Dao et al., FlashAttention, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.schedule.accounting import Meter
from spyre_fx.analysis.schedule.clusters import Cluster, regroups
from spyre_fx.analysis.schedule.families import Family, op_name
from spyre_fx.analysis.schedule.flow import Flow
from spyre_fx.analysis.schedule.kinds import WorkKind
from spyre_fx.analysis.schedule.rows import rows_of

_SOFTMAXES = {"_softmax", "softmax", "_safe_softmax"}
_EXPONENTIALS = {"exp", "exp2"}
_STATISTICS = {"amax", "any", "max", "sum"}
_TRIES = 4
"""Products that are tried as the scores of one attention, where several flow into it (a gate, a relative position)."""


@dataclass(frozen=True)
class Product:
    """A dot with its two factors; the left one is contracted over its last dim."""

    node: fx.Node
    left: fx.Node
    right: fx.Node


def attention_clusters(flow: Flow, claimed: Collection[fx.Node], meter: Meter) -> list[Cluster]:
    """All written-out attentions, in graph order of their first product."""
    products = {node: product for node in flow.work if node not in claimed and (product := _product(flow, node))}
    sinks = _sinks(flow, products, meter)
    positions = {node: position for position, node in enumerate(flow.work)}
    tries: dict[fx.Node, int] = {}
    found: dict[fx.Node, Cluster] = {}
    for node in products:
        sink = sinks.get(node)
        if sink is None or sink in found or tries.get(sink, 0) == _TRIES:
            continue
        tries[sink] = tries.get(sink, 0) + 1
        region = sorted(_between(flow, node, sink, meter), key=positions.__getitem__)
        if _is_attention(flow, node, region, products[sink]):
            found[sink] = _cluster(flow, products[node], region, products[sink], meter)
    return list(found.values())


def _product(flow: Flow, node: fx.Node) -> Product | None:
    space = flow.spaces.get(node)
    if flow.family[node] is not Family.DOT or space is None or flow.result_info(node) is None:
        return None
    contracted = [axis for axis, it in enumerate(space.axes) if it.combine == "matmul"]
    factors = [
        (operand, index_map)
        for operand, index_map in zip(flow.operands[node], space.operands, strict=True)
        if any(set(dim) & set(contracted) for dim in index_map)
    ]
    if len(contracted) != 1 or len(factors) != 2 or factors[0][1][-1] != tuple(contracted):
        return None
    return Product(node, factors[0][0], factors[1][0])


def _sinks(flow: Flow, products: dict[fx.Node, Product], meter: Meter) -> dict[fx.Node, fx.Node]:
    """For each op the one product as whose left factor all that is made of its result ends, if there is one."""
    sinks: dict[fx.Node, fx.Node] = {}
    for node in reversed(flow.work):
        readers = flow.consumers[node]
        meter.visit(1 + len(readers))
        ends = {_end(flow, node, reader, products, sinks) for reader in readers}
        if len(ends) == 1 and (end := ends.pop()) is not None:
            sinks[node] = end
    return sinks


def _end(
    flow: Flow, node: fx.Node, reader: fx.Node, products: dict[fx.Node, Product], sinks: dict[fx.Node, fx.Node]
) -> fx.Node | None:
    if reader in products:
        uses = [operand for operand in flow.operands[reader] if flow.producer(operand) is node]
        return reader if uses == [products[reader].left] else None
    family = flow.family.get(reader)
    passes = family in (Family.ELEMENTWISE, Family.ROW, Family.REDUCTION, Family.BROADCAST) or regroups(reader.target)
    return sinks.get(reader) if passes and flow.result_info(reader) is not None else None


def _between(flow: Flow, start: fx.Node, sink: fx.Node, meter: Meter) -> set[fx.Node]:
    """What lies on the ways from ``start`` to ``sink``, where all of them end."""
    seen: set[fx.Node] = set()
    pending = list(flow.consumers[start])
    while pending:
        meter.visit()
        node = pending.pop()
        if node is not sink and node not in seen:
            seen.add(node)
            pending.extend(flow.consumers[node])
    return seen


def _is_attention(flow: Flow, scores: fx.Node, region: list[fx.Node], values: Product) -> bool:
    """Whether the region is a softmax over the last dim of the scores, with elementwise ops around it."""
    shape, weights = flow.shape(scores), flow.info[values.left]
    if not shape or weights is None or shape[-1] == 1 or weights.shape[-1] != shape[-1]:
        return False
    count, keys = math.prod(shape), shape[-1]
    if not all(flow.is_movable(node) for node in (scores, *region, values.node)):
        return False
    if not all(_keeps_rows(flow, node, count, keys) for node in region):
        return False
    names = {op_name(node.target) for node in region}
    return bool(names & _SOFTMAXES) or (bool(names & _EXPONENTIALS) and "sum" in names)


def _keeps_rows(flow: Flow, node: fx.Node, count: int, keys: int) -> bool:
    """Whether an op of the region has the scores' rows of ``keys`` numbers, or one number for each."""
    shape = flow.shape(node)
    if shape is None:
        return False
    family, name = flow.family[node], op_name(node.target)
    if family in (Family.REDUCTION, Family.ROW):
        rows = rows_of(flow, node)
        known = name in (_STATISTICS if family is Family.REDUCTION else _SOFTMAXES)
        return known and rows is not None and rows.reduced[-1] == (keys,) and not any(rows.reduced[:-1])
    full = bool(shape) and shape[-1] == keys and math.prod(shape) == count
    return full or math.prod(shape) * keys == count


def _cluster(flow: Flow, scores: Product, region: list[fx.Node], values: Product, meter: Meter) -> Cluster:
    links = [node for node in region if flow.family[node] in (Family.SHAPE, Family.BROADCAST)]
    ops = [scores.node, *(node for node in region if node not in set(links)), values.node]
    inside = {*ops, *links}
    views: list[fx.Node] = []
    for factor in (scores.left, scores.right, values.right):
        views.extend(reversed(_views(flow, factor, inside, meter)))
    return Cluster(WorkKind.FLASH_ATTENTION, values.node, tuple(ops), (*views, *links))


def _views(flow: Flow, factor: fx.Node, inside: set[fx.Node], meter: Meter) -> list[fx.Node]:
    """The views through which the item alone reads ``factor``, nearest first: it can index what they are views of."""
    views: list[fx.Node] = []
    node = flow.producer(factor)
    while node in flow.family and is_view(node) and all(reader in inside for reader in flow.consumers[node]):
        meter.visit()
        if node in inside:
            break
        inside.add(node)
        views.append(node)
        node = flow.producer(flow.operands[node][0])
    return views

"""Functions traced, tiled, lowered and executed on the simulated device, and how their results are judged."""

from __future__ import annotations

import math

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import spyre_fx
from spyre_fx.codegen.lowered import DeviceStep, HostStep
from spyre_fx.codegen.memory_map import ops_of


def half(*shape):
    return torch.randn(shape).half()


def lowered(function, *args, levels=None, ops=None, target=None, multiple_of=1, accumulate="float32"):
    """The bundle of ``function``; ``levels`` tiles all its ops, or those named."""
    graph = make_fx(function, tracing_mode="fake")(*args)
    if levels is not None:
        names = ops or [node.name for node in graph.graph.nodes if node.op == "call_function"]
        graph = spyre_fx.tile(graph, [(names, levels)], multiple_of=multiple_of, accumulate=accumulate)
        assert any(isinstance(module, spyre_fx.CountedLoop) for module in graph.modules())
    bundle = spyre_fx.lower(graph, target)
    if levels is not None:
        assert "scf.for" in bundle.mlir() or _trips_once(graph)
    return bundle


def _trips_once(graph):
    loops = [module for module in graph.modules() if isinstance(module, spyre_fx.CountedLoop)]
    return all(phase.trips == 1 for loop in loops for phase in loop.phases)


def same(function, *args, **options):
    """The bundle gives eager's bits, shapes and strides; returns the bundle."""
    bundle = lowered(function, *args, **options)
    found, wanted = bundle.run(*args), function(*args)
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert torch.equal(one.nan_to_num(nan=7.0), other.nan_to_num(nan=7.0))
    return bundle


def close(function, *args, **options):
    """The bundle keeps the numerics rule: at most twice eager's error plus a unit in the last place."""
    bundle = lowered(function, *args, **options)
    found, eager = bundle.run(*args), function(*args)
    exact = function(*pytree.tree_map(lambda x: x.double(), args))
    leaves = zip(pytree.tree_leaves(found), pytree.tree_leaves(eager), pytree.tree_leaves(exact), strict=True)
    for one, other, best in leaves:
        assert one.dtype == other.dtype and one.shape == other.shape
        largest = best.abs().max().to(other.dtype)
        ulp = float(torch.nextafter(largest, torch.tensor(math.inf, dtype=other.dtype)) - largest)
        allowed = 2 * float((other.double() - best).abs().max()) + ulp
        assert float((one.double() - best).abs().max()) <= allowed
    return bundle


def specs_of(bundle):
    """All op specs, in order."""
    return [spec for step in bundle.lowered.steps if isinstance(step, DeviceStep) for spec in ops_of(step.specs)]


def device_ops(bundle):
    return [spec.op for spec in specs_of(bundle)]


def host_ops(bundle):
    return [str(step.target) for step in bundle.lowered.steps if isinstance(step, HostStep)]

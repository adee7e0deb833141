"""Peak memory by analysis, against hand counts and against what eager execution allocates."""

from __future__ import annotations

import weakref

import hypothesis.strategies as st
import torch
from hypothesis import given
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spyre_fx.analysis.budget import peak_bytes, timeline, working_set
from spyre_fx.analysis.buffers import buffers_of
from spyre_fx.transforms.tile import tile
from tests.analysis.planning import traced

KIB = 1024


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that ops have made and that are still referenced."""

    def __init__(self, known: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}
        self.live = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor.untyped_storage())
        return out

    def add(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self.drop, storage._cdata)

    def drop(self, key: int) -> None:
        self.live -= self.sizes.pop(key)


def measured(gm, *shapes):
    inputs = tuple(torch.ones(shape) for shape in shapes)
    with LiveBytes(inputs) as live:
        gm(*inputs)
    return live.peak


def test_a_chain_holds_two_values_at_once():
    gm = traced(lambda x: x.exp().sin().cos(), (256,))
    assert [moment.live_bytes for moment in timeline(gm)] == [0, KIB, 2 * KIB, 2 * KIB, KIB]
    assert peak_bytes(gm) == 2 * KIB == measured(gm, (256,))


def test_in_place_a_chain_holds_one():
    gm = traced(lambda x: x.exp().sin().cos(), (256,))
    assert peak_bytes(gm, in_place=True) == KIB


def test_a_result_of_another_size_takes_nothing_over():
    gm = traced(lambda x: x.exp().to(torch.float16).sum(), (256,))
    assert peak_bytes(gm, in_place=True) == KIB + KIB // 2


def test_a_product_does_not_run_in_place():
    gm = traced(lambda x: x.exp() @ x, (16, 16))
    assert peak_bytes(gm, in_place=True) == 2 * KIB


def test_a_product_adds_to_its_sum_in_place():
    gm = traced(lambda x: torch.addmm(x.exp(), x, x), (16, 16))
    assert peak_bytes(gm, in_place=True) == KIB
    gm = traced(lambda x: torch.addmm(x, x.exp(), x), (16, 16))
    assert peak_bytes(gm, in_place=True) == 2 * KIB


def test_memory_that_is_read_in_two_ways_is_not_written_over():
    gm = traced(lambda x: (y := x.exp()) + y.t(), (16, 16))
    assert peak_bytes(gm, in_place=True) == 2 * KIB


def test_a_loop_adds_its_results_and_one_trip():
    gm = traced(lambda x: x.exp().sin().cos(), (64, 64))
    tiled = tile(gm, [(["exp", "sin", "cos"], 8)])
    assert peak_bytes(gm) == 32 * KIB
    assert peak_bytes(tiled) == 16 * KIB + 2 * 2 * KIB
    assert peak_bytes(tiled, in_place=True) == 16 * KIB + 2 * KIB


def test_what_a_loop_carries_stands_where_it_started():
    gm = traced(lambda a, b: a @ b, (64, 64), (64, 64))
    tiled = tile(gm, [(["mm"], 4, {"b_1": 0})])
    assert [n.name for n in tiled.graph.nodes if n.op.startswith("call")] == ["mm_identity", "mm_start", "loop_0"]
    at_loop = [moment.live_bytes for moment in timeline(tiled) if moment.node.name == "loop_0"]
    assert at_loop == [4 + 64 * 64 * 4]  # the start is one number
    nested = tile(gm, [(["mm"], [(2, {"a_1": 0}), (4, {"b_1": 0})])])  # the rows of a trip start in the body
    assert peak_bytes(nested, in_place=True) < peak_bytes(nested)


def test_views_take_no_memory_and_keep_their_base():
    gm = traced(lambda x: x.exp().view(-1)[:8] + 1, (16, 16))
    assert peak_bytes(gm) == KIB + 32 == measured(gm, (16, 16))


def test_returned_values_live_to_the_end():
    gm = traced(lambda x: ((y := x.exp()), y.sin().cos()), (256,))
    assert peak_bytes(gm) == 3 * KIB == measured(gm, (256,))


def test_results_of_one_op_live_apart():
    gm = traced(lambda x: torch.ops.aten.native_layer_norm(x, [16], None, None, 1e-5)[0].exp().sin(), (16, 16))
    assert peak_bytes(gm) == measured(gm, (16, 16))
    assert len([buffer for buffer in buffers_of(gm).all if not buffer.is_input]) == 3 + 2


def test_in_place_ops_allocate_nothing():
    gm = traced(lambda x: x.exp().add_(1).mul_(2), (256,))
    assert peak_bytes(gm) == KIB == measured(gm, (256,))


def test_working_set_counts_inputs():
    gm = traced(lambda x, w: (x @ w).relu(), (16, 16), (16, 8))
    x, w = gm.graph.find_nodes(op="placeholder")
    assert working_set(gm) == KIB + KIB // 2 + KIB // 2
    assert working_set(gm, apart=[w]) == KIB + KIB // 2
    assert working_set(gm, apart=[x, w]) == KIB // 2


def test_an_empty_graph_needs_nothing():
    assert peak_bytes(traced(lambda x: x, (4,))) == 0


STEPS = {
    "exp": lambda a, b: a.exp(),
    "add": lambda a, b: a + b,
    "product": lambda a, b: a @ b,
    "softmax": lambda a, b: a.softmax(1),
    "transpose": lambda a, b: a.t(),
    "split": lambda a, b: torch.cat(a.split(4), 0),
    "expand": lambda a, b: a[:1].expand(8, 8),
    "mean": lambda a, b: a.mean(1, keepdim=True) * b,
    "sort": lambda a, b: a.sort(1)[0],
    "max": lambda a, b: a.max(1)[0][:, None] + b,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)), min_size=1))
def test_the_peak_is_what_eager_allocates(steps):
    def graph(x, y):
        values = [x, y]
        for name, left, right in steps:
            values.append(STEPS[name](values[left % len(values)], values[right % len(values)]))
        return values[-1], values[len(values) // 2]

    gm = traced(graph, (8, 8), (8, 8))
    assert peak_bytes(gm) == measured(gm, (8, 8), (8, 8))


def test_in_place_never_needs_more():
    gm = traced(lambda x, w: (x @ w).relu().softmax(1) + x, (16, 16), (16, 16))
    assert peak_bytes(gm, in_place=True) <= peak_bytes(gm)
    assert peak_bytes(gm, in_place=True) <= working_set(gm)

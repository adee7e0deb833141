"""Plans of whole models and of random graphs keep what every plan must keep (see ``planning.check``)."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import torch
from hypothesis import given
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx
from spyre_fx.analysis.schedule import plan, plan_bound
from spyre_fx.capture import capture
from tests.analysis.planning import check, traced

F = nn.functional
D, HEADS, TOKENS = 32, 4, 16


class GptBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(approximate="tanh"), nn.Linear(4 * D, D))

    def forward(self, x):
        heads = [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).split(D, -1)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class LlamaBlock(nn.Module):
    """RMS norm, rotary positions, grouped heads, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.q, self.k, self.v = (nn.Linear(D, width, bias=False) for width in (D, D // 2, D // 2))
        self.out = nn.Linear(D, D, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((D, 64), (D, 64), (64, D)))

    def forward(self, x, cos, sin):
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (-1, D // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (t * cos + torch.cat([-t[..., 4:], t[..., :4]], -1) * sin for t in (q, k))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        mask = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)
        y = (q @ k.transpose(-1, -2) / 8**0.5 + mask).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def kinds_of(gm) -> Counter[str]:
    return Counter(item.kind.value for item in check(gm))


def test_gpt_block():
    found = kinds_of(capture(GptBlock(), torch.randn(2, TOKENS, D)))
    assert found["flash_attention"] == 1
    assert found["row_pipeline"] == 2
    assert found["dot_general"] == 4
    assert found["kernel_call"] == 0


def test_llama_block():
    rotation = torch.randn(TOKENS, D // HEADS)
    found = kinds_of(capture(LlamaBlock(), torch.randn(2, TOKENS, D), rotation, rotation))
    assert found["flash_attention"] == 1
    assert found["row_pipeline"] == 2
    assert found["dot_general"] == 7
    assert found["kernel_call"] == 0


def test_residual_convolutions():
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)).eval()
    found = kinds_of(capture(lambda x: (x + block(x)).relu(), torch.randn(2, 4, 8, 8)))
    assert found["dot_general"] == 2
    assert found["kernel_call"] == 0


def test_cross_entropy():
    gm = capture(lambda x, w, t: F.cross_entropy(x @ w, t), *(torch.ones(8, 4), torch.ones(4, 10), torch.arange(8)))
    found = kinds_of(gm)
    assert found["row_pipeline"] == 1
    assert found["reduction"] == 2


def test_a_training_step():
    def step(x, w, v):
        loss = F.layer_norm(F.gelu(x @ w) @ v + x, (16,)).pow(2).sum()
        return torch.autograd.grad(loss, [x, w, v])

    inputs = [torch.randn(shape, requires_grad=True) for shape in ((8, 16), (16, 32), (32, 16))]
    found = kinds_of(make_fx(step, tracing_mode="fake")(*inputs))
    assert found["dot_general"] == 6
    assert found["row_pipeline"] == 2


def test_a_tiled_graph_is_planned_with_its_loops():
    """Remainder and all, a loop does the element ops of the ops in it; what was fused apart is one item now."""
    gm = capture(lambda x, w: ((x @ w).relu() + 1).tanh() * 2, torch.ones(100, 8), torch.ones(8, 6))
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(names, 7)])
    (item,) = check(tiled)
    assert item.kind.value == "iterate"
    assert item.shape == (100, 6)
    assert item.resources.estimated_element_ops == plan(gm)[0].resources.estimated_element_ops


STEPS = {
    "exp": lambda a, b: a.exp(),
    "add": lambda a, b: a + b,
    "scale": lambda a, b: a * 2,
    "row_sum": lambda a, b: a.sum(1, keepdim=True).expand(6, 6),
    "column_max": lambda a, b: a.amax(0, keepdim=True) + b,
    "softmax": lambda a, b: a.softmax(1),
    "product": lambda a, b: a @ b,
    "transpose": lambda a, b: a.t(),
    "view": lambda a, b: a.view(36).view(6, 6) if a.is_contiguous() else a,
    "split": lambda a, b: torch.cat(a.split(3, 1), 1),
    "scan": lambda a, b: a.cumsum(0),
    "sort": lambda a, b: a.sort(1)[0],
    "repeat": lambda a, b: a[:1].expand(6, 6),
    "fill": lambda a, b: torch.zeros(6, 6) + b,
    "write": lambda a, b: a.clone().add_(b),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)), max_size=20))
def test_random_graphs(steps):
    def graph(x, y):
        values = [x, y]
        for name, left, right in steps:
            values.append(STEPS[name](values[left % len(values)], values[right % len(values)]))
        return values[-1], values[len(values) // 2]

    gm = traced(graph, (6, 6), (6, 6))
    result = check(gm)
    assert result.unplanned == ()
    assert result.total_static_elements == sum(item.element_count for item in result)


def test_a_long_chain_stays_within_its_bound():
    def long(x):
        for _ in range(300):
            x = (x.exp() @ x).softmax(1).t()
        return x

    gm = traced(long, (6, 6))
    result = check(gm)
    assert result.scheduled_op_count == 4 * 300
    assert result.visits * 2 < plan_bound(gm).visits * 2 <= 200 * len(gm.graph.nodes)
    assert plan(gm) is result

"""Blocks of real models, tiled over every axis that makes sense."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spyre_fx.errors import TilingError
from spyre_fx.transforms.loop_types import Carried
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

BATCH, TOKENS, WIDTH, HIDDEN, HEADS = 2, 12, 8, 16, 4


def tensors(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(shape) / shape[-1] ** 0.5 for shape in shapes)


X = torch.randn(BATCH, TOKENS, WIDTH)


# ---- MLP


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)


MLP_ARGS = (X, *tensors((HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,)))
MLP_AXES = {"batch": {"x_1": 0}, "tokens": {"x_1": 1}, "width": {"x_1": 2}, "hidden": {"w1_1": 0}, "out": {"w2_1": 0}}


@pytest.mark.parametrize(
    "levels",
    [
        [("batch", 2)],
        [("tokens", 4)],
        [("tokens", 5)],
        [("width", 4)],
        [("hidden", 4)],
        [("hidden", 3)],
        [("out", 2)],
        [("tokens", 4), ("hidden", 3)],
        [("hidden", 3), ("tokens", 5)],
        [("batch", 2), ("tokens", 3), ("hidden", 4), ("out", 2)],
    ],
)
def test_mlp(levels: list[tuple[str, int]]) -> None:
    gm = traced(mlp, *MLP_ARGS)
    tiled = check_tiled(gm, [(ops_of(gm), [(count, MLP_AXES[axis]) for axis, count in levels])], *MLP_ARGS)
    accumulates = any(isinstance(result, Carried) for loop in loops_of(tiled) for result in loop.results)
    assert accumulates == any(axis in ("width", "hidden") for axis, _ in levels)


def test_the_hidden_value_of_an_mlp_is_never_whole() -> None:
    gm = traced(mlp, *MLP_ARGS)
    tiled = check_tiled(gm, [(ops_of(gm), [(4, MLP_AXES["tokens"]), (2, MLP_AXES["hidden"])])], *MLP_ARGS)
    for node in tiled.graph.nodes:
        assert (
            HIDDEN not in getattr(node.meta.get("val"), "shape", ())
            or node.op == "placeholder"
            or node.name.startswith("t")
        )


# ---- attention


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> torch.Tensor:
    def heads(w: Any) -> torch.Tensor:
        return F.linear(x, w).view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)

    q, k, v = heads(wq), heads(wk), heads(wv)
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~mask, -1e9)
    mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH)
    return F.linear(mixed, wo)


ATTENTION_ARGS = (X, *tensors(*[(WIDTH, WIDTH)] * 4))
Q, K = "transpose", "transpose_1"
ATTENTION_AXES = {"batch": {Q: 0}, "heads": {Q: 1}, "queries": {Q: 2}, "keys": {K: 2}, "depth": {"transpose_2": 3}}


def core(names: list[str]) -> list[str]:
    """From the scores to the mixed values."""
    return names[names.index("transpose_3") : names.index("transpose_4") + 1]


@pytest.mark.parametrize(
    "levels",
    [
        [("batch", 2)],
        [("heads", 2)],
        [("queries", 3)],
        [("queries", 5)],
        [("keys", 4)],
        [("keys", 5)],
        [("depth", 2)],
        [("batch", 2), ("heads", 4), ("queries", 3)],
        [("queries", 3), ("keys", 5)],
        [("keys", 5), ("queries", 3)],
        [("heads", 2), ("queries", 5), ("keys", 3)],
    ],
)
def test_attention(levels: list[tuple[str, int]]) -> None:
    gm = traced(attention, *ATTENTION_ARGS)
    groups = [(core(ops_of(gm)), [(count, ATTENTION_AXES[axis]) for axis, count in levels])]
    check_tiled(gm, groups, *ATTENTION_ARGS)


@pytest.mark.parametrize("levels", [[("batch", 2)], [("heads", 4)], [("heads", 3)], [("batch", 2), ("heads", 2)]])
def test_attention_with_its_projections(levels: list[tuple[str, int]]) -> None:
    """Over heads, the output projection contracts the tiled axis and accumulates."""
    gm = traced(attention, *ATTENTION_ARGS)
    groups = [(ops_of(gm), [(count, ATTENTION_AXES[axis]) for axis, count in levels])]
    tiled = check_tiled(gm, groups, *ATTENTION_ARGS)
    outermost = loops_of(tiled)[0]
    assert isinstance(outermost.results[0], Carried) == (levels[0][0] == "heads")


def test_queries_and_keys_from_one_input_are_two_roads() -> None:
    gm = traced(attention, *ATTENTION_ARGS)
    with pytest.raises(TilingError, match="'bmm' along two axes"):
        tile(gm, [(ops_of(gm), 3, {"x_1": 1})])


# ---- whole blocks, and several groups


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).view(BATCH, TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-1, -2) / 1.4, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@pytest.fixture(scope="module")
def block() -> torch.fx.GraphModule:
    gm = torch.export.export(Block().eval(), (X,)).run_decompositions().module()
    assert isinstance(gm, torch.fx.GraphModule)
    return gm


def test_a_block_in_several_groups(block: torch.fx.GraphModule) -> None:
    names = ops_of(block)
    bmm, bmm_1 = names.index("bmm"), names.index("bmm_1")
    second_norm = [i for i, name in enumerate(names) if name.startswith("native_layer_norm")][1]
    with torch.no_grad():
        for levels in ([(3, [1])], [(2, [0]), (5, [1])]):
            groups = [(names[bmm : bmm_1 + 1], levels), (names[second_norm:], [(5, {names[second_norm - 1]: 1})])]
            tiled = check_tiled(block, groups, X)
            assert len(tiled.graph.find_nodes(op="call_module", target="loop_0")) == 1


def test_a_block_over_the_batch(block: torch.fx.GraphModule) -> None:
    with torch.no_grad():
        tiled = check_tiled(block, [(ops_of(block), 2, {"x": 0})], X)
    assert len(loops_of(tiled)) == 1


def test_dense_experts() -> None:
    args = (
        *tensors((3, WIDTH, HIDDEN), (3, HIDDEN, WIDTH)),
        torch.randn(5, WIDTH),
        torch.softmax(torch.randn(5, 3), 1),
    )

    def experts(up: Any, down: Any, x: Any, gate: Any) -> torch.Tensor:
        hidden = torch.matmul(x.unsqueeze(0), up).relu()
        return (torch.matmul(hidden, down) * gate.t().unsqueeze(-1)).sum(0)

    gm = traced(experts, *args)
    for levels in ([(3, {"up_1": 0})], [(2, {"up_1": 0})], [(3, {"up_1": 0}), (4, {"up_1": 2})], [(5, {"x_1": 0})]):
        check_tiled(gm, [(ops_of(gm), levels)], *args)


def test_cross_entropy_over_the_vocabulary() -> None:
    x, w, labels = torch.randn(6, WIDTH), torch.randn(40, WIDTH), torch.randint(0, 40, (6,))

    def loss(x: Any, w: Any, labels: Any) -> torch.Tensor:
        logits = F.linear(x, w)
        return (torch.logsumexp(logits, 1) - (x * w[labels]).sum(1)).mean()

    gm = traced(loss, x, w, labels)
    names = ops_of(gm)
    for count in (4, 7):
        check_tiled(gm, [(names[: names.index("logsumexp") + 1], count, {"w_1": 0})], x, w, labels)


def test_backward_of_an_mlp() -> None:
    """Weight gradients contract the tokens, so they accumulate."""
    x, w1, w2 = torch.randn(TOKENS, WIDTH), *tensors((WIDTH, HIDDEN), (HIDDEN, WIDTH))

    def gradients(x: Any, w1: Any, w2: Any) -> Any:
        def loss(*args: Any) -> torch.Tensor:
            return (torch.tanh(args[0] @ args[1]) @ args[2]).pow(2).sum()

        return torch.func.grad(loss, argnums=(0, 1, 2))(x, w1, w2)

    gm = traced(gradients, x, w1, w2)
    for levels in ([(4, {"x_1": 0})], [(5, {"x_1": 0})], [(3, {"w1_1": 1})], [(4, {"x_1": 0}), (2, {"w1_1": 1})]):
        check_tiled(gm, [(ops_of(gm), levels)], x, w1, w2, tolerance=1e-4)

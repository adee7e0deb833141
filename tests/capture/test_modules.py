"""Captured modules give the values of eager, in the ops that torch's tables leave."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import traceback as fx_traceback

from tests.capture.checks import captured, same, targets


class Attention(nn.Module):
    """Causal attention with an explicit softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Sdpa(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def conv_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)),
        lambda: (torch.randn(2, 5, 8),),
    ),
    "block": (Block, lambda: (torch.randn(2, 6, 16),)),
    "sdpa": (Sdpa, lambda: tuple(torch.randn(2, 2, 5, 8) for _ in range(3))),
    "conv_bn": (conv_net, lambda: (torch.randn(2, 3, 8, 8),)),
    "embedding": (lambda: nn.Embedding(10, 4), lambda: (torch.tensor([[1, 2], [9, 0]]),)),
    "mha": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: tuple(torch.randn(2, 4, 8) for _ in range(3)),
    ),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: (torch.randn(2, 4, 8),),
    ),
    "group_norm": (lambda: nn.GroupNorm(2, 8), lambda: (torch.randn(2, 8, 3),)),
    "rms_norm": (lambda: nn.RMSNorm(8), lambda: (torch.randn(2, 8),)),
    "lstm": (lambda: nn.LSTM(4, 3), lambda: (torch.randn(2, 1, 4),)),
    "half": (lambda: nn.Linear(8, 4).half(), lambda: (torch.randn(3, 8).half(),)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_values_are_those_of_eager(name: str, training: bool) -> None:
    torch.manual_seed(0)
    make, inputs = CASES[name]
    module, args = make().train(training), inputs()
    state = copy.deepcopy(module.state_dict())
    gm = captured(module, *args)
    same(state, module.state_dict())
    twin = copy.deepcopy(module)
    with torch.no_grad():
        same(twin(*args), gm(*args), strides=name != "sdpa")  # torch's decomposition of it returns another order
    same(twin.state_dict(), module.state_dict())


def test_composite_ops_stop_at_core_aten() -> None:
    ops = targets(captured(Block(), torch.randn(2, 6, 16)))
    counts = {"addmm": 4, "native_layer_norm": 2, "_softmax": 1, "gelu": 1, "bmm": 2}
    assert {name: ops.count(f"{name}.default") for name in counts} == counts
    assert not {"linear.default", "layer_norm.default", "softmax.int", "matmul.default"} & set(ops)
    sdpa = targets(captured(Sdpa(), *(torch.randn(2, 2, 5, 8) for _ in range(3))))
    assert sdpa.count("bmm.default") == 2
    assert "_softmax.default" in sdpa
    net = targets(captured(conv_net().eval(), torch.randn(2, 3, 8, 8)))
    assert net[:2] == ["convolution.default", "_native_batch_norm_legit_no_training.default"]


def test_nodes_know_their_module_and_line() -> None:
    gm = captured(Block(), torch.randn(2, 6, 16))
    for node in gm.graph.nodes:
        if node.op == "call_function":
            assert __file__ in (node.stack_trace or ""), node
            assert "L__self__" in node.meta["nn_module_stack"]
    (gelu,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default)
    assert [path for path, _ in gelu.meta["nn_module_stack"].values()] == ["", "mlp", "mlp.1"]


def test_annotations_stay_with_the_ops() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        with fx_traceback.annotate({"note": {"A": 2}}):
            y = F.layer_norm(x, (4,)).softmax(-1)
        return y + 1

    gm = captured(run, torch.randn(3, 4))
    notes = {node.name: node.meta.get("custom") for node in gm.graph.nodes if node.op == "call_function"}
    assert notes == {
        "native_layer_norm": {"note": {"A": 2}},
        "getitem": {"note": {"A": 2}},
        "_softmax": {"note": {"A": 2}},
        "add": None,
    }


def test_casts_leave_no_assertions() -> None:
    assert targets(captured(lambda x: x.to(torch.float16).float(), torch.randn(3))) == ["_to_copy.default"] * 2


@torch.library.custom_op("capture_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_ops_stay_whole() -> None:
    x = torch.randn(3)
    gm = captured(lambda x: twice(x) + 1, x)
    assert targets(gm) == ["capture_tests.twice.default", "add.Tensor"]
    same(x * 2 + 1, gm(x))


def test_control_flow_ops_keep_their_graphs() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    gm = captured(run, torch.ones(3))
    same(torch.full((3,), 2.0), gm(torch.ones(3)))
    same(torch.full((3,), -2.0), gm(-torch.ones(3)))


def test_batch_norm_in_training_updates_the_modules_own_statistics() -> None:
    torch.manual_seed(0)
    module, x = nn.BatchNorm1d(3), torch.randn(5, 3)
    gm = captured(module, x)
    assert int(module.num_batches_tracked) == 0
    twin = copy.deepcopy(module)
    for _ in range(2):
        with torch.no_grad():
            same(twin(x), gm(x))
    assert int(module.num_batches_tracked) == 2
    torch.testing.assert_close(module.running_mean, twin.running_mean)


def test_dropout_draws_what_eager_draws() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        return torch.rand(4, 4) + F.dropout(x, 0.5) + torch.randn(4, 4)

    x = torch.ones(4, 4)
    gm = captured(draw, x)
    torch.manual_seed(3)
    expected = draw(x)
    torch.manual_seed(3)
    same(expected, gm(x))
    torch.manual_seed(3)
    assert not torch.equal(gm(x), gm(x))


def test_capturing_draws_nothing() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    captured(lambda x: torch.rand(4) + x, torch.ones(4))
    assert torch.equal(state, torch.get_rng_state())


def test_threads_may_capture_at_the_same_time() -> None:
    def work(width: int) -> tuple[int, ...]:
        layer, x = nn.Linear(4, width), torch.randn(2, 4)
        gm = captured(layer, x)
        return tuple(gm(x).shape)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(1, 7))) == [(2, width) for width in range(1, 7)]

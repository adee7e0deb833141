"""Attention with its keys tiled: derived from plain graphs, in one pass, with nothing as large as the keys."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import spyre_fx
from spyre_fx.analysis.budget import peak_bytes
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from tests.transforms.tiling import check_tiled, loops_of, ops_of, traced

aten = torch.ops.aten


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125 + mask, -1) @ v


def inputs(rows: int, keys: int, width: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    shapes = ((2, 4, rows, width), (2, 4, keys, width), (2, 4, keys, width), (rows, keys))
    return [torch.randn(shape).to(dtype) for shape in shapes]


def is_online(tiled: torch.fx.GraphModule) -> bool:
    return any("online" in line for loop in summary(tiled).loops for line in loop.form)


@pytest.mark.parametrize("keys", [5, 3, 7])
def test_blocks_of_rows_and_of_keys(keys: int) -> None:
    args = inputs(96, 160, 64)
    gm = spyre_fx.capture(attention, *args)
    tiled = check_tiled(gm, [(ops_of(gm), [(4, {"q": 2}), (keys, {"k": 2})])], *args, tolerance=1e-5)
    assert is_online(tiled) and len(loops_of(tiled)) == 2


def test_memory_does_not_grow_with_the_keys() -> None:
    peaks = []
    for keys in (160, 640, 2560):
        args = inputs(96, keys, 64)
        gm = spyre_fx.capture(attention, *args)
        tiled = tile(gm, [(ops_of(gm), [(4, {"q": 2}), (keys // 32, {"k": 2})])])
        assert torch.allclose(tiled(*args), gm(*args), atol=1e-5)
        peaks.append(peak_bytes(tiled))
    assert len(set(peaks)) == 1


SMALL = (9, 14, 8)
NESTS: list[list[tuple[int, dict[str, int]]]] = [
    [(4, {"k": 2, "v": 2})],
    [(3, {"q": 2}), (5, {"k": 2})],
    [(5, {"k": 2}), (3, {"q": 2})],
    [(2, {"q": 1}), (14, {"k": 2})],
    [(3, {"k": 2}), (2, {"k": 2})],
    [(4, {"k": 2}), (3, {"v": 3})],
    [(3, {"v": 3}), (4, {"k": 2})],
]


def by_hand(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.transpose(-1, -2) + mask
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)) @ v


def base_two(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.transpose(-1, -2) + mask
    powers = torch.exp2((scores - scores.max(-1).values.unsqueeze(-1)) * math.log2(math.e))
    return (powers @ v) / powers.sum(-1).unsqueeze(-1)


def values_first(q: Any, k: Any, v: Any, mask: Any) -> Any:
    weights = torch.softmax(q @ k.transpose(-1, -2) + mask, -1)
    return v.transpose(-1, -2) @ weights.transpose(-1, -2)


def with_normaliser(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.transpose(-1, -2) + mask
    return torch.logsumexp(scores, -1), torch.softmax(scores, -1) @ v


VARIANTS: dict[str, Callable[..., Any]] = {
    "softmax": attention,
    "fused": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
    "fused, bool mask": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0.5),
    "fused, causal": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "by hand": by_hand,
    "base two": base_two,
    "filled mask": lambda q, k, v, m: torch.softmax((q @ k.mT).masked_fill(m > 0.5, -math.inf), -1) @ v,
    "values first": values_first,
    "weights masked afterwards": lambda q, k, v, m: torch.softmax(q @ k.mT + m, -1).masked_fill(m > 0, 0.0) @ v,
    "with normaliser": with_normaliser,
}


@functools.cache
def captured(case: str, dtype: torch.dtype = torch.float32) -> torch.fx.GraphModule:
    """No graph is edited by tiling, so one will do for all tests."""
    return spyre_fx.capture(VARIANTS[case], *inputs(*SMALL, dtype))


EVERY_NEST = [("softmax", levels) for levels in NESTS] + [("values first", levels) for levels in NESTS[1:]]


@pytest.mark.parametrize(("case", "levels"), [*EVERY_NEST, *((case, NESTS[2]) for case in VARIANTS)], ids=str)
def test_variants_and_nests(case: str, levels: list[tuple[int, dict[str, int]]]) -> None:
    args, gm = inputs(*SMALL), captured(case)
    tiled = check_tiled(gm, [(ops_of(gm), levels)], *args)
    assert is_online(tiled)
    assert not any(kind.shape[-1:] == (14,) for loop in loops_of(tiled) for kind in loop.result_types)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", ["softmax", "fused, causal", "by hand", "with normaliser"])
def test_half_precision_has_running_values_in_single(case: str, dtype: torch.dtype) -> None:
    args, gm = inputs(*SMALL, dtype), captured(case, dtype)
    tiled = check_tiled(gm, [(ops_of(gm), NESTS[1])], *args)
    inner = loops_of(tiled)[-1]
    assert all(kind.dtype is torch.float32 for kind in inner.result_types if len(kind.shape) == 3)


@pytest.mark.parametrize("case", VARIANTS)
def test_masked_tiles_masked_rows_infinities_and_nan(case: str) -> None:
    """Row 2 has no key left, rows 4 to 6 none in whole tiles."""
    masked = inputs(*SMALL)
    masked[3][2] = masked[3][4, :5] = masked[3][5, 9:] = masked[3][6, 3:12] = -math.inf
    odd = inputs(*SMALL)
    odd[0][0, 1, 3, 2], odd[3][2, 3], odd[1][1, 2, 5, 1] = math.nan, math.inf, math.inf
    gm = captured(case)
    check_tiled(gm, [(ops_of(gm), NESTS[0])], *masked)
    check_tiled(gm, [(ops_of(gm), NESTS[1])], *odd)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_heads_under_a_causal_mask(dtype: torch.dtype) -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        batch, heads, size, width = q.shape
        shape = batch, k.shape[1], heads // k.shape[1], size, width
        k, v = (x[:, :, None].expand(shape).reshape(q.shape) for x in (k, v))
        place = torch.arange(size)
        scores = (q @ k.mT * width**-0.5).masked_fill(place[None] > place[:, None], -math.inf)
        return torch.softmax(scores.float(), -1).to(q.dtype) @ v

    args = [torch.randn(2, heads, 24, 8).to(dtype) for heads in (8, 2, 2)]
    gm = spyre_fx.capture(fn, *args)
    for levels in ([(4, {"q": 2}), (5, {"k": 2})], [(5, {"k": 2})], [(2, {"k": 1}), (5, {"k": 2})]):
        assert is_online(check_tiled(gm, [(ops_of(gm), levels)], *args))


@pytest.mark.parametrize("levels", [[(3, "k_1")], [(2, "q_1"), (4, "k_1")], [(4, "k_1"), (2, "q_1")]], ids=str)
@pytest.mark.parametrize("form", ["plain", "causal", "mask", "both results", "grouped"])
def test_the_fused_op_itself(form: str, levels: list[tuple[int, str]]) -> None:
    q, k, v, mask = inputs(6, 10, 8)
    mask[2] = -math.inf
    forms: dict[str, Callable[..., Any]] = {
        "plain": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v) + m.sum(),
        "causal": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        "mask": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        "both results": lambda q, k, v, m: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=m),
        "grouped": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
    }
    if form == "grouped":
        k, v = k[:, :2].contiguous(), v[:, :2].contiguous()
    gm = traced(forms[form], q, k, v, mask)
    (fused,) = [name for name in ops_of(gm) if name.startswith("_scaled")]
    axes = {"k_1": {"k_1": 2, "v_1": 2}, "q_1": {"q_1": 2}}
    tiled = check_tiled(gm, [([fused], [(count, axes[name]) for count, name in levels])], q, k, v, mask)
    assert is_online(tiled)


def test_two_layers_in_one_group() -> None:
    def fn(x: Any, k: Any, v: Any) -> Any:
        for _ in range(2):
            x = torch.softmax(x @ k.mT, -1) @ v
        return x

    args = torch.randn(6, 8), torch.randn(10, 8), torch.randn(10, 8)
    gm = spyre_fx.capture(fn, *args)
    tiled = check_tiled(gm, [(ops_of(gm), 4, {"k": 0, "v": 0})], *args)
    assert len(loops_of(tiled)) == 2


def test_gradients() -> None:
    args = [x[:, :2, :8, :4] for x in inputs(8, 12, 4)[:1]] + [x[:, :2] for x in inputs(8, 12, 4)[1:3]]
    fn = lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v  # noqa: E731
    gm = spyre_fx.capture(fn, *args)
    tiled = tile(gm, [(ops_of(gm), [(2, {"q": 2}), (5, {"k": 2})])])
    wanted, found = ([x.clone().requires_grad_() for x in args] for _ in range(2))
    fn(*wanted).square().sum().backward()
    tiled(*found).square().sum().backward()
    for want, got in zip(wanted, found, strict=True):
        assert torch.allclose(want.grad, got.grad, atol=1e-5)  # type: ignore[arg-type]

"""Values and ops in words."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.shows import size_text
from spyre_fx.viz.values import node_detail, node_kind, node_title, node_tooltip, short_dtype, value_lines


def graph():
    def fn(x, w):
        y = torch.var_mean(x @ w, dim=1)
        return y[0] + torch.arange(4), x.transpose(0, 1)

    return {node.name: node for node in spyre_fx.capture(fn, torch.ones(4, 6), torch.ones(6, 8)).graph.nodes}


def test_kinds_of_nodes():
    kinds = {name: node_kind(node) for name, node in graph().items()}
    assert kinds["x"] == "input" and kinds["mm"] == "matmul" and kinds["add"] == "pointwise"
    assert kinds["arange"] == "creation" and kinds["output"] == "output"
    assert next(kind for name, kind in kinds.items() if name.startswith(("permute", "transpose"))) == "view"
    assert next(kind for name, kind in kinds.items() if name.startswith("var")) == "reduction"


def test_titles_tooltips_and_details():
    node = graph()["mm"]
    assert node_title(node) == "mm" and value_lines(node) == ("4×8 f32 128 B",)
    assert "aten.mm" in node_tooltip(node) and "strides (8, 1)" in node_tooltip(node)
    assert "test_values.py" in node_tooltip(node) and "call_function" in node_detail(node)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (100, "100 B"), (1 << 10, "1 KiB"), (3 << 19, "1.5 MiB"), (1 << 33, "8 GiB")]
)
def test_sizes(size, words):
    assert size_text(size) == words


def test_dtypes():
    names = [short_dtype(dtype) for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)]
    assert names == ["f16", "bf16", "i64", "u8", "bool"]

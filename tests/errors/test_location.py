"""A message about a node shows its name, target, shapes and the user's own line."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.capture import capture
from spyre_fx.errors.location import describe_node, describe_value, listing, source_line, user_line


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) + x  # this line


def test_a_node_is_described_with_shapes_and_source() -> None:
    gm = capture(Block(), torch.randn(4, 8))
    (add,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    text = describe_node(add)
    assert text.startswith(
        "  at %add = aten.add.Tensor(%getitem [4, 8] float32, %x [4, 8] float32) -> [4, 8] float32\n"
    )
    assert Path(__file__).name in text
    assert text.endswith("return self.norm(x) + x  # this line")


def test_the_source_line_is_the_users_and_not_torchs() -> None:
    gm = capture(Block(), torch.randn(4, 8))
    (norm,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.native_layer_norm.default)
    assert "layer_norm(" in (norm.stack_trace or "")
    line = source_line(norm)
    assert line is not None
    assert line.startswith(__file__)
    assert line.endswith("return self.norm(x) + x  # this line")


def test_no_trace_no_line() -> None:
    gm = make_fx(torch.relu)(torch.randn(3))
    relu = list(gm.graph.nodes)[1]
    assert source_line(relu) is None
    assert "from" not in describe_node(relu)
    assert describe_node(next(iter(gm.graph.nodes))).endswith("() -> [3] float32")


def test_a_trace_without_code_gives_file_and_line() -> None:
    relu = list(make_fx(torch.relu)(torch.randn(3)).graph.nodes)[1]
    relu.stack_trace = 'File "model.py", line 3, in outer\n    y = f(x)\n  File "other.py", line 7, in f'
    assert source_line(relu) == "other.py:7"
    relu.stack_trace = 'File "model.py", line 3, in outer\n    y = f(x)\n  File "<eval_with_key>.1", line 7, in f'
    assert source_line(relu) == "model.py:3: y = f(x)"


def test_values_print_as_shape_and_dtype() -> None:
    assert describe_value(torch.empty(2, 3, dtype=torch.float16)) == "[2, 3] float16"
    assert describe_value((torch.empty(1), 4)) == "([1] float32, 4)"
    assert describe_value(None) == "?"


def test_the_line_of_an_exception_is_the_users() -> None:
    try:
        torch.ones(2) + torch.ones(3)
    except RuntimeError as error:
        line = user_line(error)
    assert line is not None
    assert line.endswith("torch.ones(2) + torch.ones(3)")


def test_the_listing_is_short() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = x + 1
        return x

    nodes = list(make_fx(chain)(torch.randn(3)).graph.nodes)
    assert len(listing(nodes[15]).splitlines()) == 1 + 7 + 1
    assert len(listing(nodes[0]).splitlines()) == 1 + 4 + 1
    assert max(map(len, listing(nodes[15]).splitlines())) <= 120

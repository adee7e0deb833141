"""Graphs as functions that take a list."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.backend.boxed import boxed_graph, unboxed


def test_the_list_is_emptied_and_inputs_die_at_their_last_use() -> None:
    alive: list[bool] = []

    @torch.library.custom_op("spyre_fx_tests::look", mutates_args=())
    def look(x: Tensor) -> Tensor:
        alive.append(watched() is not None)
        return x + 1

    look.register_fake(lambda x: torch.empty_like(x))
    gm = make_fx(lambda x: (look(look(x) * 2),), tracing_mode="fake")(torch.ones(4))
    run = boxed_graph(gm)
    x = torch.ones(4)
    watched = weakref.ref(x)
    args = [x]
    del x
    (result,) = run(args)
    gc.collect()
    assert args == []
    assert alive == [True, False]
    assert result.tolist() == [5.0] * 4


def test_it_is_marked() -> None:
    gm = make_fx(lambda x: (x + 1,), tracing_mode="fake")(torch.ones(4))
    for run in (boxed_graph(gm), unboxed(gm)):
        assert run._boxed_call  # type: ignore[attr-defined]
        args: list[Any] = [torch.ones(4)]
        assert run(args)[0].tolist() == [2.0] * 4
        assert args == []


def test_a_bare_result_is_wrapped() -> None:
    (result,) = unboxed(lambda x: x + 1)([torch.ones(2, 3)])
    assert result.shape == (2, 3)


def test_an_error_names_the_line_that_the_op_comes_from() -> None:
    gm = make_fx(lambda x, i: (x[i] + 1,), tracing_mode="fake")(torch.ones(4), torch.tensor([0]))
    node = next(node for node in gm.graph.nodes if node.op == "call_function")
    node.stack_trace = 'File "model.py", line 7, in forward\n    y = x[i]\n'
    with pytest.raises(IndexError) as caught:
        boxed_graph(gm)([torch.ones(4), torch.tensor([9])])
    assert caught.value.__notes__ == ["while running model.py:7: y = x[i]"]

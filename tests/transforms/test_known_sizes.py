"""Graphs with symbolic sizes at given ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.transforms.known_sizes import with_sizes

aten = torch.ops.aten


def test_numbers_become_constants_and_what_computed_them_goes() -> None:
    gm = make_fx(lambda x: x.view(x.shape[0], 2, -1) * x.shape[0], tracing_mode="symbolic")(torch.ones(6, 4))
    x = torch.randn(9, 4)
    sized = with_sizes(gm, [x])
    ops = [node.target for node in sized.graph.nodes if node.op == "call_function"]
    assert ops == [aten.view.default, aten.mul.Tensor]
    assert all(not isinstance(node.meta.get("val"), (int, torch.SymInt)) for node in sized.graph.nodes)
    assert torch.equal(sized(x), gm(x))
    assert not any(isinstance(node.meta.get("val"), int) for node in gm.graph.nodes)  # the graph itself is not edited


def test_checks_of_sizes_go() -> None:
    gm = make_fx(lambda x: x + 1, tracing_mode="symbolic")(torch.ones(6, 4))
    (x,) = gm.graph.find_nodes(op="placeholder")
    with gm.graph.inserting_before(gm.graph.output_node()):
        size = gm.graph.call_function(aten.sym_size.int, (x, 0))
        size.meta["val"] = x.meta["val"].shape[0]
        check = gm.graph.call_function(aten._assert_scalar.default, (size, "too small"))
        check.meta["val"] = None
    gm.recompile()
    sized = with_sizes(gm, [torch.ones(9, 4)])
    assert [node.target for node in sized.graph.nodes if node.op == "call_function"] == [aten.add.Tensor]


def test_random_draws_stay_although_nobody_reads_them() -> None:
    def fn(x: Tensor) -> Tensor:
        torch.rand(3)
        return x + torch.rand(x.shape[0], 1)

    gm = make_fx(fn, tracing_mode="symbolic")(torch.ones(6, 4))
    x = torch.ones(9, 4)
    torch.manual_seed(0)
    expected = fn(x)
    torch.manual_seed(0)
    assert torch.equal(with_sizes(gm, [x])(x), expected)

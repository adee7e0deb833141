"""Groups that name what another level or group has rewritten."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.tile import tile


@pytest.mark.parametrize("levels", [[(2, [0]), (2, [1])], [(2, [1]), (2, [0])], [(3, [0]), (5, [1])]])
def test_a_norm_over_rows_and_its_own_axis(levels):
    x = torch.randn(8, 96)
    gm = make_fx(lambda x: F.layer_norm(x, (96,)))(x)
    tiled = tile(gm, [(["native_layer_norm"], levels)])
    assert any(isinstance(module, CountedLoop) for module in tiled.modules())
    torch.testing.assert_close(tiled(x), gm(x))


@pytest.mark.parametrize("fn", [lambda x: x.softmax(0), lambda x: x.logsumexp(0, keepdim=True) + x])
def test_a_dim_of_an_op_that_an_earlier_group_rewrote(fn):
    x = torch.randn(8, 8)

    def both(x):
        s = fn(x)
        return s.exp(), s.relu()

    gm = make_fx(both)(x)
    first = next(node.name for node in gm.graph.nodes if node.op == "call_function")
    source = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0].args[0].name
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function" and node.name != "relu"]
    tiled = tile(gm, [(ops, 2, {"x_1": 0}), (["relu"], 2, {source: 1})])
    assert first in ops and sum(isinstance(module, CountedLoop) for module in tiled.modules()) >= 2
    torch.testing.assert_close(tiled(x), gm(x))


def test_an_inner_level_names_a_value_that_a_rewritten_op_reads():
    x = torch.randn(4, 6)
    gm = make_fx(lambda x: (y := x + 1) - y.mean(0, keepdim=True))(x)
    inner = LoopGroup(2, {"add": 1}, ["add"])
    tiled = tile(gm, [LoopGroup(2, {"add": 0, "sub": 0}, [inner, "mean", "sub"])])
    assert sum(isinstance(module, CountedLoop) for module in tiled.modules()) == 3
    torch.testing.assert_close(tiled(x), gm(x))


@pytest.mark.parametrize("name", ["mm", "_log_softmax", "detach", "nll_loss_backward"])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_value_of_a_loss_and_its_gradient_names_the_axis(name, dim):
    def fn(x, w, target):
        loss = F.cross_entropy(x @ w.T, target)
        return loss, *torch.autograd.grad(loss, (x, w))

    torch.manual_seed(0)
    x, w, target = (
        torch.randn(9, 6, requires_grad=True),
        torch.randn(11, 6, requires_grad=True),
        torch.randint(11, (9,)),
    )
    gm = make_fx(fn)(x, w, target)
    ops = [node.name for node in gm.graph.nodes if node.op == "call_function" and node.users]
    assert name in ops
    tiled = tile(gm, [(ops, 3, {name: dim})])
    assert any(isinstance(module, CountedLoop) for module in tiled.modules())
    for found, expected in zip(tiled(x, w, target), gm(x, w, target), strict=True):
        torch.testing.assert_close(found, expected)

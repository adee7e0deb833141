"""Stick layouts of whole graphs: agreed where they can be, moved where they cannot, padded where they must be."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.restickify import RESTICKIFY
from spyre_fx.codegen.sticks import SPARSE, layout_for
from tests.codegen.device_runs import close, device_ops, half, lowered, same, specs_of


def moves(bundle):
    return device_ops(bundle).count(RESTICKIFY)


def test_layouts_of_our_own_buffers_follow_the_dims_of_the_value():
    flat = Buffer("x", (2, 32, 128), torch.float16, groups=((0, 1), (2,)))
    assert layout_for(flat, 2).device_size == (2, 2, 32, 64)
    assert layout_for(flat, 1).device_size == (2, 1, 128, 64)
    assert layout_for(flat, SPARSE).device_size == (128, 1, 2, 32, 64)
    wide = Buffer("x", (8, 4, 64), torch.float16, groups=((0,), (1, 2)))
    assert layout_for(wide, 2).device_size == (4, 1, 8, 64)


@pytest.mark.parametrize(
    ("function", "args", "wanted"),
    [
        (lambda a, b: a + b, (half(64, 128), half(64, 128)), 0),
        (lambda a, b: a + b.t(), (half(64, 128), half(128, 64)), 1),
        (lambda a, b: (a.t() + b.t()).t(), (half(64, 128), half(64, 128)), 0),
        (lambda a, b: a @ b, (half(64, 128), half(128, 64)), 0),
        (lambda a, b: a @ b.t(), (half(64, 128), half(64, 128)), 1),
        (lambda a, b: torch.relu(a @ b.t()), (half(64, 128), half(64, 128)), 1),
        (lambda a: torch.softmax(a, -1), (half(64, 128),), 0),
        (lambda a: torch.softmax(a, 0), (half(64, 128),), 0),
        (lambda a: a.sum(0), (half(64, 128),), 0),
        (lambda a: a.sum(1), (half(64, 128),), 1),
        (lambda a, b: a * b, (half(64, 128), half(64, 1)), 0),
    ],
)
def test_moves_are_few(function, args, wanted):
    assert moves(close(function, *args)) == wanted


def test_a_product_of_products_turns_the_smaller_operand():
    """x @ w.T: the weights are turned unless they are larger than what they meet."""
    small = close(lambda x, w: x @ w.t(), half(512, 64), half(128, 64))
    turned = next(spec for spec in specs_of(small) if spec.op == RESTICKIFY)
    assert turned.args[0].name == "w_1"


def test_one_move_serves_all_its_readers():
    bundle = close(lambda a, b, c: (a @ c.t()) * (b @ c.t()), half(256, 64), half(256, 64), half(64, 64))
    assert moves(bundle) == 1


def test_parameters_are_laid_out_as_they_are_wanted():
    model = torch.nn.Linear(128, 64, dtype=torch.float16).requires_grad_(False)
    bundle = spyre_fx.lower(spyre_fx.capture(model, half(32, 128)))
    assert moves(bundle) == 0
    weight = next(argument for argument in bundle.lowered.arguments if argument.name.startswith("weight"))
    assert weight.role == "constant" and weight.layout.stick_dim == 0


@pytest.mark.parametrize("shape", [(100, 150), (1, 70), (70, 1), (65, 64)])
def test_partial_sticks(shape):
    torch.manual_seed(0)
    x = half(*shape)
    same(lambda x: torch.relu(x + x) * x, x)
    close(lambda x: x.sum(1), x)
    close(lambda x: torch.softmax(x, -1), x)
    close(lambda x: x @ x.t(), x)
    close(lambda x: x.t() @ x, x)


def test_padding_rows_are_zeros_that_an_op_writes():
    bundle = close(lambda a, b: a @ b, half(64, 100), half(100, 64))
    copies = [spec for spec in specs_of(bundle) if spec.op == "identity"]
    assert [spec.args[-1].device_size for spec in copies] == [(1, 128, 64)] * 2
    assert "28" in [str(extent) for extent, _ in copies[1].iteration_space.values()]


@pytest.mark.parametrize("heads", [2, 4, 8, 16])
def test_heads_of_every_width(heads):
    def split(x):
        batch, tokens, width = x.shape
        q = x.view(batch, tokens, heads, width // heads).transpose(1, 2)
        return torch.softmax(q @ q.transpose(-1, -2), -1)

    torch.manual_seed(1)
    close(split, half(2, 16, 128) / 4)


def test_views_that_begin_inside_a_stick_are_repacked():
    torch.manual_seed(2)
    bundle = same(lambda x: x[:, 32:96] + x[:, 1:65], half(64, 128))
    assert moves(bundle) >= 1
    same(lambda a, b: torch.cat([a, b], 1), half(8, 40), half(8, 30))
    same(lambda a: a.reshape(-1)[3:] * 2, half(8, 64))


def test_merged_heads_are_one_reduced_dim():
    def merged(x, w):
        heads = torch.relu(x.view(16, 2, 64).transpose(0, 1))
        return heads.transpose(0, 1).reshape(16, 128) @ w

    bundle = close(merged, half(16, 128), half(128, 64))
    (product,) = [spec for spec in specs_of(bundle) if spec.op == "batchmatmul"]
    assert len(product.iteration_space) == 3
    assert moves(bundle) == 0 and len(device_ops(bundle)) == 2


def test_a_user_tensor_with_other_dims_is_packed_first():
    bundle = close(lambda x, w: x.transpose(0, 1).reshape(16, 128) @ w, half(2, 16, 64), half(128, 64))
    assert device_ops(bundle)[0] == "identity"


def test_mixed_formats_share_their_sticks():
    torch.manual_seed(3)
    same(lambda x: (x.float() * 1.5).half(), half(16, 32))
    same(lambda x: torch.where(x > 0, x, x * 2.0), torch.randn(16, 32))
    close(lambda x: F.layer_norm(x.float(), (96,)).half(), half(16, 96))


def test_refusals_say_where_and_what_works():
    words = r"mul \(%mul.*x_1 \[64, 128\].*32 elements along dim 1.*64"
    with pytest.raises(spyre_fx.LoweringError, match=words) as info:
        lowered(lambda x: x * 2, half(64, 128), levels=[(4, [1])])
    assert "multiple of 64" in str(info.value)


@pytest.mark.parametrize("count", [2, 4, 5])
def test_products_whose_columns_are_heads_cut_at_two_levels(count):
    """The factors change places, and the axes of the op with them."""

    def fn(x, w):
        y = torch.relu(x).view(12, 16) @ w.t()
        return y.view(2, 6, 2, 4).transpose(1, 2).contiguous()

    x, w = torch.randn(2, 6, 16), torch.randn(8, 16)
    gm = spyre_fx.capture(fn, x, w)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(names[names.index("mm") :], count, [1])])
    assert tiled.graph.find_nodes(op="call_module")
    torch.testing.assert_close(spyre_fx.lower(tiled).run(x, w), fn(x, w))

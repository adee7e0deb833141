"""Attention that is written out between two products."""

from __future__ import annotations

import pytest
import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from tests.analysis.planning import check, kinds, names, traced

F = torch.nn.functional
Q, K, V = (2, 3, 16, 8), (2, 3, 32, 8), (2, 3, 32, 4)


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def attention(q, k, v, mask=None, normalize=lambda x: x.softmax(-1)):
    scores = q @ k.transpose(-1, -2) / 8**0.5
    return normalize(scores if mask is None else scores + mask) @ v


def flash(gm):
    result = check(gm)
    (item,) = (item for item in result if item.kind.value == "flash_attention")
    return result, item


@pytest.mark.parametrize("normalize", [lambda x: x.softmax(-1), softmax, lambda x: x.exp() / x.exp().sum(-1, True)])
def test_products_around_a_softmax(normalize):
    result, item = flash(traced(lambda q, k, v: attention(q, k, v, normalize=normalize), Q, K, V))
    assert kinds(result) == ["flash_attention", "shape"]  # the heads are split again
    assert names(item)[0] == "bmm"
    assert item.root.name == "bmm_1"
    assert item.shape == (6, 16, 4)
    assert item.resources.external_input_value_count == 3
    assert item.resources.static_read_bytes == 6 * (16 * 8 + 32 * 8 + 32 * 4) * 4
    assert item.resources.static_write_bytes == 6 * 16 * 4 * 4
    between = item.op_count - 2
    assert item.resources.estimated_element_ops == 2 * 6 * 16 * 32 * (8 + 4) + between * 6 * 16 * 32


def test_the_views_of_its_factors_are_inside():
    result, item = flash(traced(lambda q, k, v: attention(q, k, v), Q, K, V))
    assert {view.name for view in item.elided} >= {"transpose", "expand", "expand_1", "expand_3"}
    assert set(item.elided) <= set(result.elided)


def test_a_factor_that_is_read_elsewhere_keeps_its_view():
    def shared(q, k, v):
        keys = k.t()
        return (q @ keys).softmax(1) @ v, keys.flip(0)

    result, item = flash(traced(shared, (16, 8), (32, 8), (32, 4)))
    assert item.elided == ()
    assert kinds(result) == ["shape", "flash_attention", "shape"]


def test_a_mask_comes_from_outside():
    _, item = flash(traced(lambda q, k, v, m: attention(q, k, v, m), Q, K, V, (16, 32)))
    assert "add" in names(item)
    assert item.resources.external_input_value_count == 4


def test_a_mask_that_is_made_for_it_stays_outside():
    result, item = flash(traced(lambda q, k, v, m: attention(q, k, v, (m * 2).exp()), Q, K, V, (16, 32)))
    assert ["mul", "exp"] in [names(other) for other in result]
    assert item.resources.external_input_value_count == 4


def test_torch_own_decomposition_is_recognised():
    """Its softmax gives 0 for rows that are masked as a whole."""
    tensors = [torch.empty(shape) for shape in (Q, K, V)]
    gm = make_fx(F.scaled_dot_product_attention, core_aten_decompositions(), tracing_mode="fake")(*tensors)
    _, item = flash(gm)
    assert {"bmm", "_softmax", "where", "bmm_1"} <= set(names(item))


def test_in_plain_matrices():
    _, item = flash(traced(lambda q, k, v: (q @ k.t()).softmax(1) @ v, (16, 8), (32, 8), (32, 8)))
    assert names(item) == ["mm", "_softmax", "mm_1"]


def test_a_second_product_in_the_scores_is_an_operand():
    """As with relative positions: softmax(q k^T + q r^T) v."""
    result, item = flash(traced(lambda q, k, r, v: (q @ k.t() + q @ r.t()).softmax(1) @ v, *[(16, 8)] * 4))
    assert names(item) == ["mm", "add", "_softmax", "mm_2"]
    assert ["mm_1"] in [names(other) for other in result]


def test_a_gate_after_the_softmax_is_an_operand():
    result, item = flash(traced(lambda q, g, k, v: ((q @ g.t()) * (q @ k.t()).softmax(1)) @ v, *[(16, 8)] * 4))
    assert names(item) == ["mm_1", "_softmax", "mul", "mm_2"]
    assert ["mm"] in [names(other) for other in result]


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda q, k, v: ((p := (q @ k.t()).softmax(1)) @ v, p), id="weights are returned"),
        pytest.param(lambda q, k, v: ((s := q @ k.t()).softmax(1) @ v, s), id="scores are returned"),
        pytest.param(lambda q, k, v: (q @ k.t()).softmax(0) @ v, id="softmax over the queries"),
        pytest.param(lambda q, k, v: (q @ k.t()).relu() @ v, id="no softmax"),
        pytest.param(lambda q, k, v: (q @ k.t()).log_softmax(1) @ v, id="logarithms"),
        pytest.param(lambda q, k, v: v.t() @ (q @ k.t()).softmax(1), id="weights on the right"),
        pytest.param(lambda q, k, v: (p := (q @ k.t()).softmax(1)) @ p, id="weights on both sides"),
        pytest.param(lambda q, k, v: (q @ k.t()).softmax(1).t() @ v, id="transposed weights"),
        pytest.param(lambda q, k, v: (q @ k.t()).softmax(1).cumsum(1) @ v, id="a scan of the weights"),
        pytest.param(lambda q, k, v: (q @ k.t()).exp().prod(1, keepdim=True).expand(16, 16) @ v, id="a product"),
    ],
)
def test_what_is_not_attention(fn):
    assert "flash_attention" not in kinds(check(traced(fn, (16, 8), (16, 8), (16, 8))))


def test_scores_without_a_key_axis_are_not_attention():
    result = check(traced(lambda q, k, v: (q @ k.t()).softmax(1) @ v, (16, 8), (1, 8), (1, 8)))
    assert "flash_attention" not in kinds(result)


def test_attention_that_reads_what_is_written_later_is_left_apart():
    def overwritten(q, k, v):
        out = (q @ k.t()).softmax(1) @ v
        q.copy_(v)
        return out

    assert "flash_attention" not in kinds(check(traced(overwritten, *[(16, 8)] * 3)))

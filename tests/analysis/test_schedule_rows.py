"""Row pipelines: reductions over rows with what they feed back into the same rows."""

from __future__ import annotations

import pytest
import torch

from tests.analysis.planning import check, kinds, names, traced

F = torch.nn.functional
S = (8, 16)


def softmax(x, dim=-1):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def softmax_without_keepdim(x):
    e = (x - x.amax(-1)[:, None]).exp()
    return e / e.sum(-1).unsqueeze(-1).expand(8, 16)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def layer_norm(x, weight):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * weight


@pytest.mark.parametrize("dim", [-1, 0])
def test_written_out_softmax(dim):
    (item,) = check(traced(lambda x: softmax(x, dim), S))
    assert item.kind.value == "row_pipeline"
    assert names(item) == ["amax", "sub", "exp", "sum_1", "div"]
    assert item.resources.estimated_element_ops == 5 * 8 * 16
    assert item.resources.static_read_bytes == 2 * 8 * 16 * 4
    assert item.resources.static_write_bytes == 8 * 16 * 4
    assert item.resources.chain_operand_count == 5


def test_softmax_whose_statistics_lose_their_dim():
    """The views that bring the dim back, and the broadcast, are inside and cost nothing."""
    (item,) = check(traced(softmax_without_keepdim, S))
    assert names(item) == ["amax", "sub", "exp", "sum_1", "div"]
    assert [view.name for view in item.elided] == ["unsqueeze", "unsqueeze_1", "expand"]
    assert item.resources.chain_operand_count == 5


def test_written_out_norms():
    for norm, ops in ((rms_norm, 6), (layer_norm, 8)):
        (item,) = check(traced(norm, S, (16,)))
        assert item.kind.value == "row_pipeline"
        assert item.op_count == ops
        assert item.resources.external_input_value_count == 2


def test_a_composite_op_takes_what_is_around_it():
    (item,) = check(traced(lambda x: F.layer_norm((x * 2).softmax(-1), (16,)).relu(), S))
    assert names(item) == ["mul", "_softmax", "native_layer_norm", "relu"]


def test_two_pipelines_over_the_same_rows_are_one():
    (item,) = check(traced(lambda x, w: softmax(rms_norm(x, w)), S, (16,)))
    assert item.op_count == 6 + 5


def test_pipelines_over_different_rows_are_two():
    result = check(traced(lambda x: x.softmax(0).softmax(1), S))
    assert kinds(result) == ["row_pipeline", "row_pipeline"]


def test_several_dims_may_make_a_row():
    (item,) = check(traced(lambda x: x - x.mean((1, 2), keepdim=True), (2, 3, 4)))
    assert item.kind.value == "row_pipeline"


def test_the_whole_tensor_may_be_one_row():
    (item,) = check(traced(lambda x: x / x.sum(), S))
    assert item.kind.value == "row_pipeline"


def test_a_statistic_that_is_returned_stays_a_reduction():
    result = check(traced(lambda x: ((m := x.mean(-1, keepdim=True)), x - m), S))
    assert kinds(result) == ["reduction", "elementwise_single"]


def test_statistics_of_a_norm_that_are_returned_keep_other_ops_out():
    def norm(x):
        y, mean, _ = torch.ops.aten.native_layer_norm(x, [16], None, None, 1e-5)
        return y.relu(), mean

    assert kinds(check(traced(norm, S))) == ["row_pipeline", "elementwise_single"]


def test_statistics_that_line_up_with_another_dim_are_not_rows():
    """On a square, [8] broadcasts along the columns; the means of the rows were not meant that way."""
    result = check(traced(lambda x: x - x.mean(1), (8, 8)))
    assert kinds(result) == ["reduction", "elementwise_single"]
    result = check(traced(lambda x: x - x.mean(1).expand(8, 8), (8, 8)))
    assert kinds(result) == ["reduction", "elementwise_single"]
    (item,) = check(traced(lambda x: x - x.mean(0), (8, 8)))
    assert item.kind.value == "row_pipeline"


def test_a_statistic_of_another_tensor_is_not_a_row():
    result = check(traced(lambda x, y: x * y.sum(1, keepdim=True), S, (8, 32)))
    assert kinds(result) == ["reduction", "elementwise_single"]


def test_ops_on_a_statistic_from_outside_do_not_make_a_pipeline():
    result = check(traced(lambda x, scale: x * scale.rsqrt(), S, (8, 1)))
    assert kinds(result) == ["elementwise_single", "elementwise_single"]


def test_reducing_a_statistic_leaves_the_pipeline():
    def reduced_twice(x):
        m = x.amax(1, keepdim=True)
        return x / m.sum(0, keepdim=True)

    result = check(traced(reduced_twice, S))
    assert kinds(result) == ["reduction", "reduction", "elementwise_single"]

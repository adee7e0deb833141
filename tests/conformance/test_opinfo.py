"""A bounded part of the run over torch's operator database; ``--slow`` does one sample of every op."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.opinfo import UNDEFINED, check_op

OPS = {op.name: op for op in reversed(op_db)}
ALWAYS_TILED = (
    "add",
    "addmm",
    "all",
    "amax",
    "any",
    "bmm",
    "clamp",
    "cumsum",
    "gather",
    "index_select",
    "masked_fill",
    "mean",
    "mm",
    "nn.functional.conv2d",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.scaled_dot_product_attention",
    "prod",
    "softmax",
    "sort",
    "sum",
    "transpose",
    "tril",
    "unfold",
    "var",
    "where",
)


def verdicts(name, dtype, samples):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_op(OPS[name], dtype, samples)


@pytest.mark.parametrize("name", ALWAYS_TILED)
def test_tiled_and_never_wrong(name):
    found = verdicts(name, torch.float32, 6)
    assert not found.problems and found.counts["same"] > 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("name", ["add", "sum", "where", "cat", "mul"])
def test_other_dtypes(name, dtype):
    if dtype not in OPS[name].supported_dtypes("cpu"):
        pytest.skip("torch has no such op")
    found = verdicts(name, dtype, 6)
    assert not found.problems and found.counts["same"] + found.counts["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPS) - set(UNDEFINED)))
def test_every_op(name):
    if torch.float32 in OPS[name].supported_dtypes("cpu"):
        assert not verdicts(name, torch.float32, 1).problems

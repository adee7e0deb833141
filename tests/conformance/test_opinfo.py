"""A bounded part of the run over torch's operator database; ``--slow`` does one sample of every op."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.opinfo import (
    CHANGES,
    UNDEFINED,
    check_op,
    check_tiling,
    difference,
    made_by,
    merged,
    page,
    saved,
    sharing,
)

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


def verdicts(name, dtype, samples, data="plain"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_op(OPS[name], dtype, samples, data)


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


@pytest.mark.parametrize("data", CHANGES)
@pytest.mark.parametrize("name", ["amax", "argmax", "max", "prod", "softmax", "sort"])
def test_ties_not_numbers_and_strides(name, data):
    found = verdicts(name, torch.float32, 5, data)
    assert not found.problems and found.counts["same"] > 0


def test_a_wrong_result_is_found():
    """The check itself: other values, strides or sharing of memory, and no loop."""
    x = torch.arange(6.0).reshape(2, 3)
    assert difference(x, x.clone()) is None and difference((x,), [x]) == "structure"
    assert "differ" in difference(x, x + 1) and "strides" in difference(x, x.t().contiguous().t())
    assert "float64" in difference(x, x.double())
    assert sharing([x], [x, x.t(), x + 1]) == [(0, 0), (2, 0), (3, 3)]
    gm = make_fx(lambda x: x.cumsum(0))(x)
    assert check_tiling(gm, [x], [(["cumsum"], 2, {"x_1": 0})])[0] == "refused"
    assert check_tiling(gm, [x], [(["cumsum"], 2, {"x_1": 1})]) == ("same", "")
    assert check_tiling(gm, [x], []) == ("wrong", "no loop")


def test_the_page_that_parts_are_merged_into(tmp_path):
    found = [verdicts("cumsum", dtype, 2) for dtype in (torch.float32, torch.int64)]
    command = "python -m tests.conformance.opinfo --samples 2 --part {}/2 --save x.json"
    for number, result in enumerate(found):
        (tmp_path / f"{number}.json").write_text(saved([result], command.format(number)), encoding="utf-8")
    results, commands = merged(sorted(tmp_path.glob("*.json")))
    assert results == found
    text = page(results, made_by(commands))
    assert "opinfo --samples 2    # parts 0/2, 1/2" in text
    assert f"| cumsum | {found[0].counts['same']} same, " in text and "1 of 1 (100 %)" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPS) - set(UNDEFINED)))
def test_every_op(name):
    if torch.float32 in OPS[name].supported_dtypes("cpu"):
        assert not verdicts(name, torch.float32, 1).problems

"""Statistics of norms have the dtype that the kernels give them, not the one that fake kernels record."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from spyre_fx.analysis.fake import ensure_fake, fake_like
from spyre_fx.analysis.iteration import tensors
from spyre_fx.analysis.statistics import true_results
from spyre_fx.torch_compat import FakeTensorMode

aten = torch.ops.aten
IMAGE, ROWS = (4, 8, 6, 6), (16, 8)


def norm_calls(half: torch.dtype, kept: torch.dtype) -> dict[Any, tuple[Any, ...]]:
    """Each norm with an input of the one dtype and parameters of the other."""
    image, rows = torch.randn(IMAGE).to(half), torch.randn(ROWS).to(half)
    one, two, three, four = (torch.rand(8).to(kept) for _ in range(4))
    return {
        aten.native_layer_norm.default: (rows, [8], one, two, 1e-5),
        aten.native_group_norm.default: (image, one, two, 4, 8, 36, 2, 1e-5),
        aten._native_batch_norm_legit.no_stats: (image, one, two, True, 0.1, 1e-5),
        aten.native_batch_norm.default: (image, one, two, three, four, True, 0.1, 1e-5),
        aten._native_batch_norm_legit_functional.default: (image, one, two, three, four, True, 0.1, 1e-5),
        aten._batch_norm_with_update_functional.default: (image, one, two, three, four, 0.1, 1e-5),
    }


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", norm_calls(torch.float32, torch.float32))
def test_results_have_the_dtypes_of_the_kernel(op: Any, half: torch.dtype) -> None:
    for kept in (torch.float32, half):
        args = norm_calls(half, kept)[op]
        real = op(*copy.deepcopy(args))
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fakes = tuple(fake_like(arg, mode) if isinstance(arg, torch.Tensor) else arg for arg in args)
        with mode:
            found = true_results(op, fakes, op(*fakes))
        assert [one.dtype for one in tensors(found)] == [one.dtype for one in tensors(real)]


def test_other_ops_are_left_alone() -> None:
    value = (torch.ones(2), torch.ones(3))
    assert true_results(aten.var_mean.correction, (torch.ones(3),), value) is value


def test_a_graph_is_corrected_with_what_reads_it() -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        return aten.native_layer_norm(x, [8], weight, bias, 1e-5)

    args = torch.randn(ROWS).bfloat16(), torch.rand(8), torch.rand(8)
    gm = torch.fx.experimental.proxy_tensor.make_fx(forward, tracing_mode="fake")(*args)
    results = ensure_fake(gm).graph.output_node().args[0]
    assert [node.meta["val"].dtype for node in results] == [torch.bfloat16, torch.float32, torch.float32]

"""Rules against torch's own operator samples, forward and backward: a fixed share here, all of them with ``--slow``."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.analysis.opinfo_sweep import DTYPES, sweep

pytestmark = pytest.mark.filterwarnings("ignore")

EVERY = 9
"""One op in so many is tried without ``--slow``."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_share_of_the_samples(dtype: torch.dtype) -> None:
    chosen = [op for op in op_db[::EVERY] if dtype in op.supported_dtypes("cpu")]
    assert len(chosen) > 40
    modes = {op.formatted_name: sweep(op, dtype, limit=3) for op in chosen}
    assert [problem for mode in modes.values() for problem in mode.problems] == []
    tiled = [name for name, mode in modes.items() if any(kind == "parallel" for _, kind in mode.seen)]
    assert len(tiled) > 0.8 * len(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_samples(dtype: str) -> None:
    chosen = [op for op in op_db if getattr(torch, dtype) in op.supported_dtypes("cpu")]
    assert [problem for op in chosen for problem in sweep(op, getattr(torch, dtype), limit=30).problems] == []


@pytest.mark.slow
def test_all_samples_decomposed() -> None:
    table = torch._decomp.core_aten_decompositions()
    chosen = [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]
    assert [problem for op in chosen for problem in sweep(op, torch.float32, 12, table).problems] == []

"""Every rule holds on its example: the op on tiles gives the tiles of the op."""

from __future__ import annotations

import pytest

from spyre_fx.analysis.examples import Example, examples
from spyre_fx.analysis.iteration_space import space_of_call
from tests.analysis.oracle import check

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, on deprecated and beta ops

# kernels that this build of torch has on other devices only
ELSEWHERE = ("aten.mm.dtype", "aten.bmm.dtype", "aten.addmm.dtype", "aten._fused_rms_norm_backward.default")


def name(example: Example) -> str:
    return str(example.op).removeprefix("aten.").removesuffix(".default")


@pytest.mark.parametrize("example", [e for e in examples() if str(e.op) not in ELSEWHERE], ids=name)
def test_tiles_compose(example: Example) -> None:
    call = example.call()
    assert space_of_call(call) is not None
    assert check(call) == []


@pytest.mark.parametrize("example", [e for e in examples() if str(e.op) in ELSEWHERE], ids=name)
def test_shapes_alone(example: Example) -> None:
    assert space_of_call(example.call("meta")) is not None

"""Rewrite torch.fx graphs so that their working set fits a scratchpad or a cache."""

from spyre_fx._version import __version__
from spyre_fx.capture import capture
from spyre_fx.errors import (
    BudgetExceeded,
    CaptureError,
    DeviceError,
    HintError,
    InternalError,
    LoweringError,
    OptionError,
    SpecError,
    SpyreFxError,
    TilingError,
)
from spyre_fx.target import Target
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.tile import tile

__all__ = [
    "BudgetExceeded",
    "CaptureError",
    "CountedLoop",
    "DeviceError",
    "HintError",
    "InternalError",
    "LoopGroup",
    "LoweringError",
    "OptionError",
    "SpecError",
    "SpyreFxError",
    "Target",
    "TilingError",
    "__version__",
    "capture",
    "tile",
]

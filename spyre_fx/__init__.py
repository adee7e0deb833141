"""Rewrite torch.fx graphs so that their working set fits a scratchpad or a cache."""

from spyre_fx._version import __version__
from spyre_fx.errors import SpyreFxError, TilingError
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.tile import tile

__all__ = ["CountedLoop", "LoopGroup", "SpyreFxError", "TilingError", "__version__", "tile"]

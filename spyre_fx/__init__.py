"""Rewrite torch.fx graphs so that their working set fits a scratchpad or a cache."""

from spyre_fx._version import __version__

__all__ = ["__version__"]

"""The simulated device: what a host program sees of it."""

from __future__ import annotations

import torch

from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.program import Program
from spyre_fx.simulator.counters import Counters
from spyre_fx.target import Target


class Device:
    """HBM shared by all cores, one LX scratchpad per core, and the counters of all that was run.

    The host makes room with ``allocate``, moves tensors with ``write`` and ``read``, and starts programs with ``run``.
    Nothing outside the allocated ranges may be touched by anyone.
    """

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()
        self.counters = Counters()
        """Sum over all programs that were run."""

    def allocate(self, address: int, size_bytes: int, name: str) -> None:
        """Make room for ``size_bytes`` of HBM from ``address`` on, with undefined contents. Ranges may overlap (a pool)."""
        raise NotImplementedError

    def write(self, address: int, tensor: torch.Tensor, layout: Layout, name: str = "") -> None:
        """Copy a host tensor into HBM in ``layout``, zeros into its padding; makes room for it if there is none."""
        raise NotImplementedError

    def read(self, address: int, layout: Layout) -> torch.Tensor:
        """Copy a tensor out of HBM: contiguous, of ``layout.shape`` and the host dtype of its format."""
        raise NotImplementedError

    def run(self, program: Program) -> Counters:
        """Execute a program and return its counters. LX contents do not outlive it."""
        raise NotImplementedError

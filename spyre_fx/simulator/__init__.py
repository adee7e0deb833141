"""Runs a generated program on a simulated device. Nothing in this folder knows a graph."""

from spyre_fx.simulator.counters import Counters
from spyre_fx.simulator.device import Device

__all__ = ["Counters", "Device"]

"""Bytes moved between main memory and a scratchpad: of a graph, of the best simple schedules, and the least of any."""

from __future__ import annotations

from spyre_fx.analysis.traffic import bounds, schedules
from spyre_fx.analysis.traffic.model import compulsory_bytes, traffic, working_sets
from spyre_fx.analysis.traffic.moved import Moved, Traffic
from spyre_fx.analysis.traffic.ops import product_bound
from spyre_fx.analysis.traffic.schedules import Schedule

__all__ = [
    "Moved",
    "Schedule",
    "Traffic",
    "bounds",
    "compulsory_bytes",
    "product_bound",
    "schedules",
    "traffic",
    "working_sets",
]

"""Messages of lowering: what the device or the code generator has no form for."""

from __future__ import annotations

from spyre_fx.errors import InternalError, LoweringError, SpecError, Template

UNSUPPORTED_DTYPE = Template(
    LoweringError, "a tensor of {dtype}", "a dtype that the device stores: {known}", "cast it before the graph"
)
UNKNOWN_FORMAT = Template(SpecError, "device format {data_format!r}", "one of {known}", "correct the spec")
BAD_DIM_ORDER = Template(
    InternalError,
    "dim order {order} for shape {shape}",
    "a permutation of the dims, with -1 behind it for a sparse tensor",
    "report this graph",
)

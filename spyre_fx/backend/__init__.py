"""``torch.compile(model, backend="spyre_fx")``. Stands outside the pipeline and calls in."""

from spyre_fx.backend.compile import Backend, spyre_fx
from spyre_fx.backend.options import Options
from spyre_fx.backend.records import GraphRecord

__all__ = ["Backend", "GraphRecord", "Options", "spyre_fx"]

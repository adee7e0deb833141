"""The library's model of ATen: one iteration-space rule per op, a file per op family.

Everything else reads this table and holds no op names of its own. Importing this package fills it.
"""

from spyre_fx.analysis.rules import (
    creation,
    joining,
    layer_norm,
    lookup,
    matmul,
    pointwise,
    reductions,
    softmax,
    views,
)

__all__ = [
    "creation",
    "joining",
    "layer_norm",
    "lookup",
    "matmul",
    "pointwise",
    "reductions",
    "softmax",
    "views",
]

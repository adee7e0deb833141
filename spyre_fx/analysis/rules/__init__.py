"""The library's model of ATen: one iteration-space rule per op, a file per op family.

Everything else reads this table and holds no op names of its own. Importing this package fills it.
"""

from spyre_fx.analysis.rules import (
    along_dims,
    attention,
    batch_norm,
    convolution,
    creation,
    diagonals,
    joining,
    layer_norm,
    linalg,
    lookup,
    losses,
    matmul,
    pointwise,
    reductions,
    repeats,
    scatter,
    softmax,
    spatial,
    views,
)

__all__ = [
    "along_dims",
    "attention",
    "batch_norm",
    "convolution",
    "creation",
    "diagonals",
    "joining",
    "layer_norm",
    "linalg",
    "lookup",
    "losses",
    "matmul",
    "pointwise",
    "reductions",
    "repeats",
    "scatter",
    "softmax",
    "spatial",
    "views",
]

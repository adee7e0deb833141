"""ATen ops as device ops: one rule per op, a file per op family. An op without a rule is run by the host."""

from spyre_fx.codegen.decompose import (
    attention,
    composed,
    convolution,
    convolution_gradients,
    creation,
    extremes,
    functions,
    gradients,
    joins,
    losses,
    matmul,
    normalisation,
    pointwise,
    pooling,
    reductions,
    spread,
    views,
)
from spyre_fx.codegen.decompose.table import device_rule, lowered_ops

__all__ = [
    "attention",
    "composed",
    "convolution",
    "convolution_gradients",
    "creation",
    "device_rule",
    "extremes",
    "functions",
    "gradients",
    "joins",
    "losses",
    "lowered_ops",
    "matmul",
    "normalisation",
    "pointwise",
    "pooling",
    "reductions",
    "spread",
    "views",
]

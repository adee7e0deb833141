"""The ops that the device has: the one table of their names, for lowering, the verifier and the simulator.

Names are those of the Spyre op table; a reduction over a dim other than the stick dim has ``nonstick`` behind its name.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace


class OpKind(enum.Enum):
    """What an op does with its iteration space."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    MATMUL = "matmul"


@dataclass(frozen=True)
class DeviceOp:
    """One row of the table.

    ``identity`` is what padding must hold so that it does not change the result of a reduction; ``constants`` names the
    numbers that the op takes.
    """

    inputs: int
    kind: OpKind = OpKind.POINTWISE
    identity: float | None = None
    constants: tuple[str, ...] = ()
    stick_free: bool = False
    """The op reduces dims other than the stick dim only."""
    accumulates: bool = False
    """The op may have one input more, of the dims and the format of its output: it adds to that before it rounds."""

    @property
    def unit(self) -> str:
        """The matrix unit ``pt`` or the vector unit ``sfp``."""
        return "pt" if self.kind is OpKind.MATMUL else "sfp"

    @property
    def is_reduction(self) -> bool:
        return self.kind is not OpKind.POINTWISE

    @property
    def input_counts(self) -> tuple[int, ...]:
        """How many inputs it may have."""
        return (self.inputs, self.inputs + 1) if self.accumulates else (self.inputs,)


_UNARY = (
    "neg abs reciprocal sqrt rsqrt exp log floor tanh relufwd sigmoid silu gelufwd identity ReStickifyOpHBM "
    "dl16tofp32 fp32todl16 fp32toint32 int32tofp32"
)
_BINARY = "add sub mul realdiv maximum minimum equal notequal greaterthan greaterequal lesserthan lesserequal"
_REDUCTIONS = {
    "sum": DeviceOp(1, OpKind.REDUCTION, 0.0),
    "mean": DeviceOp(1, OpKind.REDUCTION, 0.0, ("scaling_factor",)),
    "max": DeviceOp(1, OpKind.REDUCTION, -math.inf),
    "min": DeviceOp(1, OpKind.REDUCTION, math.inf),
    "prod": DeviceOp(1, OpKind.REDUCTION, 1.0),
    "absmax": DeviceOp(1, OpKind.REDUCTION, 0.0),
}

DEVICE_OPS: dict[str, DeviceOp] = {
    **{name: DeviceOp(1) for name in _UNARY.split()},
    **{name: DeviceOp(2) for name in _BINARY.split()},
    "softplus": DeviceOp(1, constants=("softplusBeta", "softplusThresh")),
    "clip": DeviceOp(1, constants=("clipMin", "clipMax")),
    "where3": DeviceOp(3),
    "batchmatmul": DeviceOp(2, OpKind.MATMUL, 0.0, accumulates=True),
    **_REDUCTIONS,
    **{f"{name}nonstick": replace(op, stick_free=True) for name, op in _REDUCTIONS.items()},
}

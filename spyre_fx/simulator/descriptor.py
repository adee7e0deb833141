"""One SuperDSC file as an op: its dims, which core works on which slice, its operands and constants.

Every fact that the file states twice is compared here, so that a changed number does not pass unseen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from spyre_fx.codegen.device_ops import DEVICE_OPS, OpKind
from spyre_fx.errors import SpecError
from spyre_fx.errors.device import BAD_DESCRIPTOR, UNKNOWN_OP
from spyre_fx.errors.names import near
from spyre_fx.simulator.formats import decode_constant
from spyre_fx.simulator.tensors import Dim, Operand, read_operand
from spyre_fx.target import Target


@dataclass(frozen=True)
class Mask:
    """Lanes from ``start`` on of dim ``dim`` count as ``value``: they are padding."""

    dim: int
    start: int
    value: float


@dataclass(frozen=True, eq=False)
class Descriptor:
    """One op of the device, as its file describes it."""

    name: str
    file: str
    dims: tuple[Dim, ...]
    cores: int
    inputs: tuple[Operand, ...]
    output: Operand
    tensors: tuple[Operand, ...]
    """All operands in the order of the file."""
    constants: dict[str, float]
    masks: tuple[Mask, ...]

    @property
    def pointwise(self) -> bool:
        return DEVICE_OPS[self.name].kind is OpKind.POINTWISE

    @property
    def reduced(self) -> tuple[int, ...]:
        """Dims that the output lacks."""
        return tuple(position for position, carried in enumerate(self.output.carried) if not carried)


def read_descriptor(file: str, data: Mapping[str, Any], target: Target) -> Descriptor:
    """The op of a SuperDSC file; ``SpecError`` where the file is malformed or contradicts itself."""
    try:
        return _Reader(file, data, target).op()
    except SpecError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        found = f"{type(error).__name__} {error} while reading it"
        raise BAD_DESCRIPTOR(file=file, found=found, wanted="the structure of a SuperDSC file") from error


class _Reader:
    def __init__(self, file: str, data: Mapping[str, Any], target: Target) -> None:
        self.file, self.target = file, target
        ((_, self.root),) = data.items()
        ((self.name, self.body),) = self.root["dscs_"][0].items()

    def op(self) -> Descriptor:
        if self.name not in DEVICE_OPS:
            raise UNKNOWN_OP(file=self.file, op=self.name, near=near(self.name, DEVICE_OPS))
        dims = self._dims()
        slices = self._slices(dims)
        compute = self.body["computeOp_"][0]
        self._same("op name", compute["opFuncName"], self.name)
        nodes, described = self.body["scheduleTree_"], self.body["labeledDs_"]
        self._same("number of tensors", len(described), len(nodes))
        tensors = tuple(
            read_operand(node, self.body, dims, slices, self._same, self.target.stick_bytes) for node in nodes
        )
        inputs = tuple(tensors[_position(name)] for name in compute["inputLabeledDs"])
        (output,) = (tensors[_position(name)] for name in compute["outputLabeledDs"])
        constants = self._constants()
        return Descriptor(
            name=self.name,
            file=self.file,
            dims=dims,
            cores=len(slices),
            # A reduction lists its output among its inputs: the accumulator, which starts from the identity.
            inputs=tuple(operand for operand in inputs if operand is not output),
            output=output,
            tensors=tensors,
            constants=constants,
            masks=self._masks(dims, constants),
        )

    def _dims(self) -> tuple[Dim, ...]:
        extents, splits = self.body["N_"], self.root["numWkSlicesPerDim_"]
        stages = self.body["dataStageParam_"]["0"]
        labels = [key.removesuffix("_") for key in extents if key not in ("name_", "paddingSizes_")]
        dims = tuple(Dim(label, int(extents[f"{label}_"]), int(splits[label])) for label in labels)
        self._same("dims of the work slices", sorted(splits), sorted(labels))
        for dim in dims:
            if dim.extent < 1 or dim.split < 1 or dim.extent % dim.split:
                self._refuse(f"dim {dim.label!r} of {dim.extent} over {dim.split} cores", "equal, whole slices")
            for stage in ("ss_", "el_"):
                self._same(f"core slice of {dim.label!r}", int(stages[stage][f"{dim.label}_"]), dim.core_extent)
        return dims

    def _slices(self, dims: tuple[Dim, ...]) -> torch.Tensor:
        """``[cores, dims]``: which slice of each dim a core works on."""
        cores = math.prod(dim.split for dim in dims)
        if cores > self.target.cores:
            self._refuse(f"work for {cores} cores", f"at most {self.target.cores} of them")
        table = self.root["coreIdToWkSlice_"]
        for name, found in (
            ("numCoresUsed_", self.root["numCoresUsed_"]),
            ("numCoresUsed_ of the op", self.body["numCoresUsed_"]),
            ("coreFoldProp_", self.root["coreFoldProp_"]["factor_"]),
            ("number of work slices", len(table)),
        ):
            self._same(name, found, cores)
        rows = [[int(table[str(core)][dim.label]) for dim in dims] for core in range(cores)]
        whole = len({tuple(row) for row in rows}) == cores
        inside = all(0 <= at < dim.split for row in rows for at, dim in zip(row, dims, strict=True))
        if not (whole and inside):
            self._refuse("core slices that repeat or lie outside", "each slice on one core")
        return torch.tensor(rows, dtype=torch.int64).reshape(cores, len(dims))

    def _constants(self) -> dict[str, float]:
        info = self.body["constantInfo_"]
        entries = json.loads(info) if isinstance(info, str) else info
        return {
            entry["name_"]: decode_constant(entry["dataFormat_"], int(next(iter(entry["data_"]["data_"].values()))[0]))
            for entry in entries.values()
        }

    def _masks(self, dims: tuple[Dim, ...], constants: Mapping[str, float]) -> tuple[Mask, ...]:
        labels = [dim.label for dim in dims]
        return tuple(
            Mask(labels.index(label), int(start), constants["samv-maskvalue"])
            for label, spans in self.body["coordinateMasking_"].items()
            for start, _ in spans
        )

    def _same(self, name: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            self._refuse(f"{name} is {found!r}", f"{wanted!r}, as the rest of the file says")

    def _refuse(self, found: str, wanted: str) -> None:
        raise BAD_DESCRIPTOR(file=self.file, found=found, wanted=wanted)


def _position(labeled: str) -> int:
    """``"Tensor2-idx2"`` is tensor 2."""
    return int(labeled.rpartition("idx")[2])

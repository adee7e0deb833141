"""Where the elements of an operand are, from SuperDSC data alone.

An operand is a grid of sticks over the op's dims. Its address on a core is the value of its symbol plus the offset of
the core's slice; within the slice each dim has a step in bytes, which follows from the extents of the buffer (iteration
extent plus gap), innermost dim first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Same = Callable[[str, Any, Any], None]
"""Refuses the file where two facts differ: ``same(what, found, wanted)``."""


@dataclass(frozen=True)
class Dim:
    """One dim of the iteration space, in elements; ``split`` cores divide it."""

    label: str
    extent: int
    split: int

    @property
    def core_extent(self) -> int:
        return self.extent // self.split


@dataclass(frozen=True, eq=False)
class Operand:
    """One tensor of an op. Tuples over dims follow the order of the op's dims; grids and tensors count sticks."""

    name: str
    memory: Literal["hbm", "lx"]
    data_format: str
    word: int
    """Bytes of one element."""
    lanes: int
    """Elements of one stick."""
    carried: tuple[bool, ...]
    """Whether the tensor has the dim; else it is broadcast along it, or reduced."""
    stick: int | None
    """The dim along which sticks are filled, or None: one value per stick, in the first lane."""
    grid: tuple[int, ...]
    """Sticks of the whole op along each dim."""
    starts: torch.Tensor
    """Per core: index into ``symbols`` for HBM, byte address for LX."""
    symbols: tuple[int, ...]
    """Distinct symbol ids, HBM only."""
    offsets: torch.Tensor
    """Per core, HBM only: bytes from the address that its symbol stands for."""
    slice_offsets: torch.Tensor
    """Per core: bytes from the start of the first slice of all dims."""
    owner: torch.Tensor
    """Per slice of the carried dims (``[split or 1, ...]``): the first core that works on it."""
    first_core: torch.Tensor
    """Per core: the first core that works on the same slice of this operand."""
    local: torch.Tensor
    """Stick offsets within a core's slice, ``[sticks per core along each dim]``."""
    origins: torch.Tensor
    """Per core: the number, within the whole value, of the first stick of its slice."""
    local_places: torch.Tensor
    """The same for each stick of a slice, counted from its first; shaped as ``local``."""
    windowed: bool
    """Whether the tensor is part of a larger buffer, so that numbers of sticks do not count from its start."""

    @property
    def core_sticks(self) -> int:
        return self.local.numel()

    @property
    def span(self) -> int:
        """Sticks from the first to the last one of a core's slice, holes included."""
        return int(self.local.max()) + 1

    @property
    def valid_bytes(self) -> int:
        """Bytes that are read or written of each stick."""
        return self.word if self.stick is None else self.word * self.lanes

    def addresses(self, values: Mapping[int, int]) -> torch.Tensor:
        """Byte address of the first stick of each core's slice, given the values of the symbols."""
        if self.memory == "lx":
            return self.starts
        return torch.tensor([values[symbol] for symbol in self.symbols])[self.starts] + self.offsets

    def spread(self, per_core: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
        """``per_core[core of the point] + local[place in its slice]`` at each grid point, flat."""
        outer = per_core[self.owner].reshape([size for split in self.owner.shape for size in (split, 1)])
        inner = local.reshape([size for extent in local.shape for size in (1, extent)])
        return (outer + inner).flatten()

    def values(self, lanes: torch.Tensor) -> torch.Tensor:
        """``[sticks, lanes]`` by grid point as a tensor over the op's dims, of size 1 where the operand lacks one."""
        if self.stick is None:
            return lanes[:, 0].reshape(self.grid)
        filled = lanes.reshape(*self.grid, self.lanes).movedim(-1, self.stick + 1)
        return filled.flatten(self.stick, self.stick + 1)

    def lanes_of(self, values: torch.Tensor) -> torch.Tensor:
        """The inverse of ``values``."""
        if self.stick is None:
            return values.reshape(-1, 1)
        shape = values.shape
        cut = values.reshape(*shape[: self.stick], -1, self.lanes, *shape[self.stick + 1 :])
        return cut.movedim(self.stick + 1, -1).reshape(-1, self.lanes)


def read_operand(
    node: Mapping[str, Any],
    body: Mapping[str, Any],
    dims: Sequence[Dim],
    slices: torch.Tensor,
    same: Same,
    stick_bytes: int,
) -> Operand:
    """The operand of one node of ``scheduleTree_``; ``slices`` is ``[cores, dims]``."""
    described = body["labeledDs_"][node["ldsIdx_"]]
    label = body["primaryDsInfo_"][described["dsType_"]]
    name, memory, word = described["dsName_"], node["component_"], int(described["wordLength"])
    lanes = stick_bytes // word
    same(f"stick size of {name}", label["stickSize_"], [lanes])
    scales = dict(zip(label["layoutDimOrder_"], described["scale_"], strict=True))
    order = [axis for axis in node["layoutDimOrder_"] if scales[axis] > 0]
    carried = tuple(dim.label in order for dim in dims)
    same(f"dims of {name}", sum(carried), len(order))
    (filled,) = label["stickDimOrder_"] or (None,)
    stick = filled if filled in order else None

    def sticks(axis: str, extent: int) -> int:
        if axis != stick:
            return extent
        same(f"lanes left over in {name} along {axis!r}", extent % lanes, 0)
        return extent // lanes

    gaps = {axis: _gap(node, axis, memory) for axis in order}
    same(f"negative gaps of {name}", [axis for axis in order if gaps[axis] < 0], [])
    core = {dim.label: sticks(dim.label, dim.core_extent) for dim in dims if dim.label in order}
    whole = {dim.label: sticks(dim.label, dim.extent) for dim in dims if dim.label in order}
    split = {dim.label: dim.split for dim in dims}
    for dim in dims:
        if dim.label in order:
            _check_folds(node, dim, name, same)
    gap = {axis: sticks(axis, gaps[axis]) for axis in order}
    # A core's LX holds its slice alone; HBM holds the whole buffer.
    steps = _steps(order, {axis: (core if memory == "lx" else whole)[axis] + gap[axis] for axis in order})
    place_gap = {axis: gap[axis] * (split[axis] if memory == "lx" else 1) for axis in order}
    place_steps = _steps(order, {axis: whole[axis] + place_gap[axis] for axis in order})

    labels = [dim.label for dim in dims]
    extents = [core.get(axis, 1) for axis in labels]
    grid = tuple(whole.get(axis, 1) for axis in labels)
    slice_offsets = _core_offsets(slices, [core.get(axis, 0) * steps.get(axis, 0) for axis in labels])
    origins = _core_offsets(slices, [core.get(axis, 0) * place_steps.get(axis, 0) for axis in labels])
    cores = len(slices)
    codes = node["startAddressCoreCorelet_"]["data_"]
    starts = [int(codes[f"[{core_id}, 0, 0]"]) for core_id in range(cores)]
    symbols = tuple(dict.fromkeys(starts)) if memory == "hbm" else ()
    offsets = slice_offsets
    if memory == "hbm":
        first = {symbol: starts.index(symbol) for symbol in symbols}
        offsets = slice_offsets - slice_offsets[[first[symbol] for symbol in starts]]
        starts = [symbols.index(symbol) for symbol in starts]
    owner = _owners(slices, dims, carried)
    return Operand(
        name=name,
        memory=memory,
        data_format=described["dataFormat_"],
        word=word,
        lanes=lanes,
        carried=carried,
        stick=labels.index(stick) if stick is not None else None,
        grid=grid,
        starts=torch.tensor(starts),
        symbols=symbols,
        offsets=offsets * stick_bytes,
        slice_offsets=slice_offsets * stick_bytes,
        owner=owner,
        first_core=owner[tuple((slices * torch.tensor(carried)).T)],
        local=_grid(extents, [steps.get(axis, 0) for axis in labels]),
        origins=origins,
        local_places=_grid(extents, [place_steps.get(axis, 0) for axis in labels]),
        windowed=any(gaps.values()),
    )


def _gap(node: Mapping[str, Any], axis: str, memory: str) -> int:
    """Elements of the buffer beyond the iteration extent; those of LX stand per core, and are equal."""
    found = node["backGapCore_"].get(axis, {}) if "backGapCore_" in node else {}
    gaps = {int(gap) for gap in found.values()}
    if len(gaps) > 1:
        raise ValueError(f"gaps {sorted(gaps)} that differ from core to core")
    return gaps.pop() if gaps else 0


def _check_folds(node: Mapping[str, Any], dim: Dim, name: str, same: Same) -> None:
    folds = node["coordinates_"]["coordInfo"][dim.label]["folds"]
    same(f"core fold of {name} along {dim.label!r}", folds["dim_prop_attr"][0]["factor_"], dim.split)
    same(f"core step of {name} along {dim.label!r}", folds["dim_prop_func"][0]["Affine"]["alpha_"], dim.core_extent)


def _steps(order: Sequence[str], extents: Mapping[str, int]) -> dict[str, int]:
    """Sticks per step along each dim, for dims given innermost first."""
    return {axis: math.prod(extents[inner] for inner in order[:position]) for position, axis in enumerate(order)}


def _core_offsets(slices: torch.Tensor, steps: Sequence[int]) -> torch.Tensor:
    return (slices * torch.tensor(steps, dtype=torch.int64)).sum(1)


def _grid(extents: Sequence[int], steps: Sequence[int]) -> torch.Tensor:
    """``sum(index * step)`` at every point of a grid."""
    total = torch.zeros([1] * len(extents), dtype=torch.int64)
    for axis, (extent, step) in enumerate(zip(extents, steps, strict=True)):
        shape = [1] * len(extents)
        shape[axis] = extent
        total = total + (torch.arange(extent) * step).reshape(shape)
    return total


def _owners(slices: torch.Tensor, dims: Sequence[Dim], carried: Sequence[bool]) -> torch.Tensor:
    """The first core that works on each slice of the carried dims."""
    shape = [dim.split if has else 1 for dim, has in zip(dims, carried, strict=True)]
    steps = [math.prod(shape[position + 1 :]) if has else 0 for position, has in enumerate(carried)]
    at = (slices * torch.tensor(steps)).sum(1)
    none = torch.full([math.prod(shape)], len(slices))
    return none.scatter_reduce(0, at, torch.arange(len(slices)), "amin").reshape(shape)

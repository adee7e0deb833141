"""One operand of one dispatch: its bytes fetched and stored, with every check that the tags allow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spyre_fx.errors.device import DIFFERENT_COPIES, LX_OVERFLOW, MISALIGNED, OTHER_CORE, WRONG_START
from spyre_fx.simulator.formats import Codec
from spyre_fx.simulator.memory import Blame, Hbm, Lx, Names, Sticks, Tag, first
from spyre_fx.simulator.tensors import Operand
from spyre_fx.target import Target


@dataclass(frozen=True)
class Machine:
    """The memories of one program run."""

    target: Target
    hbm: Hbm
    lx: Lx
    names: Names
    codec: Codec

    @property
    def shadowed(self) -> bool:
        """Whether memory also keeps what float32 arithmetic would have stored."""
        return self.target.dtype == "dlfloat16"


@dataclass(frozen=True)
class Numbers:
    """The values of an operand, and what they would be if nothing had been rounded below float32."""

    actual: Tensor
    shadow: Tensor | None = None


@dataclass(frozen=True)
class Access:
    """Where an operand is in one dispatch."""

    machine: Machine
    operand: Operand
    starts: Tensor
    """Byte address of the first stick of each core's slice; in LX, within the core's scratchpad."""
    value: str
    """Name of the buffer, or ``""``."""
    where: str
    """Names op, file and trips."""

    def fetch(self) -> Numbers:
        """Read the operand, over all dims of the op."""
        sticks, index = self._located()
        if self.operand.memory == "lx":
            self._check_lx(sticks)
        else:
            self._check(sticks, index, self._blame_grid(index))
        operand = self.operand
        raw = sticks.bytes.index_select(0, index)[:, : operand.valid_bytes]
        actual = operand.values(self.machine.codec.decode(raw.contiguous(), operand.data_format))
        if not self.machine.shadowed:
            return Numbers(actual)
        if not actual.is_floating_point():
            return Numbers(actual, actual)
        lanes = operand.valid_bytes // operand.word
        return Numbers(actual, operand.values(sticks.shadow.index_select(0, index)[:, :lanes]))

    def store(self, numbers: Numbers, dispatch: int, *, every_core: bool) -> None:
        """Write the operand.

        Args:
            every_core: each core's LX gets a copy, also where several cores work on one slice; else the first one's.
        """
        sticks, index = self._located()
        operand = self.operand
        raw = self.machine.codec.encode(operand.lanes_of(numbers.actual), operand.data_format)
        places = operand.spread(operand.origins, operand.local_places).to(torch.int32)
        tag = Tag(self.machine.names.number(self.value), dispatch)
        sticks.store(index, raw, tag, -1 - places if operand.windowed else places)
        if numbers.shadow is not None:
            lanes = operand.lanes_of(numbers.shadow.to(torch.float32))
            sticks.shadow[:, : lanes.shape[-1]].index_copy_(0, index, lanes)
        if operand.memory == "lx" and every_core and operand.owner.numel() < len(self.starts):
            self._copy_to_every_core(sticks)

    def _located(self) -> tuple[Sticks, Tensor]:
        """The memory, and the stick of each grid point in it."""
        stick = self.machine.target.stick_bytes
        low, high = int(self.starts.min()), int(self.starts.max()) + self.operand.span * stick
        misaligned = self.starts % stick != 0
        if misaligned.any():
            core = first(misaligned)
            where, address = self._at(core), int(self.starts[core])
            raise MISALIGNED(where=where, memory=self.operand.memory.upper(), address=address, stick=stick)
        if self.operand.memory == "lx":
            capacity = self.machine.target.usable_lx_bytes
            if low < 0 or high > capacity:
                raise LX_OVERFLOW(where=self._at(0), low=low, high=high, capacity=capacity)
            return self.machine.lx.sticks, self.operand.spread(self._lx_starts(), self.operand.local)
        wanted = self.starts[0] + self.operand.slice_offsets - self.operand.slice_offsets[0]
        if not torch.equal(wanted, self.starts):
            core = first(wanted != self.starts)
            raise WRONG_START(where=self._at(core), address=int(self.starts[core]), wanted=int(wanted[core]))
        sticks, base = self.machine.hbm.sticks(low, high, self._outside)
        return sticks, self.operand.spread((self.starts - base) // stick, self.operand.local)

    def _outside(self) -> str:
        """Names the first core whose part is in no allocation."""
        size = self.operand.span * self.machine.target.stick_bytes
        lost = (core for core, low in enumerate(self.starts.tolist()) if not self.machine.hbm.has(low, low + size))
        return self._at(next(lost, 0))

    def _lx_starts(self) -> Tensor:
        cores = torch.arange(len(self.starts))
        return cores * self.machine.lx.sticks_per_core + self.starts // self.machine.target.stick_bytes

    def _lx_index(self) -> Tensor:
        """``[cores, sticks per core]``, also for cores that work on the same slice."""
        return self._lx_starts()[:, None] + self.operand.local.flatten()

    def _check(self, sticks: Sticks, index: Tensor, blame: Blame) -> None:
        machine = self.machine
        value = machine.names.number(self.value)
        sticks.check(index, self.operand.valid_bytes, value, machine.names.names, blame)

    def _check_lx(self, sticks: Sticks) -> None:
        """Every core must find the part of the value that it works on in its own scratchpad."""
        index = self._lx_index()
        self._check(sticks, index.flatten(), self._blame_cores(index))
        tags = sticks.place.index_select(0, index.flatten()).reshape(index.shape)
        # A window's writer does not know where the buffer starts: its numbers are right up to a constant.
        from_window = tags < 0
        found = torch.where(from_window, -1 - tags, tags)
        wanted = (self.operand.origins[:, None] + self.operand.local_places.flatten()).to(torch.int32)
        shift = found - wanted
        wrong = shift != shift[:1]
        if not self.operand.windowed:
            wrong |= (shift != 0) & ~from_window
        if wrong.any():
            position = first(wrong)
            where = self._blame_cores(index)(position)
            raise OTHER_CORE(where=where, found=int(found.flatten()[position]), wanted=int(wanted.flatten()[position]))
        if self.operand.owner.numel() == len(self.starts):
            return
        dispatch = sticks.dispatch[index]
        other = dispatch != dispatch[self.operand.first_core]
        if other.any():
            raise DIFFERENT_COPIES(where=self._blame_cores(index)(first(other)))

    def _copy_to_every_core(self, sticks: Sticks) -> None:
        index = self._lx_index()
        source, target = index[self.operand.first_core].flatten(), index.flatten()
        for field in ("bytes", "valid", "value", "dispatch", "place", "shadow"):
            memory = getattr(sticks, field)
            memory[target] = memory[source]

    def _at(self, core: int) -> str:
        name = f" {self.value!r}" if self.value else ""
        return f"{self.where}, {self.operand.name}{name}, core {core}"

    def _blame_grid(self, index: Tensor) -> Blame:
        """For an index by grid point."""

        def blame(position: int) -> str:
            cores = self.operand.spread(torch.arange(len(self.starts)), torch.zeros_like(self.operand.local))
            offset = self.operand.spread(torch.zeros_like(self.starts), self.operand.local)[position]
            core = int(cores[position])
            address = int(self.starts[core] + offset * self.machine.target.stick_bytes)
            return f"{self._at(core)}, {self.operand.memory.upper()} address {address:#x}"

        return blame

    def _blame_cores(self, index: Tensor) -> Blame:
        """For an index by core and stick."""

        def blame(position: int) -> str:
            core, stick = divmod(position, index.shape[1])
            address = int(self.starts[core] + self.operand.local.flatten()[stick] * self.machine.target.stick_bytes)
            return f"{self._at(core)}, LX address {address:#x}"

        return blame

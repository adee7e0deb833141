"""The simulated device: what a host program sees of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from spyre_fx.codegen.layout import Layout, word_bytes
from spyre_fx.codegen.program import Program
from spyre_fx.simulator import host
from spyre_fx.simulator.access import Machine
from spyre_fx.simulator.counters import Counters
from spyre_fx.simulator.formats import Codec
from spyre_fx.simulator.interpreter import Interpreter
from spyre_fx.simulator.loading import load
from spyre_fx.simulator.memory import Hbm, Lx, Names, Sticks, Tag
from spyre_fx.target import Target


class Device:
    """HBM shared by all cores, one LX scratchpad per core, and the counters of all that was run.

    The host makes room with ``allocate``, moves tensors with ``write`` and ``read``, and starts programs with ``run``.
    Nothing outside the allocated ranges may be touched by anyone.
    """

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()
        self.counters = Counters()
        """Sum over all programs that were run."""
        self._hbm = Hbm(self.target)
        self._names = Names()
        self._codec = Codec(self.target.dtype)
        self._runs = 0

    def allocate(self, address: int, size_bytes: int, name: str) -> None:
        """Make room for ``size_bytes`` of HBM from ``address`` on, with undefined contents. Ranges may overlap.

        Raises:
            DeviceError: for a range outside HBM, or one that crosses segments.
        """
        self._hbm.allocate(address, address + size_bytes, name)

    def write(
        self, address: int, tensor: torch.Tensor, layout: Layout, name: str = "", part: Sequence[int] | None = None
    ) -> None:
        """Copy a host tensor into HBM, zeros into its padding; makes room for it if there is none.

        Args:
            address: of the buffer, in bytes.
            tensor: of ``layout.shape``, or of other dims with as many elements, which the host reshapes.
            name: of the buffer, for tags and messages.
            part: sizes of the tensor, if it fills only the first elements of each dim; the rest stays undefined.

        Raises:
            SpecError: for a tensor of another size.
        """
        numbers = host.pack(tensor if part is None else host.spread(tensor, part, layout), layout)
        sticks, index = self._whole(address, layout, name)
        tag = Tag(self._names.number(name), dispatch=0)
        places = torch.arange(len(index), dtype=torch.int32)
        if part is not None:
            places = host.touched(part, layout).to(torch.int32)
            numbers, index = numbers[places], index[places]
        raw = self._codec.encode(numbers, layout.data_format)
        sticks.store(index, raw, tag, places)
        if sticks.shadow.shape[1]:
            sticks.shadow[index, : numbers.shape[1]] = numbers.to(torch.float32)

    def read(self, address: int, layout: Layout, name: str = "", part: Sequence[int] | None = None) -> torch.Tensor:
        """Copy a tensor out of HBM: contiguous, of ``layout.shape`` or ``part``, halves for truth values.

        Raises:
            DeviceError: for bytes that nobody has written.
        """
        sticks, index = self._whole(address, layout, name)
        places = None if part is None else host.touched(part, layout)
        index = index if places is None else index[places]
        value = self._names.number(name)
        sticks.check(index, _wanted(layout), value, self._names.names, lambda _: f"host read of {name!r}")
        raw = sticks.bytes.index_select(0, index)
        numbers = self._codec.decode(raw, layout.data_format)
        if part is None or places is None:
            return host.unpack(numbers, layout).contiguous()
        whole = numbers.new_zeros(math.prod(layout.device_size[:-1]), numbers.shape[1])
        whole[places] = numbers
        return host.unpack(whole, layout)[tuple(map(slice, part))].contiguous()

    def run(self, program: Program, parameters: Mapping[str, int] | None = None) -> Counters:
        """Execute a program. LX contents do not outlive it.

        Args:
            parameters: value of each parameter of the program: addresses of arguments, sizes.

        Returns:
            the counters of this run; ``counters`` sums up all runs.

        Raises:
            DeviceError: for an access that the hardware would answer with garbage.
            SpecError: for a program or file that is malformed or contradicts itself.
        """
        loaded = load(program, parameters or {}, self.target, self._runs)
        with _one_thread():
            counters = Interpreter(loaded, self.machine(loaded.lx_bytes), self._runs).run()
        self._runs += 1
        self.counters.add(counters)
        return counters

    def machine(self, lx_bytes: int) -> Machine:
        """The memories as a program meets them: HBM as it is, ``lx_bytes`` of undefined LX on each core."""
        return Machine(self.target, self._hbm, Lx(self.target, lx_bytes), self._names, self._codec)

    def _whole(self, address: int, layout: Layout, name: str) -> tuple[Sticks, torch.Tensor]:
        """The segment and the sticks of a whole buffer."""
        end = address + layout.size_bytes
        if not self._hbm.has(address, end):
            self._hbm.allocate(address, end, name)
        sticks, base = self._hbm.sticks(address, end, lambda: f"host access to {name!r}")
        stick = self.target.stick_bytes
        return sticks, torch.arange((address - base) // stick, (end - base) // stick)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Sums whose order does not depend on the host, and no waiting for other threads in thousands of small steps."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _wanted(layout: Layout) -> int:
    """Bytes of each stick that hold elements: the first ones of a tensor no wider than a stick, else all."""
    width = layout.shape[layout.stick_dim] if layout.stick_dim >= 0 else 1
    return min(width, layout.lanes) * word_bytes(layout.data_format)

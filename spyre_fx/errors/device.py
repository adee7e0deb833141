"""Messages of the simulated device. ``where`` names op, file, trips, tensor, core and address."""

from __future__ import annotations

from spyre_fx.errors import DeviceError, SpecError, Template

UNWRITTEN = Template(
    DeviceError,
    "{where} reads bytes that were never written",
    "bytes that the host or an earlier op has written",
    "check the address and the order of the ops, or write the argument before the run",
)
DEAD = Template(
    DeviceError,
    "{where} reads bytes of a buffer whose life has ended",
    "a buffer that is written again before it is read, or that the loop carries",
    "check lifetimes: the buffer is written anew in every trip or program",
)
PARTIAL = Template(
    DeviceError,
    "{where} reads {wanted} bytes of a stick of which {found} are valid",
    "a whole stick, as a dense tensor has",
    "read the tensor as sparse (one value per stick), or write whole sticks",
)
FOREIGN = Template(
    DeviceError,
    "{where} reads bytes of {found!r}",
    "bytes of {wanted!r}",
    "give the two buffers different addresses while both are alive",
)
OTHER_CORE = Template(
    DeviceError,
    "{where} reads stick {found} of the value where stick {wanted} belongs",
    "the stick that this core wrote itself, since a scratchpad is private",
    "divide the reader's work over the cores as the writer's, or keep the value in HBM",
)
DIFFERENT_COPIES = Template(
    DeviceError,
    "{where} reads another copy of the value than the other cores",
    "equal copies on all cores that work on one slice",
    "write all copies by one op, or keep the value in HBM",
)
OUT_OF_BOUNDS = Template(
    DeviceError,
    "{where} touches {memory} bytes {low:#x} to {high:#x}",
    "a range inside one allocation",
    "check strides, trip counts and offsets, or allocate the buffer before the run",
)
LX_OVERFLOW = Template(
    DeviceError,
    "{where} touches LX bytes {low} to {high}",
    "at most the {capacity} bytes that one core may use",
    "use smaller tiles, more cores, or keep the value in HBM",
)
MISALIGNED = Template(
    DeviceError,
    "{where} starts at {memory} address {address:#x}",
    "an address on a boundary of {stick} bytes",
    "advance by whole sticks",
)
WRONG_START = Template(
    DeviceError,
    "{where} starts at HBM address {address:#x}",
    "{wanted:#x}, where its slice begins as core 0 sees the buffer; no two cores may share a byte that one writes",
    "check the core slices and the symbol ids",
)
UNKNOWN_OP = Template(
    SpecError, "{file}: op {op!r}", "an op of the device{near}", "leave this op to the host, or correct the file"
)
WRONG_OPERANDS = Template(SpecError, "{where}: {found}", "{wanted}", "check the operands of the op and their dims")
BAD_DESCRIPTOR = Template(SpecError, "{file}: {found}", "{wanted}", "generate the file again")
UNRUNNABLE = Template(SpecError, "{found}", "{wanted}", "generate the program again")
BAD_ARGUMENT = Template(
    SpecError, "{found} for a buffer", "{wanted}", "pass the tensor that the buffer is laid out for"
)

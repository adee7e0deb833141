"""Messages of the verifiers of specs and programs, of the SuperDSC writer and of saved bundles."""

from __future__ import annotations

from spyre_fx.errors import LoweringError, SpecError, Template

BAD_SPEC = Template(SpecError, "{found} in {where}", "{expected}", "{do}")
"""A rule of the spec verifier that is broken; ``where`` names op, loop path and origin."""

NOT_A_FOLDER = Template(
    SpecError,
    "a folder given as an object of type {found}",
    "the path of a folder, as a string or a pathlib.Path",
    "pass the path",
)
NOT_A_BUNDLE = Template(
    SpecError,
    "a bundle compared with an object of type {found}",
    "another Bundle",
    "pass what spyre_fx.lower or Bundle.load returned",
)

UNKNOWN_OP = Template(
    LoweringError,
    "device op {op!r} in {where}",
    "an op of the device's table{near}",
    "decompose it into ops of the table, or run it on the host",
)
TOO_MANY_DIMS = Template(
    LoweringError,
    "{rank} iteration dims in {where}",
    "at most {limit}, the number of dim labels that the device has for this op",
    "merge dims, or split the op",
)
TOO_MANY_LAYOUTS = Template(
    LoweringError,
    "{count} different layouts among the tensors of {where}",
    "at most {limit}, the number of layout labels",
    "copy an operand to the layout of another",
)
BAD_COORDINATE = Template(
    LoweringError,
    "device coordinate {coordinate} at dim {dim} of {tensor} in {where}",
    "an iteration symbol plus a constant, floor(symbol/{lanes}), Mod(symbol, {lanes}) as the lane, or a constant",
    "refine the iteration space so that each device dim has a symbol of its own",
)
SUB_STICK = Template(
    LoweringError,
    "lane {coordinate} of {tensor} in {where}",
    "a window that begins at a whole stick of {lanes} elements, since no lane shift exists",
    "choose tile sizes and offsets that are multiples of {lanes}, or copy the operand to another layout",
)
NEGATIVE_GAP = Template(
    SpecError,
    "dim {dim} of {tensor} in {where} has {device} device elements for {needed} iterations (whole sticks included)",
    "a buffer at least as large as the iteration space",
    "pad the buffer to {needed}",
)
LX_GAP = Template(
    SpecError,
    "dim {dim} of {tensor} in {where} is split over cores and lies in LX with a gap of {gap}",
    "an LX buffer of exactly the tile's size along a split dim",
    "leave the dim unsplit, or place the buffer in HBM",
)
UNCUT = Template(
    SpecError,
    "the host op {op!r} inside a device program",
    "programs of device ops only",
    "cut the graph in two at that op",
)
SYMBOLIC_COUNT = Template(
    LoweringError,
    "the loop count {count}",
    "a positive int, a symbol, or a symbol divided by an int, with bounds for the symbol",
    "give the loop a fixed count or bounds",
)
SYMBOLIC_UNROLL = Template(
    LoweringError,
    "the loop count {count} in a program to unroll",
    "a fixed number of trips",
    "do not unroll this graph",
)
BAD_PROGRAM = Template(SpecError, "{found} at {where}", "{expected}", "report this program if this library made it")
DISPATCHES_DIFFER = Template(
    SpecError, "{looped} dispatches in loops and {flat} unrolled", "as many", "check the counts of the loops"
)
FILES_DIFFER = Template(
    SpecError,
    "dispatch {position} runs another op in the loop ({looped}) than unrolled ({flat})",
    "the same op in both forms",
    "check the files of the program",
)
ADDRESSES_DIFFER = Template(
    SpecError,
    "dispatch {position} ({file} at trips {trips}) has operand {operand} at byte {looped} in the loop and at {flat} "
    "unrolled",
    "the same address in both forms",
    "check the advances of the op",
)
MLIR_SYNTAX = Template(SpecError, "{file}: {problem}", "the MLIR of a bundle", "save the bundle again")
XDSL_MISSING = Template(SpecError, "no xDSL to read MLIR with ({reason})", "xdsl 0.75", "pip install 'spyre-fx[mlir]'")
BAD_FILE = Template(SpecError, "{file}: {problem}", "{expected}", "save the bundle again")
NO_SYNTAX = Template(SpecError, "MLIR syntax {syntax!r}", "'spyre' or 'generic'", "pass one of these")
NOT_SAVABLE = Template(
    SpecError,
    "{what} in host step {step}, which no file can hold",
    "an op of torch.ops, or a loop of such ops, with plain arguments",
    "run this bundle in memory, or tile the graph so that the device runs the op",
)
STRUCTURE_NOT_SAVABLE = Template(
    SpecError,
    "{what} of the structure {structure}, which no file can hold",
    "tuples, lists, dicts with plain keys, and classes that torch.utils._pytree knows under a serialized_type_name",
    "run this bundle in memory, register the class under such a name, or take and return its parts instead",
)
BAD_INPUT = Template(SpecError, "{found}", "{expected}", "call the bundle as the graph that it was lowered from")
BAD_SIZE = Template(
    SpecError,
    "size {size} of dim {dim} of {name!r}",
    "a multiple of {multiple} from {multiple} to {largest}",
    "pad the input, or tile the graph by tiles that divide the size",
)
UNKNOWN_VALUE = Template(
    SpecError,
    "the value {name!r}, which no step makes and no argument holds",
    "steps in an order in which every value is made before it is used",
    "report this bundle",
)
BAD_FOLDER = Template(
    SpecError, "the folder {folder}: {problem}", "a folder that files can be written to", "pass another path"
)

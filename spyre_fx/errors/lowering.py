"""Messages of lowering: what the device or the code generator has no form for."""

from __future__ import annotations

from spyre_fx.errors import InternalError, LoweringError, SpecError, Template

UNSUPPORTED_DTYPE = Template(
    LoweringError, "a tensor of {dtype}", "a dtype that the device stores: {known}", "cast it before the graph"
)
UNKNOWN_FORMAT = Template(SpecError, "device format {data_format!r}", "one of {known}", "correct the spec")
BAD_DIM_ORDER = Template(
    InternalError,
    "dim order {order} for shape {shape}",
    "a permutation of the dims, with -1 behind it for a sparse tensor",
    "report this graph",
)
UNKNOWN_MODULE = Template(
    LoweringError, "a call of a {kind}", "ATen ops and counted loops", "capture the graph so that modules are inlined"
)
NO_CALL = Template(LoweringError, "a {op} node", "call_function and call_module nodes", "capture the graph as ATen ops")
SYMBOLIC_SIZE = Template(
    LoweringError,
    "the symbolic size {size}",
    "sizes that are known",
    "capture the graph with static shapes, or tile what `spyre_fx.fix_sizes` makes of it",
)
SIZED_LOOP = Template(
    LoweringError,
    "the loop {name!r}, which is cut anew for each set of sizes",
    "loops of known sizes",
    "tile what `spyre_fx.fix_sizes` makes of the untiled graph",
)
SIZE_INPUT = Template(
    LoweringError,
    "the input {name!r}, which is a size",
    "sizes that are those of input dims",
    "read the size off a tensor inside the program",
)
SIZE_EXPRESSION = Template(
    LoweringError,
    "size {size} of dim {dim} of the input {name!r}",
    "a number, or one symbol",
    "capture the program with a size of its own for this dim",
)
UNBOUNDED_SIZE = Template(
    LoweringError,
    "dim {dim} of the input {name!r}, whose size {size} has no upper bound",
    "a largest size, for which memory is set aside",
    "pass `largest={{{name!r}: {{{dim}: ...}}}}`, or export with `Dim(..., max=...)`",
)
UNKNOWN_SIZE = Template(LoweringError, "largest sizes for {names}", "names of inputs: {known}", "correct the name")
SIZE_VALUE = Template(
    LoweringError,
    "{op}, whose values depend on a size that is known at launch only",
    "ops whose elements are the same whatever the size",
    "capture the program with a fixed size along this dim",
)
SIZE_WHOLE = Template(
    LoweringError,
    "{op} ({origin}), which uses {name} {shape} along dim {dim}, whose size {symbol} is known at launch only, {how}",
    "a loop around it whose trips take equal tiles of that dim, one after the other",
    "put the op into a group that tiles this dim evenly",
)
SIZE_HOST = Template(
    LoweringError,
    "{op} ({origin}), which the host runs, in a graph with sizes that are known at launch only",
    "ops of the device",
    "capture the program with fixed sizes",
)
SIZE_RESULT = Template(
    LoweringError,
    "output {position} of shape {found}, as the loops of the program make it",
    "the shape {wanted}",
    "tile the ops that make it along the dims whose sizes are known at launch only",
)
EMPTY_TENSOR = Template(
    LoweringError, "an empty tensor of shape {shape}", "at least one element", "leave the op out of the graph"
)
SUB_STICK_WINDOW = Template(
    LoweringError,
    "{op} ({origin}) reads or writes {name} {shape} in windows of {step} elements along dim {dim}, inside a stick of "
    "{lanes}",
    "windows, tiles and heads of whole sticks along the dim that fills the sticks",
    "tile that dim by a multiple of {lanes}, or tile another dim",
)
NO_STICK = Template(
    LoweringError,
    "{op} ({origin}) for which no dim can fill the sticks of all its tensors",
    "one dim that all of them step through element by element",
    "copy the operand to the wanted order first, or run the op outside the loop",
)
SPAN = Template(
    LoweringError,
    "{op} ({origin}) of which one core would address more than {limit} bytes of {name}",
    "a work division that cuts the tensor into spans within the limit",
    "tile the op",
)
SEGMENT = Template(
    LoweringError, "{name} of {size} bytes", "at most {limit} bytes, one HBM segment", "tile the ops that make it"
)
HBM_FULL = Template(LoweringError, "{size} bytes of buffers", "at most {limit} bytes of HBM", "tile more of the graph")
WINDOW_CARRIES = Template(
    LoweringError,
    "{op} ({origin}), which reads a window of {name} {shape} whose indices carry from one dim into the next",
    "windows that fall on whole rows of the dims they are viewed as",
    "copy the slice (`.clone()` before the view) or slice after the view",
)
NO_SHAPE = Template(
    LoweringError, "an input without a recorded value", '`meta["val"]` on every node', "capture the graph with examples"
)
NUMBER_RESULT = Template(
    LoweringError,
    "an op that makes a value of type {kind} out of tensor data",
    "results that are tensors",
    "keep the number out of the graph, or pass it in",
)
RANDOM = Template(
    LoweringError,
    "{op}, which draws random numbers",
    "ops whose result follows from their inputs: the device has no generator",
    "draw the numbers outside the graph and pass them in",
)
MUTATION = Template(
    LoweringError,
    "an op that writes into a tensor that {name} reads afterwards",
    "tensors that are written last of all, as `capture` arranges it",
    "capture the program with `spyre_fx.capture`",
)

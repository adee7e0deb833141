"""Messages of hints, in the order of their way: names, blocks, binding, groups."""

from __future__ import annotations

from spyre_fx.errors import HintError, Template

# ---- 1. names of dims

BAD_NAME = Template(
    HintError,
    "{name!r} ({kind}) as the name of a dim",
    "a non-empty string",
    'name it as in declare_tensor_dim("A", 4)',
)
BAD_SIZE = Template(
    HintError,
    "size {size!r} ({kind}) for dim {name!r}",
    "a positive int",
    "declare the number of elements that the dim has",
)
UNDECLARED = Template(
    HintError,
    "dim {name!r} is not declared (declared: {known})",
    "a declared name{nearest}",
    "call declare_tensor_dim({name!r}, size) first",
)
NOT_A_TENSOR = Template(
    HintError,
    "{kind} to name the dims of",
    "a tensor",
    "pass the tensor itself, for a module its parameter",
)
BAD_NAMES = Template(
    HintError, "names {names}", "a list with a name or None for each dim", 'write a list, as in ["A", None]'
)
REPEATED_NAME = Template(
    HintError,
    "the name {name!r} twice in {names}",
    "each name once per tensor, so that it says which dim is meant",
    "declare a second name for the other dim",
)
NAME_COUNT = Template(
    HintError,
    "{count} names {names} for {tensor}",
    "{rank} names, one per dim",
    "give one name per dim, None for a dim without one",
)
WRONG_SIZE = Template(
    HintError,
    "dim {dim} of {tensor} is named {name!r}, which stands for {size} elements, but it has {found}",
    "a dim of {size} elements",
    "correct the order of the names, or declare_tensor_dim({name!r}, {found}) before naming",
)
RESHAPED = Template(
    HintError,
    "{tensor}, which had shape {named} when its dims were named",
    "a tensor of the shape that was named",
    "name its dims again",
)
NAMED_TWICE = Template(
    HintError,
    "one tensor with the names {first} and {second}",
    "one name per dim of a tensor",
    "name it once; for another name within the program name a result, such as x.clone()",
)

# ---- 2. blocks

EMPTY_HINT = Template(HintError, "spyre_hint without slices", "at least one named dim", 'write slices={{"A": 2}}')
TWO_WORDS = Template(
    HintError, "{words} in one spyre_hint", "one of them: they say the same", "put all dims into slices={{...}}"
)
BAD_SLICES = Template(HintError, "{word}={value}", "a dict from names to numbers of tiles", 'write {word}={{"A": 2}}')
BAD_TILES = Template(
    HintError,
    "{count!r} ({kind}) tiles of dim {name!r}",
    "a positive int",
    "say into how many tiles the dim is to be cut",
)
NOT_RECORDED = Template(
    HintError,
    "{hint} under fx.symbolic_trace or torch.jit.trace, which do not record it",
    "spyre_fx.capture, torch.export, torch.compile or make_fx",
    "capture the program with one of these",
)
NOT_COMPILED = Template(
    HintError,
    "{hint} is entered by a function that Dynamo does not compile as a whole",
    "a block that begins and ends within one graph",
    "write `with spyre_hint(...):` inside the compiled function, without graph breaks in the block (fullgraph=True "
    "tells where they are)",
)
AROUND_COMPILED = Template(
    HintError,
    "{hint} around the call of a compiled function, which it cannot reach",
    "a block inside the compiled function",
    "write `with spyre_hint(...):` inside the function, without graph breaks in the block",
)
EMPTY_BLOCK = "{hint} holds no op that was recorded, so nothing is tiled for it"

# ---- 3. following names through a graph

TWO_SIZES = Template(
    HintError,
    "{name!r} stands for {first_size} elements at {first} and for {second_size} at {second}",
    "one size per name in one graph",
    "declare a second name for one of the two",
)
TWO_NAMES = Template(
    HintError,
    "{op!r} steps through {first} ({first_name!r}) and {second} ({second_name!r}) together, {extent} elements each",
    "one name for what is one axis",
    "name both dims alike, or name the result of an op before {op!r} anew with name_tensor_dims",
)

# ---- 4. binding and groups

UNKNOWN_DIM = Template(
    HintError,
    "{hint} names dim {name!r}, which no tensor of the graph has (named dims: {known})",
    "the name of a dim of a tensor in the graph{nearest}",
    "name the dims of the inputs with name_tensor_dims before the program is captured, or of a tensor inside of it",
)
TOO_MANY_TILES = Template(
    HintError,
    "{hint} asks for {count} tiles of {name!r}, which has {size} elements ({place})",
    "at most {size} tiles",
    "use a smaller count",
)
TWO_AXES = Template(
    HintError,
    "{name!r} names two axes of {op!r}, at {positions} of its iteration space",
    "a name for each axis that is tiled",
    "name one of the two dims otherwise, with name_tensor_dims on an operand that is computed in the program",
)
NO_OP = "{hint}: nothing is tiled along {name!r}, since no op of the block can be cut along it ({ops})"
SYMBOLIC_DIM = "{hint}: nothing is tiled along {name!r}, since the size of {place} is only known at run time"
HIDDEN = "{hint}: nothing is tiled for it, since it stands inside the graph of a branch or loop of the program"
NAMES_UNUSED = "{hint}: no op of the block makes a tensor of {rank} dims from nothing, so named_dims names none"

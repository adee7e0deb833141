"""Messages of ``tile()``, in the order of its steps."""

from __future__ import annotations

from spyre_fx.errors import InternalError, OptionError, Template, TilingError

# ---- 1. the form of a group

BAD_GROUPS = Template(
    TilingError,
    "groups is {found}",
    "a list of groups",
    "pass [(ops, count), ...], [(ops, count, dims), ...], [(ops, [(count, dims), ...]), ...] or LoopGroup objects",
)
ONE_GROUP = Template(
    TilingError,
    "groups is the one group {found}",
    "a list of groups",
    "put the group in a list: [{found}]",
)
BAD_GROUP = Template(
    TilingError,
    "{group} is {found}",
    "(ops, count), (ops, count, dims), (ops, [(count, dims), ...]) or a LoopGroup",
    "write the group in one of these forms",
)
BAD_OPS = Template(
    TilingError,
    "the ops of {group} are {found}",
    "node names, nodes, module paths, predicates or groups.lines(...), alone or in a list (in the body of a LoopGroup "
    "also LoopGroups), or groups.every(...) alone",
    "list the ops of the group",
)
EMPTY_GROUP = Template(TilingError, "{group} holds no op", "at least one op", "name the ops to tile or drop the group")
NO_LEVELS = Template(
    TilingError, "the list of levels of {group} is empty", "at least one (count, dims)", "add a level or drop the group"
)
BAD_COUNT = Template(
    TilingError,
    "count {count!r} ({kind}) in {group}",
    "a positive int",
    "say in how many tiles the axis is to be cut",
)
COUNT_TOO_LARGE = Template(
    TilingError,
    "count {count} in {group} for an axis of {extent} elements ({axis})",
    "a count from 1 to {extent}",
    "use a smaller count or another axis",
)
EMPTY_AXIS = Template(
    TilingError,
    "count {count} in {group} for an axis without elements ({axis})",
    "an axis of at least one element",
    "choose another axis, or leave what has no elements out of the group",
)
BAD_MULTIPLE = Template(
    TilingError,
    "multiple_of {multiple!r} in {group}",
    "a positive int",
    "say of how many elements a tile must be a multiple",
)

# ---- 2. the ops of a group

UNKNOWN_NODE = Template(
    TilingError,
    "{group} names {name!r}, which is not in the graph",
    "the name of a node or the path of a module{nearest}",
    "correct the name",
)
IN_A_LOOP = Template(
    TilingError,
    "{group} names {name!r}, which is inside of {loop!r}: the graph is tiled already",
    "ops of the graph itself",
    "give all groups in one call, for the graph without loops; a nest is one group, ([names], [(4, 0), (2, 1)])",
)
UNKNOWN_MODULE = Template(
    TilingError,
    "{group} names {choice}, but no op of the graph comes from there",
    "the path of a module that the graph records{nearest}",
    "correct the path, or capture the graph with spyre_fx.capture, which records modules",
)
NO_LINES = Template(
    TilingError,
    "{group} names {choice}, but {reason}",
    "lines that ops of the graph come from",
    "correct the range, or capture the graph with spyre_fx.capture, which records source lines",
)
NOT_LINES = Template(
    TilingError,
    "lines({file!r}, {first!r}, {last!r})",
    "a file name and two ints from 1 up, the first not above the last",
    "correct the range",
)
NOT_A_PATTERN = Template(
    TilingError, "every({pattern!r})", "a module path with wildcards, such as 'layers.*.mlp'", "pass a string"
)
NOTHING_CHOSEN = Template(
    TilingError,
    "the predicate {predicate} of {group} chooses no op",
    "a callable that is true for at least one op (a call_function node that is no getitem of an op's results)",
    "correct the predicate or drop the group",
)
PREDICATE_FAILED = Template(
    TilingError,
    "the predicate {predicate} of {group} raises {error}",
    "a callable that takes any op of the graph and says whether it is in the group",
    "correct the predicate",
)
FOREIGN_NODE = Template(
    TilingError,
    "{group} holds node {name!r} of another graph",
    "nodes of the graph that is tiled",
    "pass nodes of this graph, or their names",
)
NOT_AN_OP = Template(
    TilingError,
    "{group} holds {name!r}, which is {kind}",
    "ops (call_function nodes)",
    "leave it out: what a group reads or returns follows from its ops",
)
LONE_PART = Template(
    TilingError,
    "{group} holds getitem {name!r} without {producer!r}, the op whose result it takes",
    "the op itself",
    "put {producer!r} into the group; its getitems come along",
)
DUPLICATE = Template(TilingError, "{group} holds {name!r} twice", "each op once", "drop one of the two")
OVERLAP = Template(
    TilingError,
    "node {name!r} is in {first} and in {second}",
    "each op in one group",
    "take it out of one of the two groups",
)

# ---- 3. the dims of a level

BAD_DIMS = Template(
    TilingError,
    "dims {dims!r} in {group}",
    "a list of axis positions, or a dict {{value: dim}} or {{value: [dims]}}, of ints",
    "name the axes to tile",
)
NO_DIMS = Template(
    TilingError,
    "empty dims in {group}",
    "at least one axis",
    "name an axis, or leave dims out for axis 0",
)
REPEATED_DIM = Template(
    TilingError,
    "dim {dim} comes twice at one level of {group}",
    "each axis once per level",
    "for tiles of tiles give a second level: [(count, [dim]), (count, [dim])]",
)
NO_SUCH_AXIS = Template(
    TilingError,
    "axis {dim} in {group}, but its first op has {axes}{other}",
    "an axis of the first op of the group",
    "choose another axis, or name a dim of a value: {{value: dim}}",
)
NO_SUCH_DIM = Template(
    TilingError,
    "dim {dim} of {value!r} in {group}, {tensor}",
    "{expected}",
    "correct the dim",
)
UNKNOWN_KEY = Template(
    TilingError,
    "dims of {group} name {name!r}, which is not in the graph",
    "an op or an input of the group, or a module whose last op is one{nearest}",
    "correct the name",
)
FOREIGN_KEY = Template(
    TilingError,
    "dims of {group} name {name!r}, which is neither an op nor an input of the group",
    "one of {known}",
    "name a value that the group computes or reads",
)
BAD_PARTS = Template(
    TilingError,
    "{group} names {parts} of {value!r}, a tensor of shape {shape}",
    "factors of its dims, of at least two elements each: DimPart(dim, extent, inner)",
    "correct the parts",
)
SIZE_ONE = Template(
    TilingError,
    "axis {dim} in {group} has size 1 ({axis})",
    "an axis of at least two elements",
    "choose another axis",
)
UNEQUAL_SEEDS = Template(
    TilingError,
    "one level of {group} tiles {first} ({first_size} elements) and {second} ({second_size} elements) together",
    "dims of one size: they are cut by the same loop",
    "put them into groups of their own",
)

# ---- 4. following the axis

OPAQUE_OP = Template(
    TilingError,
    "{name!r} in {group} cannot be in a loop: {reason}",
    "ops whose axes are known and that only compute their result",
    "leave it out of the group",
)
SYMBOLIC = Template(
    TilingError,
    "{name!r} in {group} has a symbolic size without an example: {shape}",
    "sizes that are known, or were when the graph was traced",
    "capture the graph with example inputs, call `spyre_fx.fix_sizes` first, or leave this op out of the group",
)
CANNOT_CUT = Template(
    TilingError,
    "{group} would cut {axis}, which reaches {name!r} along an axis that cannot be cut: {reason}",
    "axes along which every op of the loop can work tile by tile",
    "tile another axis, or leave {name!r} and what follows it out of the group",
)
NO_NEST = Template(
    TilingError,
    "{group} would cut {axis}, but {reader!r} splits it in another way: {extent} does not nest in {factors}",
    "a cut that both sides of a view can follow",
    "tile another axis, or leave {reader!r} and what follows it out of the group",
)
PART_LOST = Template(
    TilingError,
    "{axis} is to be cut, but views in the group split that dim into {factors}, which does not nest with it",
    "a factor that all views in the group leave whole or split further",
    "tile another axis, or leave the view out of the group",
)
ROADS_DISAGREE = Template(
    TilingError,
    "{group} reaches {name!r} along two axes: axis {first_axis} by {first_road}, axis {second_axis} by {second_road}",
    "roads that agree on one axis",
    "leave an op on one of the two roads out of the group: its result is then read whole, or sliced as each use needs",
)
UNREACHED = Template(
    TilingError,
    "{name!r} in {group} is not reached from {seeds}, and no value of the group joins it to a tiled op",
    "ops that the tiled axis reaches along the data flow, and those that feed or read them",
    "say which of its dims is tiled with an entry {{{name!r}: dim}}, or leave it out",
)
STRADDLES = Template(
    TilingError,
    "{count} tiles of {tile} in {group} would straddle the factors {factors} of {axis}",
    "tiles that no factor cuts across, since views in the group split the dim",
    "use one of the counts {counts}",
)
NOT_DIVISIBLE = Template(
    TilingError,
    "count {count} in {group} does not divide {extent} ({axis}), and strict is on",
    "a count that gives equal tiles{multiple}",
    "use one of the counts {counts}, or strict=False for a smaller last tile",
)
UNEVEN = Template(
    TilingError,
    "one level of {group} would cut {first!r} with {first_size} and {second!r} with {second_size} elements",
    "axes of one size at each level",
    "tile the same values at the levels outside of it",
)

# ---- 5. order

CYCLE = Template(
    TilingError,
    "the loop of {group} would have to wait for itself: {path} leaves it and returns",
    "a group that no value leaves and re-enters",
    "put the ops in between into the group, or split the group there",
)

# ---- 6. bodies

NO_TILE = Template(
    TilingError,
    "{name!r} in {group} does not run on a tile: {reason}",
    "an op that takes operands of the tile's shapes",
    "leave it out of the group",
)
WRONG_TILE = Template(
    InternalError,
    "{name!r} gives a tile of shape {found}",
    "{expected}, as its index map says",
    "report this graph",
)
LOST_VALUE = Template(
    InternalError,
    "the value of {name!r} is not to be had in {place}",
    "every operand within reach",
    "report this graph and the groups",
)

# ---- 7. skipped groups

ACCUMULATE = Template(
    TilingError,
    "accumulate={value!r} in {place}",
    "'float32' or 'operand'",
    "choose whether running sums of half-precision operands are kept in float32 or in the operands' own dtype",
)
MIXED_SUMS = Template(
    TilingError,
    "accumulate={value!r} in {group}, inside of a loop with {outer!r}",
    "one choice for all loops of a group",
    "say it in the outermost LoopGroup alone",
)
STRICT = Template(
    OptionError,
    "strict={value!r}",
    "True or False",
    "choose whether a count that leaves a remainder is refused",
)
ON_ERROR = Template(
    OptionError,
    "on_error={value!r}",
    "'raise' or 'skip'",
    "choose whether a group that cannot be tiled raises an error or is left untiled and reported",
)
ALL_SKIPPED = "every group was skipped, so nothing is tiled:\n{reasons}"

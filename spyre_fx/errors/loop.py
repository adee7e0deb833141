"""Messages of a ``CountedLoop``: wrong inputs at run time, and a loop that contradicts itself."""

from __future__ import annotations

from spyre_fx.errors import InternalError, Template, TilingError

ARGUMENT_COUNT = Template(
    TilingError,
    "{label} was called with {found} arguments",
    "{expected}",
    "pass the inputs that the graph was traced with",
)
ARGUMENT_KIND = Template(
    TilingError,
    "argument {position} of {label} is {found}",
    "{expected}",
    "pass the inputs that the graph was traced with",
)
ARGUMENT_TYPE = Template(
    TilingError,
    "argument {position} of {label} has {what} {found}",
    "{what} {expected}, for which the loop was built",
    "call with inputs of the traced shapes and dtypes, or capture and tile the graph again for the new ones",
)
SYMBOLIC_CALL = Template(
    TilingError,
    "argument {position} of {label} has the symbolic size {found}",
    "sizes that are known when the loop is called",
    "trace the untiled graph and tile the result, or trace the tiled one with fixed sizes",
)
SIZES_DO_NOT_FIT = Template(
    TilingError,
    "{label} was called with arguments of sizes {found}: {reason}",
    "sizes that the ops of the loop take",
    "pass inputs whose sizes fit each other as those of the traced ones did",
)
NO_ONE_SIZE = Template(
    TilingError,
    "{label} has no {what}: it is cut anew for each set of sizes",
    "a loop of known sizes",
    "call `spyre_fx.fix_sizes` first and tile what it returns",
)
MALFORMED = Template(
    InternalError,
    "{label} is malformed: {problem}",
    "a loop whose parts fit each other",
    "report this with the graph and the groups",
)
NO_TEXT = Template(
    InternalError,
    "a tiled graph holds {what}, which cannot be saved",
    "ops, numbers, strings, dtypes and devices",
    "report this with the graph",
)
UNREADABLE = Template(
    TilingError,
    "a saved loop holds {what}",
    "what this version of spyre_fx writes",
    "save it again with this version, and import the packages whose ops it uses first",
)
NO_GRADIENT = Template(
    TilingError,
    "the gradient of {label} cannot be made: {reason}",
    "a body whose ops all have a derivative",
    "call the tiled graph under torch.no_grad(), or leave that op outside the group",
)
NO_FORWARD_MODE = Template(
    TilingError,
    "a derivative of {label} in forward mode (jvp, jacfwd, hessian)",
    "derivatives in reverse mode, which loops have",
    "use torch.func.vjp, jacrev or jacrev(jacrev(...)), or differentiate the untiled graph",
)
NO_SECOND_GRADIENT = Template(
    TilingError,
    "a second derivative of {label}, whose trips depend on each other",
    "first derivatives only, where a carried value is more than a sum",
    "differentiate the untiled graph, or tile only axes that are not reduced",
)

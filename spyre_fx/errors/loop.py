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
NO_SECOND_GRADIENT = Template(
    TilingError,
    "a second derivative of {label}, whose trips depend on each other",
    "first derivatives only, where a carried value is more than a sum",
    "differentiate the untiled graph, or tile only axes that are not reduced",
)

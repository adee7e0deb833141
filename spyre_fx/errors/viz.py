"""Messages of pictures."""

from spyre_fx.errors import OptionError, Template

NOTHING_TO_DRAW = Template(
    OptionError,
    "draw was given a {kind}",
    "a GraphModule, a CountedLoop, a SchedulePlan, a list of specs or a Bundle",
    "pass the graph itself, for instance spyre_fx.capture(model, *example_inputs)",
)
UNKNOWN_SUFFIX = Template(
    OptionError,
    "a drawing cannot be saved as {suffix!r}",
    "one of {known}",
    "change the file's suffix",
)

"""Messages of pictures."""

from spyre_fx.errors import OptionError, Template

NOTHING_TO_DRAW = Template(
    OptionError,
    "draw was given {kind}",
    "a GraphModule, a CountedLoop, a SchedulePlan, a list of specs or a Bundle",
    "pass the graph itself, for instance spyre_fx.capture(model, *example_inputs)",
)
UNKNOWN_SUFFIX = Template(
    OptionError,
    "a drawing cannot be saved as {suffix!r}",
    "one of {known}",
    "change the file's suffix",
)
NOT_A_BUNDLE = Template(
    OptionError,
    "{kind} where a bundle belongs",
    "a spyre_fx.Bundle",
    "make one with spyre_fx.lower(tiled), or read one with spyre_fx.Bundle.load(folder)",
)
WRONG_VALUE = Template(OptionError, "{name}={value!r}", "{expected}", "change the value, or leave it out")
FILE_PATH = Template(
    OptionError,
    "a file given as an object of type {kind}",
    "the path of a file, as a string or a pathlib.Path",
    "pass the path",
)
NOT_WRITTEN = Template(OptionError, "the file {path}: {reason}", "a file that can be written to", "pass another path")

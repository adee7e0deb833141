"""Messages of options: of ``torch.compile(backend="spyre_fx")`` and of the command line."""

from spyre_fx.errors import OptionError, Template

UNKNOWN_OPTION = Template(
    OptionError,
    "option {name!r} is not known",
    "one of {known}",
    "{advice}",
)
OPTION_VALUE = Template(
    OptionError,
    "option {name}={value!r}",
    "{expected}",
    "change it in torch.compile(..., options={{{name!r}: ...}})",
)
TILE_RESULT = Template(
    OptionError,
    "option tile: {name} gave {kind} for a graph",
    "a list of groups, as `spyre_fx.tile` takes it",
    "return that list, which is empty where nothing is to be tiled",
)
FLAG_VALUE = Template(
    OptionError,
    "environment variable {name}={value!r}",
    "{expected}",
    "change it, or unset it",
)
OPTIONS_KIND = Template(
    OptionError,
    "options is a {kind}",
    "a dict of option names and values",
    'write torch.compile(model, backend="spyre_fx", options={{"tile": "auto"}})',
)
COMBINATION = Template(
    OptionError,
    "option {one} beside {other}",
    "options that go together",
    "take one of the two out",
)
NO_COMPILER = Template(
    OptionError,
    "option body='inductor' on a machine where Inductor finds no C++ compiler ({reason})",
    "a compiler such as g++",
    "install one (on Debian: apt install g++), or use body='eager'",
)
NO_FOLDER = Template(
    OptionError,
    "option dump={path!r}: {reason}",
    "a folder that files can be written to",
    "give another path",
)
UNKNOWN_MODE = Template(
    OptionError,
    "mode {mode!r} is not known",
    "one of {known}",
    "leave mode out, or give options instead",
)
GROUP_FILE = Template(
    OptionError,
    "{path} {problem}",
    'a JSON file such as {{"groups": [{{"ops": ["add", "mul"], "count": 4, "dims": [0]}}]}}',
    "mend the file; `spyre-fx plan` lists the names of the ops",
)
GROUP_FILE_ENTRY = Template(
    OptionError,
    "{where} {problem}",
    "ops with a count (and dims), ops with levels, or a count with a body",
    'write it as {{"ops": [...], "count": 4, "dims": [0]}}',
)
COMMAND_INPUT = Template(
    OptionError,
    "{path} {problem}",
    "a .pt2 file made by torch.export.save, or a folder made by Bundle.save",
    "check the path; a graph is saved by torch.export.save(torch.export.export(model, args), path)",
)
TARGET_VALUE = Template(
    OptionError,
    "Target({name}={value!r})",
    "{expected}",
    "change the value, or leave it out",
)
TARGET_KIND = Template(
    OptionError,
    "a target of type {found}",
    "a spyre_fx.Target",
    "pass Target(), Target.cpu() or a Target with sizes of your own",
)
COMMAND_FOLDER = Template(
    OptionError,
    "{path} is a folder, and {command} was asked for",
    "a .pt2 file made by torch.export.save, or one of {commands} for the folder of a saved bundle",
    "give the file that the bundle was lowered from",
)
COMMAND_LOWERED = Template(
    OptionError,
    "{option} with {path}, a saved bundle",
    "groups for a graph; the loops of a bundle are fixed",
    "leave {option} out, or give the .pt2 file that the bundle was lowered from",
)
NO_EXAMPLES = Template(
    OptionError,
    "{path} holds no example inputs",
    "tensors to run on",
    "give --inputs FILE, a file made by torch.save of a tuple of tensors",
)

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
OPTIONS_KIND = Template(
    OptionError,
    "options is a {kind}",
    "a dict of option names and values",
    'write torch.compile(model, backend="spyre_fx", options={{"tile": "auto"}})',
)
UNKNOWN_MODE = Template(
    OptionError,
    "mode {mode!r} is not known",
    "one of {known}",
    "leave mode out, or give options instead",
)

"""Every exception of the library, and the form that every message takes.

A message says what was found, what was expected and what to do, and ends with the node it is about: its name, target,
shapes and the user's source line. Templates live beside this file, one module per room (``tiling``, ``lowering``, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spyre_fx.errors.location import describe_node, listing

__all__ = [
    "BudgetExceeded",
    "CaptureError",
    "DeviceError",
    "HintError",
    "HintWarning",
    "InternalError",
    "LoweringError",
    "OptionError",
    "PlanError",
    "SpecError",
    "SpyreFxError",
    "Template",
    "TilingError",
    "TilingWarning",
]


class SpyreFxError(Exception):
    """Root of all errors that this library raises on purpose.

    ``problems`` holds the single messages when several were collected into one error.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems) or (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.problems), self.__dict__


class CaptureError(SpyreFxError, ValueError):
    """The function, module or file cannot be made into a functional ATen graph."""


class TilingError(SpyreFxError, RuntimeError):
    """A group cannot be tiled as asked; the graph was not touched."""


class TilingWarning(UserWarning):
    """Every group was skipped, so that nothing is tiled."""


class HintError(SpyreFxError, RuntimeError):
    """A hint is missing a name, contradicts another, or binds no op."""


class HintWarning(UserWarning):
    """A hint, or a part of it, that nothing is tiled for."""


class LoweringError(SpyreFxError, NotImplementedError):
    """The device or the code generator has no form for what the graph asks."""


class SpecError(SpyreFxError, ValueError):
    """A spec, program or saved bundle breaks one of its invariants."""


class DeviceError(SpyreFxError, RuntimeError):
    """The simulated device refused an access: unwritten, foreign, dead or out of range bytes."""


class PlanError(SpyreFxError, ValueError):
    """A graph cannot be put into a schedule: its values wait for each other."""


class BudgetExceeded(SpyreFxError):
    """An analysis or a memory budget was refused before the work was done."""

    nearest: Any = None
    """Of a memory budget the groups that come nearest to it."""


class OptionError(SpyreFxError, ValueError):
    """An option is unknown or has a value that it cannot take."""


class InternalError(SpyreFxError):
    """A bug of this library: please report it with the graph that the message names."""


@dataclass(frozen=True)
class Template:
    """One message, written once: call it with the fields (and the node) to get the exception.

    >>> BAD_COUNT = Template(TilingError, "count {count!r}", "a positive int", "use 1 to {extent}")
    >>> str(BAD_COUNT(count=0, extent=8))
    'count 0. Expected a positive int. To fix: use 1 to 8.'
    """

    error: type[SpyreFxError]
    found: str
    expected: str
    do: str

    def __call__(self, *, node: Any = None, **fields: Any) -> SpyreFxError:
        """Fill the template; ``node`` is an ``fx.Node`` that the message ends with, its graph around it as a note."""
        text = f"{self.found}. Expected {self.expected}. To fix: {self.do}.".format(**fields)
        if node is None:
            return self.error(text)
        error = self.error(f"{text}\n{describe_node(node)}")
        error.add_note(listing(node))
        return error


def collect(errors: Sequence[SpyreFxError]) -> SpyreFxError:
    """One error of the first one's class that lists the messages of all."""
    if len(errors) == 1:
        return errors[0]
    lines = [line for error in errors for line in error.problems]
    listing = "\n".join(f"{position}. {line}" for position, line in enumerate(lines, 1))
    return type(errors[0])(f"{len(lines)} problems:\n{listing}", lines)

"""Reads ``bundle.mlir``, in either syntax, back into the ``Program`` that it was printed from.

Names that MLIR does not keep (``%addr_3``) are given again by position, as ``build_program`` gives them.
"""

from __future__ import annotations

import re
from typing import Any

from spyre_fx.codegen.program import Program
from spyre_fx.errors import SpecError
from spyre_fx.errors.spec import MLIR_SYNTAX, XDSL_MISSING

_STRINGS = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"|//[^\n]*|(?P<open>")')
"""Strings as MLIR has them, comments, and the quotes of what is neither."""


def parse_program(text: str, files: dict[str, dict[str, Any]] | None = None, name: str = "bundle.mlir") -> Program:
    """Parse and verify the text of a bundle.

    Args:
        text: in the syntax ``spyre`` or ``generic``.
        files: SuperDSC data by file name, taken over into the program.
        name: of the file, for messages.

    Raises:
        SpecError: for text that is not a bundle, or if xDSL is not installed.
    """
    try:
        from spyre_fx.codegen.mlir_reader import read_text
    except ImportError as error:
        raise XDSL_MISSING(reason=error) from None
    _check_strings(text, name)
    try:
        return read_text(text, files or {}, name)
    except SpecError:
        raise
    except Exception as error:  # xDSL raises errors of many classes for bad text
        raise MLIR_SYNTAX(file=name, problem=_first_lines(error)) from None


def _check_strings(text: str, name: str) -> None:
    """Refuse a string that does not end: xDSL takes a time for it that is exponential in its length."""
    for found in _STRINGS.finditer(text):
        if found.lastgroup == "open":
            line = text.count("\n", 0, found.start()) + 1
            raise MLIR_SYNTAX(
                file=name, problem=f"a string in line {line} that does not end, or an unknown escape in it"
            )


def _first_lines(error: Exception) -> str:
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:4]) or type(error).__name__

"""What pictures and plots refuse, and how their files are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.errors.names import with_article
from spyre_fx.errors.viz import FILE_PATH, NOT_A_BUNDLE, NOT_WRITTEN, UNKNOWN_SUFFIX, WRONG_VALUE


def check_bundle(bundle: object) -> None:
    """``OptionError`` for anything but a bundle."""
    if not isinstance(bundle, Bundle):
        raise NOT_A_BUNDLE(kind=with_article(type(bundle).__name__))


def check_count(name: str, value: object, least: int = 0) -> None:
    """``OptionError`` for anything but an int from ``least`` up."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise WRONG_VALUE(name=name, value=value, expected=f"an int from {least} up")


def check_flag(name: str, value: object) -> None:
    """``OptionError`` for anything but True, False and None."""
    if value is not None and not isinstance(value, bool):
        raise WRONG_VALUE(name=name, value=value, expected="True, False or None")


def write(path: Any, contents: Mapping[str, Callable[[], str]]) -> Path:
    """Write that of ``contents`` (by suffix) which the suffix of ``path`` asks for.

    errors: ``OptionError`` for another suffix, for what is no path, and for a file that cannot be written.
    """
    if not isinstance(path, (str, Path)):
        raise FILE_PATH(kind=type(path).__name__)
    file = Path(path)
    if file.suffix not in contents:
        raise UNKNOWN_SUFFIX(suffix=file.suffix, known=", ".join(contents))
    try:
        file.write_text(contents[file.suffix](), encoding="utf-8")
    except OSError as error:
        raise NOT_WRITTEN(path=file, reason=error.strerror or error) from None
    return file

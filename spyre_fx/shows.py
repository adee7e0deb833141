"""Objects that a notebook shows as ``draw`` does."""

from __future__ import annotations

from typing import Any


class ShowsItself:
    """Gives an object the picture that ``draw`` makes of it, with the listing for viewers that show text alone."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from spyre_fx.viz.drawing import draw  # pictures stand outside of all rooms and are made when they are shown

        return dict(draw(self)._repr_mimebundle_())


def counted(count: Any, noun: str) -> str:
    """A number with its noun: ``1 loop``, ``2 loops``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def size_text(count: float) -> str:
    """Bytes in the unit that leaves at most four digits.

    >>> size_text(32768), size_text(1 << 20), size_text(1_625_344), size_text(100)
    ('32 KiB', '1 MiB', '1.55 MiB', '100 B')
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.4g} B"

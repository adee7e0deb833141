"""Objects that a notebook shows as ``draw`` does."""

from __future__ import annotations

from typing import Any


class ShowsItself:
    """Gives an object the picture that ``draw`` makes of it, with the listing for viewers that show text alone."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from spyre_fx.viz.drawing import draw  # pictures stand outside of all rooms and are made when they are shown

        return dict(draw(self)._repr_mimebundle_())


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 loop``, ``2 loops``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")

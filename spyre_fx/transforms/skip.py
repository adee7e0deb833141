"""Tile the groups that are legal and say of each other one why it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import fx

from spyre_fx.errors import TilingError
from spyre_fx.transforms.select import Asked

Attempt = Callable[[Sequence[Asked]], fx.GraphModule]
"""Tiles all of some groups, or raises."""
Refused = tuple[Asked, str]
"""A group that is left out, and why."""


def with_skipped(tiled: fx.GraphModule, refused: Sequence[Refused]) -> fx.GraphModule:
    """The module, with the report in its meta: position and message of each group that was left out."""
    tiled.meta["skipped_groups"] = tuple((group.position, reason) for group, reason in refused)
    return tiled


def tile_legal(groups: Sequence[Asked], attempt: Attempt) -> tuple[fx.GraphModule, list[Refused]]:
    """The module with all groups that can be tiled beside those accepted before them, and the report on the others.

    The groups are tried together and, where that fails, half by half: few refusals take few attempts.
    """
    accepted: list[Asked] = []
    refused: list[Refused] = []
    pending = [list(groups)] if groups else []
    tiled: fx.GraphModule | None = None
    while pending:
        some = pending.pop()
        try:
            tiled = attempt([*accepted, *some])
            accepted += some
        except TilingError as error:
            if len(some) > 1:
                half = len(some) // 2
                pending += [some[half:], some[:half]]
            else:
                refused.append((some[0], _reason(some[0], error, attempt)))
    return attempt([]) if tiled is None else tiled, refused


def _reason(group: Asked, error: TilingError, attempt: Attempt) -> str:
    """Why a group is refused: for its own sake, or else because of those beside it."""
    try:
        attempt([group])
    except TilingError as own:
        error = own
    return str(error)

"""What the search says of its choices, in words.

Costs of unlike kinds (moving bytes, starting ops, new memory) are compared as times, each told by the bytes that main
memory moves in it.
"""

from __future__ import annotations

from spyre_fx.shows import size_text
from spyre_fx.transforms.auto.cost import Cost

ABOUT = 1.02
"""Up to this ratio two times count as equal."""

VIEWS = "views, which move nothing"
FROM_NUMBERS = "made once, before all loops, from numbers alone"
SMALL = "not tiled, small values that stay in the cache from op to op"
UNCUT = "not tiled, it has no axis that may be cut"
ALONE = "not tiled, no other op is left that could share a loop with it"
SHORT = "not tiled, its axes are too short to be cut"


def not_tiled(why: str) -> str:
    return f"not tiled, {why}"


def too_large(capacity: int) -> str:
    return f"not tiled, no tiles of it and the ops beside it are small enough for {size_text(capacity)}"


def tiled(loops: str, holds: int, before: int, after: int) -> str:
    """Of ops that are tiled: the loops, what a trip holds and what is moved without them and with them."""
    return f"{loops}; a trip holds {size_text(holds)}; {_moved(before, after)}"


def faster(before: Cost, after: Cost) -> str:
    """What to add where loops move no less, and are faster all the same."""
    return f"; with new memory and the start of each op counted, {_time(before.total, after.total)}"


def slower(before: Cost, after: Cost, is_harm: bool) -> str:
    """Of ops that are left as they are, for which loops were found.

    args:
        is_harm: loops would save new memory, and time only where that is dear.
    """
    if is_harm:
        return f"not tiled, loops would be slower where freed memory is used again: {_time(before.warm, after.warm)}"
    how = "be slower" if after.total > ABOUT * before.total else "hardly make a difference"
    return f"not tiled, loops would {how}: {_time(before.total, after.total)}"


def moves_no_less(before: int, after: int, by: str = "") -> str:
    """Of ops whose loops were made, and turned out to be of no use."""
    return f"not tiled, loops would save nothing: {_moved(before, after)}{by}"


def _moved(before: int, after: int) -> str:
    return f"{size_text(after)} moved instead of {size_text(before)}"


def _time(before: float, after: float) -> str:
    return f"the time of moving {size_text(after)} instead of {size_text(before)}"

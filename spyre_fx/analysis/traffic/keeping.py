"""What a scratchpad keeps for all trips of a loop beside one trip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spyre_fx.analysis.traffic.readers import is_cut_inside, is_whole_inside

if TYPE_CHECKING:
    from spyre_fx.analysis.traffic.scope import Trip


def kept_arguments(trip: Trip, room: int) -> dict[int, int]:
    """The arguments that fit into ``room``, with their bytes: whole, or slices for inner loops.

    First those that an inner loop reads whole in each of its trips, then the smallest. Addresses in a scratchpad of
    sticks are fixed, so that no loop reads a tile of what is kept there.
    """
    kept: dict[int, int] = {}
    is_fixed = trip.storage.stick_bytes > 0
    choice = [i for i in (*trip.whole, *trip.passed_on) if not (is_fixed and is_cut_inside(trip.body, trip.inputs[i]))]
    order = sorted((not is_whole_inside(trip.body, trip.inputs[i]), trip.size(i) * trip.times(i), i) for i in choice)
    for _, size, argument in order:
        if size <= room:
            kept[argument] = size
            room -= size
    return kept

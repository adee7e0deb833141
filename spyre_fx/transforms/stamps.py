"""What nodes of loop bodies carry in ``meta`` besides their value: where they come from and the loops around them.

``loop_group_id`` is the path of loop numbers, outermost first; ``loop_count`` the trips of each of these loops;
``loop_tiled_dims`` for each of them the positions in the op's iteration space that it cuts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import fx

from spyre_fx.transforms.atoms import AtomMap
from spyre_fx.transforms.place import Loop

_OWN = frozenset(("val", "tensor_meta", "example_value"))


def stamp(
    node: fx.Node,
    origin: fx.Node,
    loops: Sequence[Loop],
    index_map: AtomMap | None = None,
    cut_as: fx.Node | None = None,
) -> None:
    """Mark a node that stands for ``origin`` inside ``loops``.

    Args:
        index_map: how the node's dims are made of the atoms of ``cut_as`` (``origin`` by default), where the node is
            not that op itself.
    """
    node.meta.update(inherited(origin))
    if not loops:
        return
    node.meta["loop_group_id"] = loops[-1].path
    node.meta["loop_count"] = [loop.tiling.trips for loop in loops]
    node.meta["loop_tiled_dims"] = [_positions(loop.atom(cut_as or origin), loop, index_map) for loop in loops]


def _positions(atom: int | None, loop: Loop, index_map: AtomMap | None) -> list[int]:
    if atom is None:
        return []
    if index_map is None:
        return [loop.group.refined.atoms[atom].position]
    return [dim for dim, atoms in enumerate(index_map) if atom in atoms]


def inherited(origin: fx.Node) -> dict[str, Any]:
    """The meta data of the node that another one stands for, less what describes its value."""
    return {key: _own(value) for key, value in origin.meta.items() if key not in _OWN}


def _own(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, (dict, list, set)) else value

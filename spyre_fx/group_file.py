"""Groups in a file, for the command line.

A JSON object whose ``groups`` lists loops; a loop has ``ops`` or a ``body`` of ops and further loops::

    {"groups": [
        {"ops": ["add", "mul"], "levels": [{"count": 2, "dims": [0]}, {"count": 4, "dims": [1]}]},
        {"count": 4, "dims": {"x": 0}, "body": ["mm", {"count": 2, "dims": [1], "body": ["relu"]}]}
    ]}

``dims`` are axis positions of the first op, or name a dim of a value; left out, axis 0. ``multiple_of`` and
``accumulate`` may stand beside ``count``, as in ``LoopGroup``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spyre_fx.errors.options import GROUP_FILE, GROUP_FILE_ENTRY
from spyre_fx.transforms.groups import LoopGroup

_LEVEL_KEYS = {"count", "dims", "multiple_of", "accumulate"}


def read_groups(path: str | Path) -> list[Any]:
    """The groups in a file, as ``tile`` takes them.

    errors: ``OptionError`` for a missing or malformed file; it names the entry.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GROUP_FILE(path=path.name, problem=error.strerror or "cannot be read") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GROUP_FILE(path=path.name, problem=f"is no JSON ({error})") from None
    if not isinstance(data, dict) or not isinstance(data.get("groups"), list):
        raise GROUP_FILE(path=path.name, problem="has no list named groups")
    return [_group(entry, f"groups[{position}]") for position, entry in enumerate(data["groups"])]


def _group(entry: Any, where: str) -> Any:
    if not isinstance(entry, dict):
        raise GROUP_FILE_ENTRY(where=where, problem=f"is a {type(entry).__name__}")
    match entry:
        case {"ops": list(ops), "levels": list(levels), **rest} if not rest:
            return ops, [_level(level, f"{where}.levels[{depth}]") for depth, level in enumerate(levels)]
        case {"ops": list(ops), **rest} if "count" in rest:
            return _loop({**rest, "body": ops}, where)
        case {"body": list(), "count": _}:
            return _loop(entry, where)
    raise GROUP_FILE_ENTRY(where=where, problem=f"has the keys {', '.join(sorted(map(str, entry)))}")


def _level(level: Any, where: str) -> tuple[Any, Any]:
    if not isinstance(level, dict) or set(level) - {"count", "dims"} or "count" not in level:
        raise GROUP_FILE_ENTRY(where=where, problem="is not an object of count and dims")
    return level["count"], level.get("dims")


def _loop(entry: dict[str, Any], where: str) -> LoopGroup:
    unknown = set(entry) - _LEVEL_KEYS - {"body"}
    if unknown:
        raise GROUP_FILE_ENTRY(where=where, problem=f"has the unknown key {min(unknown)!r}")
    body = [
        item if isinstance(item, str) else _group(item, f"{where}.body[{position}]")
        for position, item in enumerate(entry["body"])
    ]
    return LoopGroup(entry["count"], entry.get("dims"), tuple(body), entry.get("multiple_of"), entry.get("accumulate"))

"""Which results of an op are read: what the device lacks for one that nobody reads does not matter."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from torch import fx


def only_first_is_read(node: fx.Node | None) -> bool:
    """Whether none of the results but the first reaches what the graph gives, be it through views that nobody reads."""
    assert node is not None, "a rule is called for a node"
    return not _reach(user for user in node.users if user.target is not operator.getitem or user.args[1] != 0)


def is_read(node: fx.Node | None, result: int) -> bool:
    """Whether the result at position ``result``, or all results together, reach what the graph gives."""
    assert node is not None, "a rule is called for a node"
    return _reach(user for user in node.users if user.target is not operator.getitem or user.args[1] == result)


def _reach(users: Iterable[fx.Node]) -> bool:
    """Whether what one of ``users`` computes reaches what the graph gives."""
    others = list(users)
    seen = set(others)
    while others:
        reader = others.pop()
        if reader.op == "output":
            return True
        others += [user for user in reader.users if user not in seen]
        seen |= set(reader.users)
    return False

"""Which results of an op are read: what the device lacks for one that nobody reads does not matter."""

from __future__ import annotations

import operator

from torch import fx


def only_first_is_read(node: fx.Node | None) -> bool:
    """Whether none of the results but the first reaches what the graph gives, be it through views that nobody reads."""
    assert node is not None, "a rule is called for a node"
    others = [user for user in node.users if user.target is not operator.getitem or user.args[1] != 0]
    seen = set(others)
    while others:
        reader = others.pop()
        if reader.op == "output":
            return False
        others += [user for user in reader.users if user not in seen]
        seen |= set(reader.users)
    return True

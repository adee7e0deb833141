"""What reads a value of one graph, through views too: ops, and loops tile by tile or whole."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.loops import loop_of


def readers_through_views(node: fx.Node) -> Iterator[fx.Node]:
    """What reads a value, through views too."""
    for user in node.users:
        yield from readers_through_views(user) if is_view(user) else (user,)


def is_read_once(node: fx.Node) -> bool:
    return len({*readers_through_views(node)}) == 1


def only_loops_read(body: fx.GraphModule, argument: fx.Node) -> bool:
    """Whether all that reads an argument, through views too, are loops."""
    users = list(argument.users)
    return bool(users) and all(
        only_loops_read(body, user) if is_view(user) else loop_of(body, user) is not None for user in users
    )


def is_cut_inside(body: fx.GraphModule, argument: fx.Node) -> bool:
    """Whether some loop, further in too, reads an argument, or a view of it, tile by tile."""
    for user in argument.users:
        loop = loop_of(body, user)
        if loop is None:
            if is_view(user) and is_cut_inside(body, user):
                return True
            continue
        places = [i for i, arg in enumerate(user.args) if arg is argument]
        insides = [(inner, inner.graph.find_nodes(op="placeholder")) for inner in map(loop.body, loop.phases)]
        if any(
            loop.arguments[i] is not None or is_cut_inside(inner, all_[i]) for i in places for inner, all_ in insides
        ):
            return True
    return False


def is_whole_inside(body: fx.GraphModule, argument: fx.Node) -> bool:
    """Whether a loop reads all of an argument, or of a view of it, in each of its trips."""
    for user in argument.users:
        loop = loop_of(body, user)
        if loop is not None and any(loop.arguments[i] is None for i, arg in enumerate(user.args) if arg is argument):
            return True
        if is_view(user) and is_whole_inside(body, user):
            return True
    return False

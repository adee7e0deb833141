"""What reads a value of one graph, through views too: ops, and loops tile by tile or whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import fx

from spyre_fx.analysis.effects import is_view
from spyre_fx.analysis.loops import bodies, loop_of


def readers_through_views(node: fx.Node) -> Iterator[fx.Node]:
    """What reads a value, through views too."""
    for user in node.users:
        yield from readers_through_views(user) if is_view(user) else (user,)


def inputs_of(gm: fx.GraphModule, call: fx.Node, places: Collection[int]) -> Iterator[tuple[fx.GraphModule, fx.Node]]:
    """Each body of the loop that ``call`` calls, with what stands in it for each of the arguments at ``places``."""
    for _, body in bodies(gm, call):
        inputs = body.graph.find_nodes(op="placeholder")
        yield from ((body, inputs[place]) for place in places)


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
        is_cut = any(loop.arguments[i] is not None for i in places)
        if is_cut or any(is_cut_inside(*inner) for inner in inputs_of(body, user, places)):
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

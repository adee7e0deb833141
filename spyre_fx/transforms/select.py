"""Choose the ops of a group by meaning: by a predicate, the ``nn.Module`` or the source lines that they come from.

(module path, 4)                    ->  (the ops of that module, 4)
(predicate, 4)                      ->  (the ops for which it is true, 4)
(lines("model.py", 10, 20), 4)      ->  (the ops that these lines compute, 4)
(every("layers.*.mlp"), 4, dims)    ->  (ops of layers.0.mlp, 4, dims), (ops of layers.1.mlp, 4, dims), ...
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePath
from typing import Any

from torch import fx

from spyre_fx.analysis.loops import bodies, with_bodies
from spyre_fx.analysis.modules import module_path
from spyre_fx.analysis.regions import is_part, is_tensor
from spyre_fx.errors import tiling as messages
from spyre_fx.errors.location import source_frames
from spyre_fx.transforms.groups import LoopGroup


@dataclass(frozen=True)
class Module:
    """The ops of the module at ``path`` and of those inside it."""

    path: str


@dataclass(frozen=True)
class Lines:
    """The ops that lines ``first`` to ``last`` of ``file`` compute, in whatever they call."""

    file: str
    first: int
    last: int


@dataclass(frozen=True)
class Every:
    """Each module whose path matches ``pattern``."""

    pattern: str


@dataclass(frozen=True)
class Asked:
    """One group as it was asked for."""

    position: int
    """Where it stands in the list of groups; the groups of one ``every`` share it."""
    name: str
    """How messages call it, as in ``groups[0]``."""
    group: Any


def module(path: str) -> Module:
    """The ops of the ``nn.Module`` at ``path``; a plain string does the same unless a node has that name."""
    return Module(path)


def lines(file: str, first: int, last: int) -> Lines:
    """The ops with a line of ``file`` from ``first`` to ``last``, both included, anywhere in their stack trace.

    Args:
        file: the path of the source file, or the end of it, such as ``"model.py"``.

    Raises:
        TilingError: the range is none.
    """
    numbers = all(isinstance(line, int) and not isinstance(line, bool) for line in (first, last))
    if not isinstance(file, str) or not file or not numbers or not 1 <= first <= last:
        raise messages.NOT_LINES(file=file, first=first, last=last)
    return Lines(file, first, last)


def every(pattern: str) -> Every:
    """In place of the ops of a group: one group per module that matches, all with the same count and dims.

    Args:
        pattern: a module path in which ``*``, ``?`` and ``[...]`` stand for characters between two dots.

    Keys of a dims dict that begin with the pattern name the same part of each match.

    Raises:
        TilingError: the pattern is no string.
    """
    if not isinstance(pattern, str):
        raise messages.NOT_A_PATTERN(pattern=pattern)
    return Every(pattern)


class Catalogue:
    """What a graph has to choose from."""

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.nodes = tuple(nodes)

    @cached_property
    def ops(self) -> tuple[fx.Node, ...]:
        """All that may be in a group; a ``getitem`` of an op's results comes along with the op."""
        return tuple(node for node in self.nodes if node.op == "call_function" and not is_part(node))

    @cached_property
    def modules(self) -> Mapping[str, Sequence[fx.Node]]:
        """The ops of each module, those of the modules inside it included."""
        found: dict[str, list[fx.Node]] = {}
        for op in self.ops:
            path = module_path(op)
            for depth in range(1, len(path) + 1):
                found.setdefault(".".join(path[:depth]), []).append(op)
        return found

    def expand(self, groups: Sequence[Any]) -> list[Asked]:
        """The groups with one for each match of an ``every``; one that matches nothing stays, for ``choose`` to refuse.

        (every("layers.*"), 4)  ->  (module("layers.0"), 4), (module("layers.1"), 4)
        """
        asked: list[Asked] = []
        for position, group in enumerate(groups):
            name = f"groups[{position}]"
            pattern = _pattern(group)
            paths = [] if pattern is None else self._matches(pattern)
            asked += [Asked(position, f"{name} ({path})", _matched(group, pattern, path)) for path in paths]
            if not paths:
                asked.append(Asked(position, name, group))
        return asked

    def choose(self, item: Any, group: str) -> Sequence[fx.Node]:
        """The ops that ``item`` stands for, in graph order.

        errors: ``TilingError`` where there are none.
        """
        match item:
            case str() if item in self.modules:
                return self.modules[item]
            case str():
                loop = self._loop_around(item)
                if loop is not None:
                    raise messages.IN_A_LOOP(group=group, name=item, loop=loop.name)
                raise messages.UNKNOWN_NODE(group=group, name=item, nearest=self.nearest(item))
            case Module(path):
                if path not in self.modules:
                    raise messages.UNKNOWN_MODULE(group=group, choice=f"module {path!r}", nearest=self._near_path(path))
                return self.modules[path]
            case Lines():
                return self._on_lines(item, group)
            case Every(pattern) if not self._matches(pattern):
                near = self._near_path(pattern)
                raise messages.UNKNOWN_MODULE(group=group, choice=f"every({pattern!r})", nearest=near)
            case _ if callable(item):
                return self._that(item, group)
        raise messages.BAD_OPS(group=group, found=f"a list with {item!r:.80}")

    def result(self, path: str) -> fx.Node | None:
        """The last tensor that the module at ``path`` computes."""
        return next((op for op in reversed(self.modules.get(path, ())) if is_tensor(op)), None)

    def nearest(self, name: str) -> str:
        """Node and module whose names are most like ``name``, as the end of a sentence."""
        nodes = difflib.get_close_matches(name, [node.name for node in self.nodes], n=1, cutoff=0.4)
        found = [*map(repr, nodes), *self._near_paths(name)]
        return f", such as {' or '.join(found)}" if found else ""

    def _loop_around(self, name: str) -> fx.Node | None:
        """The loop of the graph that has a node of that name inside, at any depth."""
        for node in self.nodes:
            gm = node.graph.owning_module
            inner = [] if gm is None else [one for _, body in bodies(gm, node) for one in with_bodies(body)]
            if any(one.name == name for body in inner for one in body.graph.nodes):
                return node
        return None

    def _near_paths(self, path: str) -> list[str]:
        return [f"module {near!r}" for near in difflib.get_close_matches(path, self.modules, n=1, cutoff=0.4)]

    def _near_path(self, path: str) -> str:
        return "".join(f", such as {near}" for near in self._near_paths(path))

    def _matches(self, pattern: str) -> list[str]:
        parts = pattern.split(".")
        return [path for path in self.modules if _fits(path.split("."), parts)]

    def _on_lines(self, wanted: Lines, group: str) -> Sequence[fx.Node]:
        frames = {op: [line for file, line in source_frames(op) if _ends(file, wanted.file)] for op in self.ops}
        found = [op for op, numbers in frames.items() if any(wanted.first <= n <= wanted.last for n in numbers)]
        files = {file for op in self.ops for file, _ in source_frames(op) if _ends(file, wanted.file)}
        if found and len(files) == 1:
            return found
        numbers = [line for lines in frames.values() for line in lines]
        if len(files) > 1:
            reason = f"that is the end of {' and of '.join(sorted(files))}"
        elif numbers:
            reason = f"the ops of that file come from lines {min(numbers)} to {max(numbers)}"
        else:
            reason = "no op of the graph comes from that file"
        choice = f"lines {wanted.first} to {wanted.last} of {wanted.file!r}"
        raise messages.NO_LINES(group=group, choice=choice, reason=reason)

    def _that(self, predicate: Any, group: str) -> Sequence[fx.Node]:
        shown = getattr(predicate, "__name__", repr(predicate))
        try:
            found = [op for op in self.ops if predicate(op)]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise messages.PREDICATE_FAILED(group=group, predicate=shown, error=reason) from error
        if not found:
            raise messages.NOTHING_CHOSEN(group=group, predicate=shown)
        return found


def lead_first(ops: Sequence[fx.Node]) -> Sequence[fx.Node]:
    """The ops with the first one in front that reads more than parameters and constants.

    ``permute(weight), addmm(bias, x, permute)`` -> ``addmm, permute``: positions are then axes of the ``addmm``.
    """
    fixed: set[fx.Node] = set()
    for op in ops:
        if any(operand.op != "get_attr" and operand not in fixed for operand in op.all_input_nodes):
            return [op, *(other for other in ops if other is not op)]
        fixed.add(op)
    return ops


def _pattern(group: Any) -> str | None:
    match group:
        case LoopGroup(body=Every(pattern)) | (Every(pattern), *_):
            return pattern
    return None


def _matched(group: Any, pattern: str | None, path: str) -> Any:
    """The group for one match: the module in place of the pattern, in the keys of its dims as well."""

    def own(dims: Any) -> Any:
        match dims:
            case Mapping():
                return {_own_key(key, str(pattern), path): entry for key, entry in dims.items()}
            case (tuple() | list()) as levels:
                return [own(level) for level in levels]
        return dims

    if isinstance(group, LoopGroup):
        return dataclasses.replace(group, dims=own(group.dims), body=(Module(path),))
    return (Module(path), *(own(part) for part in group[1:]))


def _own_key(key: Any, pattern: str, path: str) -> Any:
    begins = isinstance(key, str) and (key == pattern or key.startswith(f"{pattern}."))
    return path + key[len(pattern) :] if begins else key


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(path) == len(pattern) and all(map(fnmatchcase, path, pattern))


def _ends(file: str, end: str) -> bool:
    parts = PurePath(end).parts
    return PurePath(file).parts[-len(parts) :] == parts

"""``spyre_hint``: the ops inside its ``with`` block carry the hint in ``meta["custom"]``.

    with spyre_hint(slices={"M": 4}):           mm   custom = {"spyre_hint:1f": {M: 4}, "spyre_hint:9c": {K: 2}}
        with spyre_hint(slices={"K": 2}):       add  custom = {"spyre_hint:1f": {M: 4}}
            y = x @ w
        z = y + b

Each scope has a key of its own, so that two scopes in a row with the same dims stay two; the order of the keys is that
of the nest, outermost first. ``meta["custom"]`` is what torch carries through Dynamo, torch.export, a saved ``.pt2``
file and AOTAutograd, from forward to backward ops too (``torch.fx.traceback.annotate``).
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from spyre_fx.capture.dim_names import declared, names_of, run_by_dynamo
from spyre_fx.capture.name_marks import name_traced
from spyre_fx.errors import HintError, HintWarning
from spyre_fx.errors import hints as messages
from spyre_fx.errors.calls import checked_call
from spyre_fx.torch_compat import annotate, give_up_graph, is_symbolically_traced, proxy_tracer, traced_inputs

_PREFIX = "spyre_hint:"


@dataclass(frozen=True)
class HintScope:
    """One ``with spyre_hint(...)`` block."""

    key: str
    slices: tuple[tuple[str, int], ...]
    """Names and counts of its loops, outermost first."""
    named_dims: tuple[tuple[str, int], ...] | None = None
    """Names and sizes of the dims of what ops without tensor operands make."""

    def __str__(self) -> str:
        named = [f"named_dims={[name for name, _ in self.named_dims]}"] if self.named_dims else []
        return f"spyre_hint({', '.join([f'slices={dict(self.slices)}'] * bool(self.slices) + named)})"


@checked_call
def spyre_hint(
    *,
    slices: Mapping[str, int] | None = None,
    tiles: Mapping[str, int] | None = None,
    num_tiles_per_dim: Mapping[str, int] | None = None,
    named_dims: Sequence[str | None] | None = None,
) -> Any:
    """A context manager: run the ops of the block tile by tile along named dims.

    Blocks inside of blocks are loops inside of loops; several dims of one block are a nest, in the order given. A block
    belongs into the function that is captured or compiled (or around ``capture``, for the whole graph). Each block that
    is made is a loop of its own; entered twice, it is one loop for both. In eager mode it changes nothing.

    args:
        slices: for each named dim the number of tiles. ``tiles`` and ``num_tiles_per_dim`` are other words for it.
        named_dims: declared names, or None, for the dims of what ops without tensor operands make (``torch.zeros``).

    errors: ``HintError`` for counts and names that cannot be, and where the tracer cannot record the block.

    >>> with spyre_hint(slices={"A": 2}):
    ...     pass
    """
    given = {"slices": slices, "tiles": tiles, "num_tiles_per_dim": num_tiles_per_dim}
    asked = [(word, value) for word, value in given.items() if value is not None]
    if torch.compiler.is_dynamo_compiling():
        constants = [
            (
                word,
                tuple([(name, _constant(count)) for name, count in value.items()])
                if isinstance(value, dict)
                else value,
            )
            for word, value in asked
        ]
        problem, note = _note(tuple(constants), named_dims)
        if problem is not None:
            give_up_graph(problem)
            raise HintError(problem)
        return _DynamoBlock(note)
    problem, note = _note(tuple(asked), named_dims)
    if problem is not None:
        raise HintError(problem)
    return _Block(note)


def _constant(count: Any) -> Any:
    """The count; where it follows from sizes that may change, Dynamo makes it a constant of the graph by this."""
    return len(range(count)) if type(count) is int and count > 0 else count


def scopes_of(node: fx.Node) -> tuple[HintScope, ...]:
    """The blocks that a node stands in, outermost first."""
    custom = node.meta.get("custom") or {}
    return tuple(_scope(key, note) for key, note in custom.items() if key.startswith(_PREFIX))


def add_surrounding_scopes(graph: fx.Graph) -> None:
    """Put all ops of a graph, in place, into the blocks that this thread is in."""
    _prepend(list(graph.nodes), _surrounding())


def check_no_surrounding_scope() -> None:
    """errors: ``HintError`` if this thread is in a block, which cannot reach into what is compiled now."""
    for key, note in _surrounding().items():
        raise messages.AROUND_COMPILED(hint=_scope(key, note))


Note = dict[str, dict[str, Any]]
"""What ``meta["custom"]`` holds of one block (or several): values as JSON has them, since ``.pt2`` files are JSON."""


@dataclass(frozen=True)
class _Entry:
    """A block that this thread is in, and the last node of the graph under construction when it was entered."""

    note: Note
    graph: fx.Graph | None
    last: fx.Node | None

    def nodes(self) -> Iterator[fx.Node]:
        """The nodes that were made since."""
        if self.graph is None or self.last is None:
            yield from self.graph.nodes if self.graph is not None else ()
            return
        node = self.last.next
        while node.op != "root":
            yield node
            node = node.next


_ENTERED: ContextVar[tuple[_Entry, ...]] = ContextVar("entered hint blocks", default=())


class _Block(contextlib.ContextDecorator):
    """What ``spyre_hint`` gives outside of Dynamo."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def __enter__(self) -> None:
        if torch.compiler.is_dynamo_compiling():  # made outside of the compiled function, which Dynamo gives up for it
            _refuse(self.note)
        tracer = proxy_tracer()
        if tracer is None and is_symbolically_traced():
            raise messages.NOT_RECORDED(hint=_shown(self.note))
        if tracer is not None:
            _name_inputs(tracer)
        graph = None if tracer is None else tracer.graph
        last = None if graph is None else next(iter(reversed(graph.nodes)), None)
        _ENTERED.set((*_ENTERED.get(), _Entry(self.note, graph, last)))

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        *outer, entry = _ENTERED.get()
        _ENTERED.set(tuple(outer))
        nodes = [node for node in entry.nodes() if node.op == "call_function"]
        _prepend(nodes, self.note)
        if entry.graph is not None and not nodes and kind is None:
            warnings.warn(messages.EMPTY_BLOCK.format(hint=_shown(self.note)), HintWarning, stacklevel=2)


class _DynamoBlock:
    """What ``spyre_hint`` gives to Dynamo."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def __enter__(self) -> None:
        if not torch.compiler.is_dynamo_compiling():  # a graph break in the block has made Dynamo give up the function
            _refuse(self.note)
        self._annotation = _annotated(self.note)
        self._annotation.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._annotation.__exit__(*error)


@contextlib.contextmanager
def _annotated(note: Note) -> Iterator[None]:
    """Torch's own context manager cannot be entered by hand while Dynamo traces."""
    with annotate(note):
        yield


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _refuse(note: Note) -> None:
    raise messages.NOT_COMPILED(hint=_shown(note))


def _name_inputs(tracer: fx.Tracer) -> None:
    """Give the inputs of the graph under construction the names of the tensors that the tracer was called with."""
    for tensor, node in traced_inputs(tracer):
        names = names_of(tensor)
        if names is not None:
            name_traced(tracer, node, names)


def _surrounding() -> Note:
    return {key: note for entry in _ENTERED.get() if entry.graph is None for key, note in entry.note.items()}


def _prepend(nodes: Sequence[fx.Node], note: Note) -> None:
    for node in nodes:
        if note and node.op == "call_function":
            node.meta["custom"] = {**note, **node.meta.get("custom", {})}


def _shown(note: Note) -> str:
    return ", ".join(str(_scope(key, content)) for key, content in note.items())


def _scope(key: str, note: Mapping[str, Any]) -> HintScope:
    named = note.get("named_dims")
    slices = tuple((str(name), int(count)) for name, count in note["slices"])
    return HintScope(key, slices, None if named is None else tuple((str(name), int(size)) for name, size in named))


@run_by_dynamo
def _note(asked: Sequence[tuple[str, Any]], named_dims: Any) -> tuple[str | None, Note]:
    """What is wrong with the arguments of ``spyre_hint``, and what to write into ``meta["custom"]``."""
    try:
        content: dict[str, Any] = {"slices": _slices(asked)}
        if named_dims is not None:
            content["named_dims"] = _named_dims(named_dims)
        if not any(content.values()):
            raise messages.EMPTY_HINT()
    except HintError as error:
        return str(error), {}
    return None, {_PREFIX + uuid.uuid4().hex: content}


def _slices(asked: Sequence[tuple[str, Any]]) -> list[list[Any]]:
    if len(asked) > 1:
        raise messages.TWO_WORDS(words=" and ".join(word for word, _ in asked))
    for word, value in asked:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, (list, tuple)) or not all(
            isinstance(pair, tuple) and len(pair) == 2 for pair in pairs
        ):
            raise messages.BAD_SLICES(word=word, value=repr(value))
        for name, count in pairs:
            if not isinstance(name, str) or not name:
                raise messages.BAD_NAME(name=name, kind=type(name).__name__)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise messages.BAD_TILES(name=name, count=count, kind=type(count).__name__)
        return [[name, count] for name, count in pairs]
    return []


def _named_dims(names: Any) -> list[list[Any]]:
    if not isinstance(names, (list, tuple)):
        raise messages.BAD_NAMES(names=repr(names))
    return [["", 0] if name is None else [name, declared(name)] for name in names]

"""What values and ops of a graph take where a target stores them, however loops cut them.

Each answer is worked out once: the search asks for it again with every tree of loops that an op may stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import fx

from spyre_fx.analysis.iteration import IndexMap
from spyre_fx.analysis.regions import Value
from spyre_fx.analysis.rules.pointwise import pointwise
from spyre_fx.analysis.rules.table import rule_for
from spyre_fx.analysis.storage import PLAIN, Storage
from spyre_fx.analysis.traffic.cores import is_reduced
from spyre_fx.analysis.traffic.turning import lane_dims, turned_by

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

ROW_VALUES = 6
"""Values of each row that an online softmax holds at once: running ones, those before, and the scale between them."""
ROW_STICKS = 5
"""The same where each fills a stick: most of them are gone when the scores are widened, which take more."""


@dataclass(frozen=True)
class OpSizes:
    """What one op takes besides its operands and results."""

    scratch_bytes: int
    """Held while it runs."""
    step_bytes: int
    """Moved by its steps, were all of their rows in main memory."""
    number_bytes: int
    """Read of numbers that stand in its call."""
    runs_in_place: bool
    """Whether its result can take the place of an operand."""
    is_reduced: bool
    """Whether some reader reduces the last dim of its result, where several cores divide it."""
    turned: tuple[int, ...]
    """The positions of the operands that it wants in other sticks."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """What values take: plain bytes, or whole sticks.

    args:
        sparse: the nodes whose values have one element to a stick although none of their dims says so.
    """

    storage: Storage = PLAIN
    sparse: Mapping[fx.Node, bool] = field(default_factory=dict)
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def of(self, value: Value) -> int:
        return self.in_dtype(value, value.tensor.dtype)

    def in_dtype(self, value: Value, dtype: torch.dtype) -> int:
        """Bytes of the value in another type."""
        return self._once((value, dtype), lambda: self._bytes(value, tuple(value.tensor.shape), dtype))

    def of_op(self, op: fx.Node) -> OpSizes:
        """What an op takes by itself."""
        return self._once(op, lambda: self._of_op(op))

    def lane_dims(self, op: fx.Node, maps: Sequence[IndexMap]) -> Sequence[tuple[torch.Tensor, int | None]]:
        """As ``turning.lane_dims``: refinement splits axes and takes none away, so that any maps of the op will do."""
        return self._once(("lanes", op), lambda: lane_dims(op, maps, self.storage.lanes))

    def unrepeated(self, value: Value) -> int:
        """Bytes of the elements that a (broadcast) tensor really has."""
        return self._once(("unrepeated", value), lambda: self._unrepeated(value))

    def same(self, thing: H) -> H:
        """The one of all that equal ``thing`` which came first, with what it knows already."""
        found: H = self._known.setdefault(("same", thing), thing)
        return found

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def _of_op(self, op: fx.Node) -> OpSizes:
        storage = self.storage
        return OpSizes(
            storage.scratch_bytes(op),
            sum(storage.step_bytes(op)),
            storage.number_bytes(op),
            rule_for(op.target) is pointwise or storage.runs_in_place(op),
            storage.cores > 1 and is_reduced(op),
            turned_by(op, storage.lanes) if storage.stick_bytes else (),
        )

    def _unrepeated(self, value: Value) -> int:
        tensor = value.tensor
        shown = tuple(size if stride else 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return self._bytes(value, shown, tensor.dtype)

    def running_rows(self, scores: Value, rows: int, dtype: torch.dtype) -> int:
        """What an online softmax holds for so many rows beside their scores."""
        in_sticks = self.storage.stick_bytes and self.storage.lanes.of(scores.node, scores.result) is None
        return rows * (ROW_STICKS * self.storage.stick_bytes if in_sticks else ROW_VALUES * dtype.itemsize)

    def _bytes(self, value: Value, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        lane = self.storage.lanes.of(value.node, value.result)
        return self.storage.bytes_of(shape, dtype, self.sparse.get(value.node, False), lane)

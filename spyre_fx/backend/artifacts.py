"""What was compiled, kept so that identical graphs (the layers of a model, say) are compiled once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from torch import fx

from spyre_fx.backend.boxed import Boxed
from spyre_fx.backend.choose import Choice
from spyre_fx.backend.kernels import Kernels
from spyre_fx.codegen.bundle import Bundle

MOST = 256
"""How many graphs are kept; the one that was used longest ago goes first."""


@dataclass(frozen=True)
class Artifact:
    """One compiled graph. It holds no tensors of the user's and nothing of a call, so that it may serve many."""

    choice: Choice
    tiled: fx.GraphModule
    bundle: Bundle | None
    run: Boxed


class Artifacts:
    """Compiled graphs by a key. Threads may share it: two that compile the same graph at once both do the work."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Artifact] = OrderedDict()
        self._lock = threading.Lock()
        self.kernels = Kernels()

    def get(self, key: Hashable) -> Artifact | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, artifact: Artifact) -> None:
        with self._lock:
            self._kept[key] = artifact
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)

"""What a compilation leaves for the user to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import fx


@dataclass
class GraphRecord:
    """One compiled graph: forward, backward or inference.

    ``reasons`` has one line per group that was chosen or passed over.
    """

    stage: str
    captured: fx.GraphModule
    groups: list[Any] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    tiled: fx.GraphModule | None = None
    bundle: Any = None
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        nodes = sum(node.op.startswith("call") for node in self.captured.graph.nodes)
        loops = [node for node in self.tiled.graph.nodes if node.op == "call_module"] if self.tiled else []
        times = ", ".join(f"{name} {value:.3f} s" for name, value in self.seconds.items())
        lines = [f"{self.stage}: {nodes} ops, {len(loops)} loops ({times})", *(f"  {line}" for line in self.reasons)]
        return "\n".join(lines)

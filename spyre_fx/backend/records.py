"""What a compilation leaves for the user to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import fx

from spyre_fx.shows import counted

if TYPE_CHECKING:
    from spyre_fx.codegen.bundle import Bundle


@dataclass
class GraphRecord:
    """One compiled graph."""

    stage: str
    """``"inference"``, ``"forward"`` or ``"backward"``."""
    captured: fx.GraphModule
    """The functional ATen graph as AOTAutograd made it."""
    groups: list[Any] = field(default_factory=list)
    """What was given to ``tile``."""
    reasons: list[str] = field(default_factory=list)
    """A line for each group that was chosen or passed over, and for each fallback."""
    tiled: fx.GraphModule | None = None
    """The graph with its loops; the captured one where nothing was tiled."""
    bundle: Bundle | None = None
    """What the simulated device runs; None with ``execute="cpu"``, and where the graph could not be lowered."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of each step."""
    reused: bool = False
    """Whether an identical graph had been compiled before, so that only the record is new."""

    @property
    def loops(self) -> int:
        """How many loops the tiled graph calls."""
        return len(self.tiled.graph.find_nodes(op="call_module")) if self.tiled is not None else 0

    def explain(self) -> str:
        """What was done and why, in a few lines."""
        ops = sum(node.op.startswith("call") for node in self.captured.graph.nodes)
        times = ", ".join(f"{name} {value:.3f} s" for name, value in self.seconds.items())
        how = "as compiled before" if self.reused else times
        head = f"{self.stage}: {counted(ops, 'op')}, {counted(self.loops, 'loop')} ({how})"
        return "\n".join([head, *(f"  {line}" for line in self.reasons)])

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"GraphRecord({self.stage}, {counted(self.loops, 'loop')})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from spyre_fx.viz.drawing import draw  # made when it is shown, which most compilations never are

        picture = draw(self.captured, after=self.tiled if self.loops else None)
        return {"image/svg+xml": picture.to_svg(), "text/plain": str(self)}

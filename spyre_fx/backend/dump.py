"""Everything that a compilation goes through, as files that a person can read.

dump/graph_000_inference/0_captured.py    the graph as code           (.svg: as a picture)
                         1_groups.txt     what is tiled, and why
                         2_tiled.py       the graph with its loops    (.svg: as a picture)
                         3_summary.txt    each loop and op: count, dims, bytes per tile
                         4_bundle/        what the simulated device runs
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import fx

from spyre_fx.errors import SpyreFxError
from spyre_fx.errors.options import NO_FOLDER

if TYPE_CHECKING:
    from spyre_fx.codegen.bundle import Bundle


class Dump:
    """The folder of one graph.

    args:
        folder: where the folders of all graphs go; made if it is missing. Graphs are numbered on from those in it.
        stage: ends the name of the graph's folder.

    errors: ``OptionError`` where no folder can be made.
    """

    def __init__(self, folder: str | Path, stage: str) -> None:
        try:
            self.path = _new_folder(Path(folder), stage)
        except OSError as error:
            raise NO_FOLDER(path=folder, reason=error.strerror or error) from None

    def graph(self, name: str, gm: fx.GraphModule) -> None:
        """Code and picture."""
        from spyre_fx.viz.drawing import draw

        code = gm.print_readable(print_output=False, include_stride=True)
        (self.path / f"{name}.py").write_text(code + "\n", encoding="utf-8")
        draw(gm).save(self.path / f"{name}.svg")

    def groups(self, groups: Sequence[Any], reasons: Sequence[str]) -> None:
        lines = [*reasons, *(f"group {position}: {group}" for position, group in enumerate(groups))]
        self.text("1_groups", "\n".join(lines))

    def text(self, name: str, text: str) -> None:
        (self.path / f"{name}.txt").write_text(text + "\n", encoding="utf-8")

    def bundle(self, bundle: Bundle) -> None:
        """The files of the bundle, or why there are none."""
        try:
            bundle.save(self.path / "4_bundle")
        except SpyreFxError as error:
            self.text("4_bundle", str(error))


def _new_folder(parent: Path, stage: str) -> Path:
    """A folder under the next free number; other threads and processes may write to the same place."""
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        number = 1 + max((_number(path) for path in parent.glob("graph_*_*")), default=-1)
        path = parent / f"graph_{number:03d}_{stage}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path


def _number(path: Path) -> int:
    number = path.name.split("_")[1]
    return int(number) if number.isdigit() else -1

"""Run the percent scripts of this folder and write each with its outputs as a notebook beside it.

    python notebooks/build.py               # all of them
    python notebooks/build.py first_tour    # one

jupytext reads a script, and nbclient runs its cells in a kernel of its own. Needs the extra ``notebooks``.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
}

_CELL_FILE = re.compile(r"[^\s\"<>]*ipykernel_\d+/\d+\.py")
"""What a kernel calls the file of a cell: another name in each run."""


def scripts() -> list[Path]:
    """The percent scripts of this folder."""
    return [path for path in sorted(FOLDER.glob("*.py")) if path.name != Path(__file__).name]


def notebook(script: Path) -> nbformat.NotebookNode:
    """Run a script from top to bottom in an empty folder and return the notebook, outputs included.

    Raises:
        CellExecutionError: from a cell that fails.
        RuntimeError: where a cell writes to stderr, as warnings do.
    """
    made = jupytext.read(script, fmt="py:percent")
    with tempfile.TemporaryDirectory() as folder:
        # The kernel is spoken to through files in the folder: no port is open.
        sockets = Config({"KernelManager": {"transport": "ipc", "ip": str(Path(folder) / "kernel")}})
        client = NotebookClient(made, config=sockets, timeout=600, record_timing=False, coalesce_streams=True)
        client.execute(cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(_paths())})
    for number, cell in enumerate(made.cells, 1):
        cell.id, cell.metadata = f"cell-{number}", nbformat.NotebookNode()
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                raise RuntimeError(f"cell {number} of {script.name} writes to stderr:\n{output['text']}")
            for texts, kind in [(output, "text"), *((output.get("data", {}), kind) for kind in output.get("data", ()))]:
                if kind in texts:
                    texts[kind] = _CELL_FILE.sub("cell", texts[kind])
    made.metadata = nbformat.from_dict(METADATA)
    made.nbformat, made.nbformat_minor = 4, 5
    return made


def _paths() -> list[str]:
    """Where the kernel finds the library of this checkout, installed or not."""
    return [str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]


def main(names: Sequence[str]) -> None:
    for script in scripts():
        if not names or script.stem in names:
            text = nbformat.writes(notebook(script))
            script.with_suffix(".ipynb").write_text(text + "\n", encoding="utf-8")
            print(f"{script.with_suffix('.ipynb').name}: {len(text) // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])

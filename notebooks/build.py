"""Run the percent scripts of this folder and write each with its outputs as a notebook beside it.

    python notebooks/build.py               # all of them
    python notebooks/build.py first_tour    # one

A script is cut at lines that begin with ``# %%``; ``# %% [markdown]`` begins a cell of text in comments. The value of
the last expression of a cell is shown as a notebook would show it. Needs the standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class Cell:
    """One cell of a percent script."""

    is_text: bool
    source: str


def scripts() -> list[Path]:
    """The percent scripts of this folder."""
    return [path for path in sorted(FOLDER.glob("*.py")) if path.name != Path(__file__).name]


def cells_of(script: Path) -> list[Cell]:
    """The cells of a percent script, in order."""
    cells = []
    for block in ("\n" + script.read_text("utf-8")).split("\n# %%")[1:]:
        head, _, body = block.partition("\n")
        is_text = head.strip() == "[markdown]"
        lines = body.strip("\n").split("\n")
        cells.append(
            Cell(is_text, "\n".join(line.removeprefix("# ").removeprefix("#") if is_text else line for line in lines))
        )
    return cells


def run(cell: Cell, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Execute a cell of code in ``names`` and return its outputs in the notebook format."""
    tree = ast.parse(cell.source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        shown = {kind: _lines(text) for kind, text in _shown(value).items()}
        outputs.append({"data": shown, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _shown(value: Any) -> dict[str, str]:
    bundle = getattr(value, "_repr_mimebundle_", None)
    return dict(bundle()) if bundle is not None else {"text/plain": repr(value)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def notebook(script: Path) -> dict[str, Any]:
    """Run a script from top to bottom in an empty folder and return the notebook, outputs included."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells_of(script), 1):
                entry: dict[str, Any] = {"cell_type": "markdown" if cell.is_text else "code", "id": f"cell-{number}"}
                entry |= {"metadata": {}, "source": _lines(cell.source)}
                if not cell.is_text:
                    entry |= {"execution_count": number, "outputs": run(cell, number, names)}
                cells.append(entry)
        finally:
            os.chdir(before)
    language = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": _KERNEL, "language_info": language},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def main(names: Sequence[str]) -> None:
    for script in scripts():
        if not names or script.stem in names:
            text = json.dumps(notebook(script), indent=1, ensure_ascii=False, sort_keys=True)
            script.with_suffix(".ipynb").write_text(text + "\n", encoding="utf-8")
            print(f"{script.with_suffix('.ipynb').name}: {len(text) // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])

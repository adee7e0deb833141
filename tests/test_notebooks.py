"""Every notebook runs from top to bottom, shows pictures by the rules, and is what its script says."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000
build = runpy.run_path(str(FOLDER / "build.py"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def shown(notebook: Any) -> Iterator[dict[str, str]]:
    """The data of all outputs but printed text."""
    for cell in notebook["cells"]:
        yield from (output["data"] for output in cell.get("outputs", ()) if "data" in output)


def test_each_script_has_its_notebook():
    assert [path.stem for path in build["scripts"]()] == [path.stem for path in NOTEBOOKS]
    assert "first_tour" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    fresh, kept = build["notebook"](path.with_suffix(".py")), read(path)
    sources = [[(cell["cell_type"], cell["source"]) for cell in one["cells"]] for one in (fresh, kept)]
    assert sources[0] == sources[1], "the script has changed: run python notebooks/build.py"
    kinds = [[sorted(data) for data in shown(one)] for one in (fresh, kept)]
    assert kinds[0] == kinds[1], "other outputs than those kept: run python notebooks/build.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_small_and_its_pictures_are_valid(path: Path) -> None:
    assert path.stat().st_size < LARGEST
    pictures = [data for data in shown(read(path)) if "image/svg+xml" in data]
    assert pictures
    for data in pictures:
        assert data.keys() == {"image/svg+xml", "text/plain"}
        assert ElementTree.fromstring(data["image/svg+xml"]).tag.endswith("svg")


def test_a_cell_that_warns_is_an_error(tmp_path):
    script = tmp_path / "warns.py"
    script.write_text("# %%\nimport warnings\n\nwarnings.warn('old')\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"cell 1 of warns.py writes to stderr:\n.*old"):
        build["notebook"](script)

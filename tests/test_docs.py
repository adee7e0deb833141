"""The generated pages are fresh, and every link leads somewhere."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
PAGES = runpy.run_path(str(ROOT / "docs" / "build.py"))["pages"]()
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    kept = (ROOT / "docs" / name).read_text("utf-8")
    assert kept == PAGES[name], "run make docs"


def test_the_picture_is_valid() -> None:
    ElementTree.fromstring(PAGES["canonical.svg"])
    assert "build.py" not in PAGES["canonical.svg"] and "/docs" not in PAGES["canonical.svg"]


def test_every_public_name_and_error_is_described() -> None:
    import spyre_fx

    for name in spyre_fx.__all__:
        assert name.startswith("_") or f"`{name}" in PAGES["api.md"] or f"`{name}." in PAGES["api.md"], name
    assert "0x" not in PAGES["api.md"]
    assert PAGES["troubleshooting.md"].count("*To fix:*") > 100


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
    for link in LINK.findall(prose):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        found = (path.parent / target) if target else path
        assert found.exists(), f"{path.name} links to {link}"
        if anchor:
            assert anchor in anchors(found), f"{path.name} links to {link}"


def anchors(path: Path) -> set[str]:
    """The anchors that code hosts make of headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_notebooks_that_texts_name_exist() -> None:
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    named = set(re.findall(r"`(\w+)` notebook", " ".join(path.read_text("utf-8") for path in DOCUMENTS)))
    tour = json.loads((ROOT / "notebooks" / "first_tour.ipynb").read_text("utf-8"))["cells"][-1]["source"]
    named |= set(re.findall(r"`(\w+)` \(", "".join(tour)))
    assert named and named <= notebooks

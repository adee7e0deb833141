"""What the README and the examples show runs, and gives the figures that it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import spyre_fx

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(code, output, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, (code, output) in enumerate(CODE.findall(document.read_text("utf-8")), 1)
]


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_a_block_of_code_runs_and_prints_what_stands_below_it(
    code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "block", "exec"), names)
    if output:
        assert capsys.readouterr().out == output


def test_the_canonical_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "canonical.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert "affine_map<(d0, d1)[s0] -> (s0 + 65536*d0 + 2097152*d1)>" in text
    for name, value in [
        ("dispatches", "16"),
        ("HBM bytes", "32 MiB"),
        ("LX bytes", "16 MiB"),
        ("LX high water per core", "32 KiB"),
    ]:
        assert re.search(rf"^{name} +{value}$", text, re.MULTILINE), name
    assert re.search(rf"^HBM bytes +{32 << 20} +{48 << 20} +1\.50$", text, re.MULTILINE)
    saved = tmp_path / "out" / "canonical"
    assert str(saved) in text
    assert {path.name for path in saved.iterdir()} >= {"bundle.mlir", "bundle.json", "sdsc_0.json", "sdsc_1.json"}
    assert spyre_fx.Bundle.load(saved).mlir() in text

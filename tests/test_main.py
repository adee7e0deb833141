"""The command line, from a file that another process made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from spyre_fx.__main__ import main

MAKE = """
import sys, torch

class Model(torch.nn.Module):
    def forward(self, a, b, c):
        return (a + b) * c

args = tuple(torch.arange(64 * 128).reshape(64, 128).remainder(k).half() for k in (7, 5, 3))
torch.export.save(torch.export.export(Model(), args), sys.argv[1])
"""
GROUPS = {"groups": [{"ops": ["add", "mul"], "levels": [{"count": 2, "dims": [0]}, {"count": 2, "dims": [1]}]}]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.pt2"
    subprocess.run([sys.executable, "-c", MAKE, str(path)], check=True)
    return path


@pytest.fixture
def groups(tmp_path):
    path = tmp_path / "groups.json"
    path.write_text(json.dumps(GROUPS))
    return path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_plan_names_the_ops(capsys, model):
    code, out, _ = run(capsys, "plan", model)
    assert code == 0 and "elementwise_fusion" in out
    code, out, _ = run(capsys, "plan", model, "--json")
    assert code == 0 and json.loads(out)["plan"]


def test_tile_shows_the_loops(capsys, model, groups):
    code, out, _ = run(capsys, "tile", model, "--groups", groups)
    assert code == 0 and "loop_0" in out and "2" in out
    code, out, _ = run(capsys, "tile", model, "--groups", groups, "--json")
    assert [loop["trips"] for loop in json.loads(out)["loops"]] == [2, 2]


def test_lower_then_run_the_folder(capsys, model, groups, tmp_path):
    folder = tmp_path / "bundle"
    assert run(capsys, "lower", model, "--groups", groups, "-o", folder)[0] == 0
    assert (folder / "bundle.json").exists()
    inputs = tmp_path / "inputs.pt"
    torch.save(tuple(torch.ones(64, 128).half() for _ in range(3)), inputs)
    code, out, err = run(capsys, "run", folder, "--inputs", inputs)
    assert (code, err) == (0, "") and "result 0: [64, 128] float16, 2 to 2" in out


def test_run_and_report_use_the_examples(capsys, model, groups):
    code, out, _ = run(capsys, "run", model)
    assert code == 0 and "0 to 20" in out
    code, out, _ = run(capsys, "report", model, "--groups", groups)
    assert code == 0 and "dispatches" in out


@pytest.mark.parametrize("suffix", ["svg", "html", "dot", "md", "txt"])
def test_draw(capsys, model, groups, tmp_path, suffix):
    path = tmp_path / f"picture.{suffix}"
    assert run(capsys, "draw", model, "--groups", groups, "-o", path)[0] == 0
    assert "add" in path.read_text()


def test_draw_a_saved_bundle(capsys, model, groups, tmp_path):
    assert run(capsys, "lower", model, "--groups", groups, "-o", tmp_path / "bundle")[0] == 0
    code, out, _ = run(capsys, "draw", tmp_path / "bundle", "-o", tmp_path / "bundle.html")
    assert code == 0 and "saved as" in out
    page = (tmp_path / "bundle.html").read_text("utf-8")
    assert "scf.for" in page and "OpSpec(" in page


def bad_files(tmp_path: Path, model: Path) -> dict[str, list[object]]:
    def write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    truncated = write("truncated.pt2", model.read_bytes()[:200])
    no_json = write("no.json", b"{")
    other = write("other.json", b'{"groups": [{"ops": ["add"]}]}')
    unknown = write("unknown.json", json.dumps({"groups": [{"ops": ["nope"], "count": 2}]}).encode())
    return {
        "missing": ["plan", tmp_path / "missing.pt2"],
        "truncated": ["plan", truncated],
        "no bundle": ["run", tmp_path],
        "no json": ["tile", model, "--groups", no_json],
        "no group": ["tile", model, "--groups", other],
        "unknown op": ["tile", model, "--groups", unknown],
        "missing groups": ["tile", model, "--groups", tmp_path / "none.json"],
        "bad inputs": ["run", model, "--inputs", no_json],
        "bad suffix": ["draw", model, "-o", tmp_path / "x.png"],
        "no folder": ["draw", model, "-o", tmp_path / "none" / "x.svg"],
    }


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("missing", "missing.pt2"),
        ("truncated", "truncated.pt2"),
        ("no bundle", "bundle.json"),
        ("no json", "no.json is no JSON"),
        ("no group", "groups[0] has the keys ops"),
        ("unknown op", "nope"),
        ("missing groups", "none.json No such file"),
        ("bad inputs", "no.json cannot be read"),
        ("bad suffix", "'.png'"),
        ("no folder", "No such file"),
    ],
)
def test_errors_are_one_line(capsys, model, tmp_path, case, words):
    code, out, err = run(capsys, *bad_files(tmp_path, model)[case])
    assert code == 2 and out == ""
    assert err.startswith("spyre-fx: error: ") and err.count("\n") == 1 and words in err
    assert "Traceback" not in err


def test_no_permission(capsys, model, tmp_path):
    path = tmp_path / "taken"
    path.write_text("a file where the folder should be")
    code, _, err = run(capsys, "lower", model, "-o", path / "bundle")
    assert code == 2 and err.count("\n") == 1


def test_as_a_module(model):
    done = subprocess.run(
        [sys.executable, "-m", "spyre_fx", "plan", str(model)], capture_output=True, text=True, check=True
    )
    assert "elementwise_fusion" in done.stdout

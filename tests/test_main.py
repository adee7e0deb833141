"""The command line, from a file that another process made."""

from __future__ import annotations

import json
import os
import re
import shutil
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "are required: COMMAND; see spyre-fx --help"),
        (["nope"], "invalid choice: 'nope'"),
        (["tile"], "are required: file; see spyre-fx tile --help"),
        (["draw", "x.pt2"], "-o/--output"),
        (["tile", "x.pt2", "--auto", "--groups", "g.json"], "not allowed with argument"),
    ],
)
def test_wrong_options_are_one_line(capsys, arguments, words):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.startswith("spyre-fx: error: ") and err.count("\n") == 1 and words in err


def test_a_broken_file_gives_one_line_in_a_process_too(tmp_path, model):
    (tmp_path / "broken.pt2").write_bytes(model.read_bytes()[:200])
    command = [sys.executable, "-m", "spyre_fx", "plan", str(tmp_path / "broken.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert "broken.pt2 cannot be read as an exported program" in done.stderr


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle")
    (path / "groups.json").write_text(json.dumps(GROUPS))
    assert main(["lower", str(model), "--groups", str(path / "groups.json"), "-o", str(path / "out")]) == 0
    return path / "out"


@pytest.mark.parametrize("command", ["plan", "tile", "lower"])
def test_a_folder_is_no_graph(capsys, folder, command):
    output = ["-o", folder.parent / "again"] if command == "lower" else []
    code, out, err = run(capsys, command, folder, *output)
    assert (code, out) == (2, "") and f"is a folder, and {command} was asked for" in err


@pytest.mark.parametrize("option", ["--auto", "--groups"])
def test_groups_for_a_bundle_are_refused(capsys, folder, option):
    given = [option, folder.parent / "groups.json"] if option == "--groups" else [option]
    code, _, err = run(capsys, "draw", folder, *given, "-o", folder.parent / "x.svg")
    assert code == 2 and f"{option} with" in err and "the loops of a bundle are fixed" in err


def test_a_folder_is_measured_without_inputs_but_not_run(capsys, folder):
    code, out, _ = run(capsys, "report", folder, "--json")
    made = json.loads(out)
    assert code == 0 and [op["op"] for op in made["ops"]] == ["add", "mul"]
    assert made["totals"]["dispatches"] == 8 and made["totals"]["hbm_bytes"] == 4 * 64 * 128 * 2
    code, _, err = run(capsys, "run", folder)
    assert code == 2 and "holds no example inputs" in err


@pytest.mark.parametrize("name", ["bundle.json", "bundle.mlir", "sdsc_0.json"])
def test_a_damaged_folder_is_refused(capsys, folder, tmp_path, name):
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / name).write_bytes((damaged / name).read_bytes()[:-20])
    code, out, err = run(capsys, "report", damaged)
    assert (code, out) == (2, "") and err.count("\n") == 1 and name in err


def test_wrong_inputs_are_refused(capsys, folder, tmp_path):
    torch.save(tuple(torch.ones(3, 3).half() for _ in range(3)), tmp_path / "inputs.pt")
    code, _, err = run(capsys, "run", folder, "--inputs", tmp_path / "inputs.pt")
    assert code == 2 and "a tensor [3, 3] of torch.float16 for 'a'" in err and err.count("\n") == 1


def test_results_are_saved(capsys, model, groups, tmp_path):
    assert run(capsys, "run", model, "--groups", groups, "-o", tmp_path / "results.pt")[0] == 0
    a, b, c = torch.export.load(model).example_inputs[0]
    assert torch.equal(torch.load(tmp_path / "results.pt"), (a + b) * c)


def test_a_bug_is_one_line_unless_asked_for(capsys, model, monkeypatch):
    def broken(_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("spyre_fx.__main__._graph", broken)
    code, _, err = run(capsys, "plan", model)
    assert code == 70 and err == "spyre-fx: error: a bug: ZeroDivisionError: division by zero (--debug shows where)\n"
    with pytest.raises(ZeroDivisionError):
        run(capsys, "plan", model, "--debug")


PAGE = Path(__file__).parents[1] / "docs" / "command_line.md"


def test_the_page_shows_what_is_printed(capsys, model, tmp_path, monkeypatch):
    text = PAGE.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    shutil.copy(model, "model.pt2")
    Path("groups.json").write_text(re.search(r"```json\n(.*?)```", text, re.DOTALL).group(1))
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    steps = [step for block in blocks for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert len(steps) >= 5
    for step in steps:
        command, _, expected = step.partition("\n")
        program, *arguments = command.split()
        code, out, err = run(capsys, *arguments)
        assert program == "spyre-fx" and out + err == expected and code == (2 if err else 0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no users here")
@pytest.mark.parametrize("command", ["draw", "lower", "run"])
def test_no_permission_to_write(capsys, model, tmp_path, command):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    arguments = {"draw": ["-o", closed / "x.svg"], "lower": ["-o", closed / "x"], "run": ["-o", closed / "x.pt"]}
    is_root = os.geteuid() == 0
    run(capsys, command, model, "-o", tmp_path / ("x.svg" if command == "draw" else "x"))  # imports what it needs
    opened = [path for path in model.parents if path.stat().st_uid == 0 and is_root and not path.stat().st_mode & 1]
    modes = {path: path.stat().st_mode for path in opened}
    for path in opened:
        path.chmod(modes[path] | 0o055)
    if is_root:
        os.seteuid(65534)
    try:
        code, out, err = run(capsys, command, model, *arguments[command])
    finally:
        if is_root:
            os.seteuid(0)
        for path in opened:
            path.chmod(modes[path])
    assert (code, out) == (2, "") and "Permission denied" in err and err.count("\n") == 1


def test_a_file_where_the_folder_should_be(capsys, model, tmp_path):
    path = tmp_path / "taken"
    path.write_text("a file where the folder should be")
    code, _, err = run(capsys, "lower", model, "-o", path / "bundle")
    assert code == 2 and err.count("\n") == 1


def test_as_a_module(model):
    done = subprocess.run(
        [sys.executable, "-m", "spyre_fx", "plan", str(model)], capture_output=True, text=True, check=True
    )
    assert "elementwise_fusion" in done.stdout

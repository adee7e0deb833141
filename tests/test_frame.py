"""The rules of the project that a machine can check."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import spyre_fx

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spyre_fx"
ROOMS = ("capture", "analysis", "transforms", "codegen", "simulator")
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """The modules of this package that importing ``path`` imports; ``bundle.run`` calls the device when asked to."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spyre_fx"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("spyre_fx"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@pytest.mark.parametrize("room", ROOMS)
def test_imports_follow_the_direction(room: str) -> None:
    allowed = ROOMS[: ROOMS.index(room) + 1]
    for path in (path for path in SOURCES if room_of(path) == room):
        for name in imports_of(path):
            target = name.split(".")[1]
            assert target not in ROOMS or target in allowed, f"{path.relative_to(ROOT)} imports {name}"
            if room == "simulator" and target in ROOMS[:4]:  # it knows no graph
                assert target == "codegen", f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_says_one_thing_in_few_lines(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a file begins by saying what it is for"


def test_private_parts_of_torch_stand_in_one_file() -> None:
    private = re.compile(r"^\s*(?:from|import) torch(?:\.\w+)*\._(?!pytree|ops\b|C\b)\w+", re.MULTILINE)
    heavy = PACKAGE / "backend" / "compile.py"  # imports torch._dynamo, which only torch.compile has loaded anyway
    for path in SOURCES:
        if path.name != "torch_compat.py" and path != heavy:
            found = private.findall(path.read_text(encoding="utf-8"))
            assert not found, f"{path.relative_to(ROOT)}: {found}"


def test_the_tested_torch_is_the_declared_one() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (pin,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert torch.__version__.partition("+")[0] == pin
    assert f"torch>={pin.rpartition('.')[0]}" in setup["options"]["install_requires"]
    assert setup["metadata"]["version"] == "attr: spyre_fx._version.__version__"
    assert (PACKAGE / "py.typed").exists()


def test_every_make_target_sets_itself_up(tmp_path: Path) -> None:
    for target, command in [("demo", "examples/canonical.py"), ("test", "-m pytest"), ("check", "mypy")]:
        plan = subprocess.run(
            ["make", "-n", target, f"VENV={tmp_path / 'venv'}"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert plan.index("-m venv") < plan.index("pip install") < plan.index(command)
        assert "--constraint constraints.txt" in plan


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    result = subprocess.run(
        ["make", "test", "PYTHON=", f"VENV={tmp_path / 'venv'}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "Python 3.11 or newer is needed" in result.stdout


def test_ci_runs_what_make_check_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "make check" in script.read_text(encoding="utf-8")


def test_importing_is_quiet_and_leaves_torch_alone() -> None:
    code = (
        "import torch, sys; before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state().sum();"
        "import spyre_fx; after = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state().sum();"
        "assert before == after"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_public_names_exist_and_are_documented() -> None:
    for name in spyre_fx.__all__:
        value = getattr(spyre_fx, name)
        assert name.startswith("__") or (value.__doc__ or "").strip(), name

"""Exported programs and .pt2 files, dynamic sizes included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from spyre_fx.capture import capture
from spyre_fx.errors import CaptureError
from spyre_fx.errors.location import source_line
from tests.capture.checks import captured, same, targets


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def export(net: nn.Module) -> ExportedProgram:
    return torch.export.export(net, (torch.randn(6, 4),), dynamic_shapes=({0: Dim("rows", min=2, max=64)},))


def test_a_program_shares_its_state(net: nn.Module) -> None:
    program = torch.export.export(net, (torch.randn(6, 4),))
    before = str(program.graph)
    gm = captured(program)
    assert str(program.graph) == before
    assert targets(gm) == targets(captured(net, torch.randn(6, 4)))
    assert {id(parameter) for parameter in gm.parameters()} == {id(parameter) for parameter in net.parameters()}
    with torch.no_grad():
        net[0].weight.mul_(2)
    x = torch.randn(6, 4)
    same(net(x), gm(x))


def test_dynamic_sizes_stay_symbols(net: nn.Module) -> None:
    gm = captured(export(net))
    (x,) = gm.graph.find_nodes(op="placeholder")
    assert isinstance(x.meta["val"].shape[0], torch.SymInt)
    assert isinstance(gm.graph.output_node().meta["val"][0].shape[0], torch.SymInt)
    for rows in (2, 7, 64):
        x = torch.randn(rows, 4)
        same(net(x), gm(x))


def test_sizes_in_the_program_are_nodes() -> None:
    class Flat(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(x.shape[0] * x.shape[1], -1).sum(1) / x.shape[0]

    dims = {0: Dim("b", min=2, max=8), 1: Dim("s", min=2, max=8)}
    gm = captured(torch.export.export(Flat(), (torch.randn(3, 4, 5),), dynamic_shapes=(dims,)))
    assert "sym_size.int" in targets(gm)
    x = torch.randn(5, 2, 5)
    same(Flat()(x), gm(x))


def test_examples_of_a_program_are_checked(net: nn.Module) -> None:
    program = export(net)
    captured(program, torch.randn(9, 4))
    for examples, words in [
        ((torch.randn(6, 5),), "to be equal to 4, but got 5"),
        ((torch.randn(65, 4),), "64"),
        ((torch.randn(6, 4), torch.randn(6, 4)), "the example inputs do not fit the exported program"),
        ((torch.randn(6, 4).double(),), "float32"),
        (({"x": torch.randn(6, 4)},), "the example inputs do not fit the exported program"),
    ]:
        with pytest.raises(CaptureError, match=words):
            capture(program, *examples)


def test_mutation_in_a_program() -> None:
    class Count(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.count

    module = Count()
    gm = captured(torch.export.export(module, (torch.ones(3),)))
    same(torch.ones(3), gm(torch.ones(3)))
    same(torch.full((3,), 2.0), gm(torch.ones(3)))
    assert int(module.count) == 2


SAVE = """
import sys
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))
    def forward(self, x, *, offset):
        return {"y": self.layer(x).relu() * self.scale + offset, "none": None}
torch.manual_seed(5)
net, args, kwargs = Net(), (torch.ones(6, 4),), {"offset": torch.ones(3)}
rows = torch.export.Dim("rows", min=2, max=64)
program = torch.export.export(net, args, kwargs, dynamic_shapes={"x": {0: rows}, "offset": None})
torch.export.save(program, sys.argv[1])
torch.save(net(*args, **kwargs), sys.argv[2])
torch.save(net.state_dict(), sys.argv[3])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with net.pt2, its expected result and a state_dict, written by another process."""
    folder = tmp_path_factory.mktemp("saved")
    files = [str(folder / name) for name in ("save.py", "net.pt2", "expected.pt", "state.pt2")]
    (folder / "save.py").write_text(SAVE)
    subprocess.run([sys.executable, "-W", "ignore", *files], check=True, timeout=120, capture_output=True)
    return folder


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_from_another_process(saved: Path, kind: type) -> None:
    gm = captured(kind(saved / "net.pt2"))
    expected = torch.load(saved / "expected.pt")
    same(expected, gm(torch.ones(6, 4), offset=torch.ones(3)))
    assert isinstance(next(iter(gm.graph.nodes)).meta["val"].shape[0], torch.SymInt)
    (relu,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    assert str(source_line(relu)).endswith('return {"y": self.layer(x).relu() * self.scale + offset, "none": None}')
    captured(saved / "net.pt2", torch.ones(3, 4), offset=torch.ones(3))


def test_files_that_are_not_programs(saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One error each; torch's own account of what it tried is not shown beside it."""
    with pytest.raises(CaptureError, match=r"no file .*missing\.pt2\. Expected the path of a \.pt2 file"):
        capture(tmp_path / "missing.pt2")
    with pytest.raises(CaptureError, match="no file"):
        capture(tmp_path)
    data = (saved / "net.pt2").read_bytes()
    bad = {
        "truncated.pt2": data[: len(data) // 2],
        "empty.pt2": b"",
        "text.pt2": b"not a program",
        "state.pt2": (saved / "state.pt2").read_bytes(),
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CaptureError, match=rf"{name} cannot be read as an exported program: \S"):
            capture(tmp_path / name)
    assert not caplog.records
    with pytest.raises(CaptureError, match=r"do not fit net\.pt2"):
        capture(saved / "net.pt2", torch.ones(6, 5), offset=torch.ones(3))

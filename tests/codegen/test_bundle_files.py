"""Saved bundles: every way in which their files can be wrong is refused with the name of the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.layout import default_layout
from spyre_fx.codegen.manifest import checksum, dump
from spyre_fx.errors import DeviceError, SpecError
from tests.codegen.bundle_samples import TwoPrograms
from tests.codegen.spec_samples import SAMPLES, untiled_add


def edit_manifest(folder: Path, edit) -> None:
    """Change the manifest, with its checksum made good again."""
    path = folder / "bundle.json"
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(dump(data))


@pytest.fixture
def saved(tmp_path):
    pytest.importorskip("xdsl")
    return TwoPrograms().bundle.save(tmp_path / "saved")


NAMES = ["bundle.json", "wrapper.py", "constants/0.bin", "program_0/bundle.mlir", "program_1/sdsc_0.json"]


@pytest.mark.parametrize("name", NAMES)
def test_missing_files_are_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(SpecError, match=rf"{name}: cannot be read \(No such file"):
        Bundle.load(saved)


@pytest.mark.parametrize("name", NAMES)
def test_changed_files_are_named(saved, name):
    content = bytearray((saved / name).read_bytes())
    content[len(content) // 2] ^= 1
    (saved / name).write_bytes(content)
    with pytest.raises(SpecError, match=name):
        Bundle.load(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"null", b'{"format": "x"}'])
def test_other_manifests_are_refused(saved, content):
    (saved / "bundle.json").write_bytes(content)
    with pytest.raises(SpecError, match=r"bundle\.json"):
        Bundle.load(saved)


def test_a_folder_without_a_bundle_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"bundle\.json: cannot be read"):
        Bundle.load(tmp_path / "nothing")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"the folder .*file: .*a folder that files can be written to"):
        untiled_add().bundle().save(tmp_path / "file")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda data: data.update(version=2), "version 2"),
        (lambda data: data.pop("target"), "KeyError: 'target'"),
        (lambda data: data.update(target={"bores": 3}), "TypeError"),
        (lambda data: data.update(steps=3), "TypeError"),
        (lambda data: data["steps"].append({"x": 1}), "the step"),
        (lambda data: data["arguments"][0].update(dtype="nothing"), r"torch\.nothing"),
        (lambda data: data["constants"][0].update(shape=[5]), "RuntimeError"),
        (lambda data: data["constants"][0].update(file="other"), "KeyError"),
        (lambda data: data["checksums"].update({"../x": ""}), "names inside the folder"),
        (lambda data: data["checksums"].update({"/etc/passwd": ""}), "names inside the folder"),
        (lambda data: data["checksums"].pop("wrapper.py"), r"wrapper\.py: missing in the manifest"),
        (lambda data: data["checksums"].pop("program_0/sdsc_0.json"), r"sdsc_0\.json: missing in the manifest"),
        (lambda data: data["steps"][0]["device"].update(name="other"), "KeyError: 'other'"),
        (
            lambda data: data.update(out_spec=data["out_spec"].replace("children_spec", "children")),
            "out_spec: KeyError",
        ),
        (lambda data: data["outputs"].pop(), "out_spec of 4 leaves for 3 values"),
        (lambda data: data["input_types"].append(None), "2 types of 1 inputs"),
        (lambda data: data["input_types"][0].update(shape=[64, 8]), r"'x' of \[8, 64\] .* for \[64, 8\]"),
        (lambda data: data["arguments"][0].update(stride=[64]), r"argument 'x': strides \[64\] for \[8, 64\]"),
        (
            lambda data: data["arguments"][0]["layout"].update(shape=[8, 60]),
            r"'x': a layout of \[8, 60\] for \[8, 64\]",
        ),
        (lambda data: data["arguments"][0]["layout"].update(slots=[1, 0]), "2 slots for device size"),
        (lambda data: data["arguments"][0]["layout"].update(slots=[1, 2, 1]), "slot 2 of 2 dims"),
        (lambda data: data["arguments"][0]["layout"].update(device_size=[1, 4, 64]), r"\[1, 4, 64\] for \[8, 64\]"),
        (lambda data: data["arguments"][0]["layout"].update(device_size=[2, 8, 32]), "32 lanes, where"),
    ],
)
def test_manifests_that_say_something_else_are_refused(saved, edit, words):
    edit_manifest(saved, edit)
    with pytest.raises(SpecError, match=words):
        Bundle.load(saved)


@pytest.mark.parametrize("position", range(0, 1000, 5))
def test_flipped_bytes_are_found(position, flipped):
    """Any byte of any file: an error that names a file, or a bundle that is still the same."""
    assert flipped(position)


@pytest.fixture(scope="module")
def flipped(tmp_path_factory):
    pytest.importorskip("xdsl")
    folder = TwoPrograms().bundle.save(tmp_path_factory.mktemp("flips") / "saved")
    whole = Bundle.load(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())

    def check(position: int) -> bool:
        path = files[position % len(files)]
        content = path.read_bytes()
        changed = bytearray(content)
        changed[position * 7919 % len(content)] ^= 1 << position % 8
        path.write_bytes(changed)
        try:
            loaded = Bundle.load(folder)
        except SpecError as error:
            return any(one.name in str(error) for one in files)
        finally:
            path.write_bytes(content)
        return loaded.programs == whole.programs and loaded.specs == whole.specs

    return check


def test_what_runs_is_the_text(saved):
    """A bundle whose MLIR was changed on purpose, with new checksums, computes something else."""
    sample = SAMPLES["remainder"]()
    (x,) = sample.inputs()
    folder = sample.bundle().save(saved.parent / "text")
    text = (folder / "bundle.mlir").read_text()
    changed = text.replace("%loop_bound_0 = arith.constant 2", "%loop_bound_0 = arith.constant 1").encode()
    assert changed != text.encode()
    (folder / "bundle.mlir").write_bytes(changed)
    edit_manifest(folder, lambda data: data["checksums"].update({"bundle.mlir": checksum(changed)}))
    with pytest.raises(DeviceError):
        Bundle.load(folder).run(x)


def test_a_copied_folder_is_the_same_bundle(saved):
    shutil.copytree(saved, saved.parent / "copy")
    assert Bundle.load(saved.parent / "copy").specs == Bundle.load(saved).specs


def test_layouts_survive_saving(saved):
    arguments = Bundle.load(saved).lowered.arguments
    assert arguments[0].layout == default_layout((8, 64), torch.float16)


def test_an_unregistered_op_is_refused_when_loading(tmp_path):
    folder = TwoPrograms().bundle.save(tmp_path)
    edit_manifest(folder, lambda data: data["steps"][1]["host"].update(target={"op": "mine.op.default"}))
    with pytest.raises(SpecError, match=r"bundle\.json: NotPlain: the op mine\.op\.default, which is not registered"):
        Bundle.load(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kwargs": {"dict": [["de3cending", True]]}}, "sort.default with 'de3cending', which it does not take"),
        ({"kwargs": {"dict": [["self", 1]]}}, "sort.default with 'self', which it does not take"),
        ({"args": {"tuple": []}}, "sort.default without 'self'"),
        ({"args": {"tuple": [{"value": "y"}] * 9}}, "sort.default with 9 arguments"),
    ],
)
def test_host_steps_that_their_op_does_not_take_are_refused(saved, change, words):
    def edit(data):
        host = next(step["host"] for step in data["steps"] if "host" in step)
        assert host["target"] == {"op": "aten.sort.default"}
        host.update(change)

    edit_manifest(saved, edit)
    with pytest.raises(SpecError, match=words):
        Bundle.load(saved)

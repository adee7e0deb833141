"""A bundle on disk: writes its files, and reads them back.

::

    bundle.json           what it is, and a checksum of every other file
    wrapper.py            the specs as Python
    bundle.mlir           the program that runs        (in program_0/, program_1/, ... if there are several)
    sdsc_0.json, ...      what it executes
    constants/0.bin, ...  bytes of parameters and other constants, row-major

The wrapper source is read without running it, and nothing is unpickled.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from spyre_fx.codegen.loop_names import loop_names, name_program
from spyre_fx.codegen.lowered import DeviceStep, Lowered
from spyre_fx.codegen.manifest import FORMAT, VERSION, checksum, dump, is_whole, lowered_of, manifest_of
from spyre_fx.codegen.mlir import print_program
from spyre_fx.codegen.mlir_parse import parse_program
from spyre_fx.codegen.plain import NotPlain, torch_constant
from spyre_fx.codegen.program import Execute, Program, statements
from spyre_fx.codegen.source_read import read_source
from spyre_fx.codegen.verify_lowered import misfits
from spyre_fx.codegen.verify_program import verify_program
from spyre_fx.errors import SpyreFxError
from spyre_fx.errors.spec import BAD_FILE, BAD_FOLDER

MANIFEST = "bundle.json"
WRAPPER = "wrapper.py"
MLIR = "bundle.mlir"

_MALFORMED = (NotPlain, KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError)
"""What reading a file of the wrong form may raise."""


def write_bundle(lowered: Lowered, programs: Sequence[Program], source: str, folder: Path) -> None:
    """Write all files into ``folder``, which is made if it is not there; files of a bundle saved there before go.

    Raises:
        SpecError: for a host step or a structure that no file can hold, before anything is written, or a folder that
            cannot be written.
    """
    folders = ["" if len(programs) == 1 else f"program_{index}" for index in range(len(programs))]
    constant_files = [f"constants/{index}.bin" for index in range(len(lowered.constants))]
    files: dict[str, bytes] = {WRAPPER: source.encode()}
    for program, place in zip(programs, folders, strict=True):
        files[_join(place, MLIR)] = print_program(program).encode()
        files |= {_join(place, name): _json(data) for name, data in program.files.items()}
    for constant, file in zip(lowered.constants, constant_files, strict=True):
        files[file] = _bytes(constant.value)
    manifest = manifest_of(lowered, folders, constant_files)
    manifest["checksums"] = {name: checksum(content) for name, content in files.items()}
    try:
        _replace(folder, {**files, MANIFEST: dump(manifest).encode()})
    except OSError as error:
        raise BAD_FOLDER(folder=folder, problem=error.strerror or error) from None


def read_bundle(folder: Path) -> tuple[Lowered, tuple[Program, ...]]:
    """Read all files of ``folder``, check them, and parse the MLIR.

    Raises:
        SpecError: naming the file that is missing, was changed, or is not what it should be.
    """
    manifest = _manifest(folder)
    try:
        files = dict(_checked(folder, manifest["checksums"]))
        kernels = read_source(_text(files, WRAPPER), WRAPPER)
        tensors = [_tensor(entry, files[entry["file"]]) for entry in manifest["constants"]]
        lowered = lowered_of(manifest, kernels, tensors)
        problem = next(misfits(lowered), None)
        places = [step["device"]["folder"] for step in manifest["steps"] if "device" in step]
    except SpyreFxError:
        raise
    except _MALFORMED as error:
        raise _bad(MANIFEST, f"{type(error).__name__}: {error}", "the manifest of a bundle") from None
    if problem is not None:
        raise _bad(MANIFEST, problem, "parts that fit together")
    specs = [step.specs for step in lowered.steps if isinstance(step, DeviceStep)]
    programs = tuple(
        name_program(_program(files, place), loop_names(one)) for place, one in zip(places, specs, strict=True)
    )
    for program in programs:
        verify_program(program, lowered.target)
    return lowered, programs


def _manifest(folder: Path) -> dict[str, Any]:
    raw = _content(folder, MANIFEST)
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _bad(MANIFEST, f"not JSON ({error})", "the manifest of a bundle") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _bad(MANIFEST, "not the manifest of a bundle", f"a manifest of format {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise _bad(MANIFEST, f"version {manifest.get('version')!r}", f"version {VERSION}")
    if not is_whole(manifest):
        raise _bad(MANIFEST, "its content is not what its checksum says", "a file as it was saved")
    return manifest


def _checked(folder: Path, checksums: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for name, expected in checksums.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise _bad(MANIFEST, f"the file name {name!r}", "names inside the folder")
        content = _content(folder, name)
        if checksum(content) != expected:
            raise _bad(name, "its content is not what its checksum says", "a file as it was saved")
        yield name, content


def _content(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _bad(str(folder / name), f"cannot be read ({error.strerror})", "a file of the bundle") from None


def _program(files: Mapping[str, bytes], place: str) -> Program:
    """Parse the MLIR in folder ``place`` and read the SuperDSC files that it names."""
    name = _join(place, MLIR)
    program = parse_program(_text(files, name), name=name)
    used = dict.fromkeys(statement.file for _, statement in statements(program.body) if isinstance(statement, Execute))
    for file in used:
        program.files[file] = _sdsc(files, _join(place, file))
    return program


def _sdsc(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    text = _text(files, name)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(name, f"not JSON ({error})", "a SuperDSC") from None
    if not isinstance(data, dict):
        raise _bad(name, f"a {type(data).__name__}", "a SuperDSC, which is an object")
    return data


def _text(files: Mapping[str, bytes], name: str) -> str:
    if name not in files:
        raise _bad(name, "missing in the manifest", "a file of the bundle")
    try:
        return files[name].decode()
    except UnicodeDecodeError as error:
        raise _bad(name, f"not text ({error.reason})", "UTF-8") from None


def _tensor(entry: Mapping[str, Any], content: bytes) -> torch.Tensor:
    dtype = torch_constant(entry["dtype"])
    if not content:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(entry["shape"])


def _bytes(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().cpu().contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()) if whole.numel() else b""


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    for old in _saved_before(folder):
        (folder / old).unlink(missing_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _saved_before(folder: Path) -> list[str]:
    """Files of the bundle that was saved in ``folder`` before; none if there is no whole manifest."""
    try:
        return [MANIFEST, *_manifest(folder)["checksums"]]
    except (SpyreFxError, *_MALFORMED):
        return []


def _bad(file: str, problem: str, expected: str) -> SpyreFxError:
    return BAD_FILE(file=file, problem=problem, expected=expected)

"""``bundle.json``: everything about a saved bundle that is neither MLIR nor SuperDSC, as JSON and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import torch

from spyre_fx._version import __version__
from spyre_fx.codegen.host_graph import check_arguments, decode_target, encode_target
from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.loop_names import loop_names, name_specs
from spyre_fx.codegen.lowered import Argument, Constant, DeviceStep, HostStep, LaunchSize, Lowered, Step, Value
from spyre_fx.codegen.plain import NotPlain, decode, encode, torch_constant
from spyre_fx.codegen.specs import Spec
from spyre_fx.codegen.structures import read_structure, structure_text
from spyre_fx.errors.spec import NOT_SAVABLE
from spyre_fx.target import Target

Json = dict[str, Any]

FORMAT = "spyre_fx bundle"
VERSION = 1
_CHECKSUM = "manifest_sha256"


def manifest_of(lowered: Lowered, folders: Sequence[str], constant_files: Sequence[str]) -> Json:
    """The manifest, as yet without checksums.

    Args:
        folders: of each device step.
        constant_files: of each constant.

    Raises:
        SpecError: for a host step or a structure that no file can hold.
    """
    remaining = iter(folders)
    return {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "target": asdict(lowered.target),
        "inputs": list(lowered.inputs),
        "input_types": [_encode_input(kind) for kind in lowered.input_types],
        "outputs": [encode(leaf, _encode_value) for leaf in lowered.outputs],
        "in_spec": structure_text(lowered.in_spec, "arguments"),
        "out_spec": structure_text(lowered.out_spec, "results"),
        "arguments": [_encode_argument(argument) for argument in lowered.arguments],
        "constants": [
            _encode_constant(constant, file) for constant, file in zip(lowered.constants, constant_files, strict=True)
        ],
        "steps": [_encode_step(step, remaining) for step in lowered.steps],
        "sizes": [asdict(size) for size in lowered.sizes],
        "notes": encode(lowered.notes),
    }


def lowered_of(data: Json, kernels: Mapping[str, tuple[Spec, ...]], constants: Sequence[torch.Tensor]) -> Lowered:
    """The inverse; ``kernels`` holds the specs of each device step by its name. Raises ``NotPlain``, ``KeyError``,
    ``TypeError`` or ``ValueError`` for a manifest that says something else.
    """
    return Lowered(
        target=_decode_target(data["target"]),
        inputs=tuple(data["inputs"]),
        outputs=tuple(decode(leaf, _decode_value) for leaf in data["outputs"]),
        arguments=tuple(_decode_argument(argument) for argument in data["arguments"]),
        constants=tuple(
            Constant(entry["name"], value) for entry, value in zip(data["constants"], constants, strict=True)
        ),
        steps=tuple(_decode_step(step, kernels) for step in data["steps"]),
        in_spec=read_structure(data["in_spec"], "in_spec"),
        out_spec=read_structure(data["out_spec"], "out_spec"),
        input_types=tuple(_decode_input(kind) for kind in data["input_types"]),
        sizes=tuple(_decode_size(size) for size in data["sizes"]),
        notes=decode(data["notes"]),
    )


def dump(manifest: Json) -> str:
    """The text of a manifest, with a checksum of itself."""
    content = {key: value for key, value in manifest.items() if key != _CHECKSUM}
    return json.dumps({**content, _CHECKSUM: checksum(_canonical(content))}, indent=1) + "\n"


def is_whole(manifest: Json) -> bool:
    """Whether the content of a manifest is what its checksum was made from."""
    content = {key: value for key, value in manifest.items() if key != _CHECKSUM}
    return bool(manifest.get(_CHECKSUM) == checksum(_canonical(content)))


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(content: Json) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _encode_value(leaf: Any) -> Any:
    return {"value": leaf.name} if isinstance(leaf, Value) else None


def _decode_value(data: Any) -> Any:
    return Value(data["value"]) if isinstance(data, dict) and "value" in data else None


def _decode_target(data: Json) -> Target:
    unknown = set(data) - {field.name for field in fields(Target)}
    if unknown:
        raise TypeError(f"a target with {min(unknown)!r}")
    return Target(**data)


def _encode_input(kind: tuple[tuple[int, ...], torch.dtype] | None) -> Any:
    return None if kind is None else {"shape": list(kind[0]), "dtype": _name(kind[1])}


def _decode_input(data: Any) -> tuple[tuple[int, ...], torch.dtype] | None:
    return None if data is None else (tuple(data["shape"]), torch_constant(data["dtype"]))


def _encode_argument(argument: Argument) -> Json:
    return {
        "name": argument.name,
        "role": argument.role,
        "arg_index": argument.arg_index,
        "shape": list(argument.shape),
        "stride": list(argument.stride),
        "dtype": _name(argument.dtype),
        "address": argument.address,
        "layout": asdict(argument.layout),
    }


def _decode_argument(data: Json) -> Argument:
    layout = data["layout"]
    return Argument(
        name=data["name"],
        role=data["role"],
        arg_index=data["arg_index"],
        shape=tuple(data["shape"]),
        stride=tuple(data["stride"]),
        dtype=torch_constant(data["dtype"]),
        address=data["address"],
        layout=Layout(
            tuple(layout["shape"]), layout["data_format"], tuple(layout["slots"]), tuple(layout["device_size"])
        ),
    )


def _decode_size(data: Json) -> LaunchSize:
    places = tuple((str(name), int(dim), int(above), int(below)) for name, dim, above, below in data["places"])
    return LaunchSize(data["name"], int(data["largest"]), int(data["multiple_of"]), places, bool(data["padded"]))


def _encode_constant(constant: Constant, file: str) -> Json:
    value = constant.value
    return {"name": constant.name, "shape": list(value.shape), "dtype": _name(value.dtype), "file": file}


def _encode_step(step: Step, folders: Any) -> Json:
    match step:
        case DeviceStep():
            return {"device": {"name": step.name, "folder": next(folders), "loops": list(loop_names(step.specs))}}
        case HostStep():
            try:
                return {
                    "host": {
                        "target": encode_target(step.target),
                        "args": encode(step.args, _encode_value),
                        "kwargs": encode(step.kwargs, _encode_value),
                        "results": list(step.results),
                        "origin": step.origin,
                        "reasons": [list(reason) for reason in step.reasons],
                    }
                }
            except NotPlain as error:
                raise NOT_SAVABLE(what=str(error), step=step.origin or str(step.target)) from None


def _decode_step(data: Json, kernels: Mapping[str, tuple[Spec, ...]]) -> Step:
    match data:
        case {"device": {"name": str(name), "loops": list(loops)}}:
            return DeviceStep(name, name_specs(kernels[name], map(str, loops)))
        case {"device": {"name": str(name)}}:
            return DeviceStep(name, kernels[name])
        case {"host": dict(step)}:
            target = decode_target(step["target"])
            args, kwargs = decode(step["args"], _decode_value), decode(step["kwargs"], _decode_value)
            check_arguments(target, args, kwargs)
            return HostStep(
                target=target,
                args=args,
                kwargs=kwargs,
                results=tuple(step["results"]),
                origin=step["origin"],
                reasons=tuple((str(name), str(why)) for name, why in step["reasons"]),
            )
    raise NotPlain(f"the step {data}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""Runs a bundle: host tensors into device memory, device programs and host steps in order, results back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from spyre_fx.codegen.lowered import Argument, DeviceStep, HostStep, Lowered, Value
from spyre_fx.codegen.memory_map import buffers_of
from spyre_fx.codegen.program import Program
from spyre_fx.codegen.symbolic import size_sources
from spyre_fx.errors.names import with_article
from spyre_fx.errors.spec import BAD_INPUT, BAD_SIZE, UNKNOWN_VALUE
from spyre_fx.shows import counted

if TYPE_CHECKING:
    from spyre_fx.simulator import Device


def run_lowered(
    lowered: Lowered, programs: Sequence[Program], args: tuple[Any, ...], kwargs: Mapping[str, Any], device: Device
) -> Any:
    """Run all steps on ``device`` and give what the graph returns.

    Raises:
        SpecError: for arguments of another structure, shape or dtype than the graph takes.
        DeviceError: for an access that the device refuses.
    """
    run = _Run(lowered, device, launch_sizes(lowered, args, kwargs))
    run.prepare(_flat_inputs(lowered, args, kwargs))
    remaining = iter(programs)
    for step in lowered.steps:
        match step:
            case DeviceStep():
                program = next(remaining)
                device.run(program, run.launch(program, step))
            case HostStep():
                run.host(step)
    leaves = [run.value(leaf.name) if isinstance(leaf, Value) else leaf for leaf in lowered.outputs]
    if lowered.out_spec is None:
        return leaves[0] if len(leaves) == 1 else tuple(leaves)
    return pytree.tree_unflatten(leaves, lowered.out_spec)


@dataclass
class _Run:
    lowered: Lowered
    device: Device
    sizes: dict[str, int]
    """Value of each size that is known at launch only."""
    known: dict[str, Any] = field(default_factory=dict)
    """Values that the host has."""
    arguments: dict[str, Argument] = field(init=False)

    def __post_init__(self) -> None:
        self.arguments = {argument.name: argument for argument in self.lowered.arguments}

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Make room for every buffer, and write what is known before the first step."""
        for buffer in buffers_of(self.lowered):
            self.device.allocate(buffer.address, buffer.size_bytes, buffer.name)
        for constant in self.lowered.constants:
            self.give(constant.name, constant.value)
        for name, value in zip(self.lowered.inputs, inputs, strict=True):
            self.give(name, value)

    def give(self, name: str, value: Any) -> None:
        """The host knows ``value`` from now on, and so does the device if it has a buffer for it."""
        self.known[name] = value
        argument = self.arguments.get(name)
        if argument is not None:
            filled = self._filled(argument, value.detach())
            self.device.write(argument.address, filled, argument.layout, name, self._part(argument))

    def _filled(self, argument: Argument, value: torch.Tensor) -> torch.Tensor:
        """``value`` with zeros behind it up to whole tiles."""
        missing = [new - old for new, old in zip(self._launched(argument), value.shape, strict=False)]
        if value.dim() != len(argument.shape) or not any(missing):
            return value
        return torch.nn.functional.pad(value, [amount for size in reversed(missing) for amount in (0, size)])

    def value(self, name: str) -> Any:
        """A value that a step has made, read from the device if the host lacks it."""
        if name not in self.known:
            if name not in self.arguments:
                raise UNKNOWN_VALUE(name=name)
            self.known[name] = self.read(self.arguments[name])
        return self.known[name]

    def read(self, argument: Argument) -> torch.Tensor:
        """The value of a buffer, with the strides that the graph gives it."""
        shape, stride = self.lowered.shape_at(argument.name, argument.shape, self.sizes), argument.stride
        if shape != argument.shape:
            stride = _shrunk(argument.stride, shape)
        numbers = self.device.read(argument.address, argument.layout, argument.name, self._part(argument))
        numbers = numbers.reshape(self._launched(argument))[tuple(map(slice, shape))]
        # Along a dim of stride 0 all elements are one; only that one can be written.
        spread = [dim for dim, step in enumerate(stride) if step == 0]
        for dim in spread:
            numbers = numbers.narrow(dim, 0, 1)
        result = torch.empty_strided(numbers.shape, stride, dtype=argument.dtype)
        return result.copy_(numbers).expand(shape)

    def _launched(self, argument: Argument) -> tuple[int, ...]:
        """The shape of what the program reads or writes of a buffer."""
        return self.lowered.shape_at(argument.name, argument.shape, self.lowered.launched(self.sizes))

    def _part(self, argument: Argument) -> tuple[int, ...] | None:
        """The sizes of what the host moves of a buffer, if that is not all."""
        launched = self.lowered.launched(self.sizes)
        shape = self.lowered.shape_at(argument.name, argument.layout.shape, launched)
        return None if shape == argument.layout.shape else shape

    def launch(self, program: Program, step: DeviceStep) -> dict[str, int]:
        """Values of the program's parameters: addresses of arguments, sizes of input dims."""
        addresses = {f"arg_{argument.arg_index}": argument.address for argument in self.lowered.arguments}
        launched = self.lowered.launched(self.sizes)
        sizes = {f"dim_{symbol}": launched[symbol] for symbol in size_sources(step.specs)}
        values = {**addresses, **sizes}
        return {parameter.name: values[parameter.name] for parameter in program.parameters}

    def host(self, step: HostStep) -> None:
        """Run one op on the host."""

        def resolved(leaf: Any) -> Any:
            return self.value(leaf.name) if isinstance(leaf, Value) else leaf

        args, kwargs = pytree.tree_map(resolved, (step.args, step.kwargs))
        with torch.no_grad():
            leaves = pytree.tree_leaves(step.target(*args, **kwargs))
        for name, leaf in zip(step.results, leaves, strict=True):
            if name is not None:
                self.give(name, leaf)


def _flat_inputs(lowered: Lowered, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of the arguments, one per input; ``SpecError`` for arguments that the graph does not take."""
    if lowered.in_spec is None:
        leaves: list[Any] = list(args)
        fits = not kwargs and len(leaves) == len(lowered.inputs)
        wanted = f"{len(lowered.inputs)} positional arguments"
    else:
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        fits = spec == lowered.in_spec
        wanted = f"the structure of a call with {_example(lowered.in_spec, lowered.inputs)}"
    if not fits:
        raise BAD_INPUT(found=_call(args, kwargs), expected=wanted)
    open_dims = {(name, dim) for size in lowered.sizes for name, dim, _, _ in size.places}
    for name, leaf, kind in zip(lowered.inputs, leaves, lowered.input_types, strict=False):
        _check_type(name, leaf, kind, open_dims)
    return leaves


def _call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What a call gave: how many arguments without a name, of which types, and the names of the others."""
    kinds = ", ".join(type(arg).__name__ for arg in args)
    named = f", and by name {', '.join(map(repr, sorted(kwargs)))}" if kwargs else ""
    return f"{counted(len(args), 'positional argument')}{f' ({kinds})' if kinds else ''}{named}"


def _example(spec: pytree.TreeSpec, names: Sequence[str]) -> str:
    """A call of the right structure, with the inputs by name."""
    args, kwargs = pytree.tree_unflatten(list(names), spec)
    return f"({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"


def _check_type(
    name: str, leaf: Any, kind: tuple[tuple[int, ...], torch.dtype] | None, open_dims: Collection[tuple[str, int]]
) -> None:
    if kind is None:
        return
    shape, dtype = kind
    if not isinstance(leaf, torch.Tensor):
        raise BAD_INPUT(
            found=f"{with_article(type(leaf).__name__)} for {name!r}", expected=f"a tensor {list(shape)} of {dtype}"
        )
    if leaf.layout is not torch.strided or leaf.is_meta:
        found = f"a {leaf.device} tensor of {leaf.layout} for {name!r}"
        raise BAD_INPUT(found=found, expected="a dense one with values")
    if leaf.dim() == len(shape):
        shape = tuple(leaf.shape[dim] if (name, dim) in open_dims else size for dim, size in enumerate(shape))
    if tuple(leaf.shape) != shape or leaf.dtype != dtype:
        found = f"a tensor {list(leaf.shape)} of {leaf.dtype} for {name!r}"
        raise BAD_INPUT(found=found, expected=f"{list(shape)} of {dtype}")


def launch_sizes(lowered: Lowered, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that are known at launch only, as the inputs have them.

    Raises:
        SpecError: for one that is too large, no whole number of tiles, or not the same in two inputs.
    """
    tensors = dict(zip(lowered.inputs, _flat_inputs(lowered, args, kwargs), strict=True))
    values: dict[str, int] = {}
    for size in lowered.sizes:
        for name, dim, _, _ in size.places:
            if name not in tensors:
                continue
            found = int(tensors[name].shape[dim])
            wanted = values.setdefault(size.name, found)
            if found != wanted:
                raise BAD_INPUT(
                    found=f"size {found} of dim {dim} of {name!r}", expected=f"{wanted}, as another input has"
                )
            largest = size.largest - size.largest % size.multiple_of
            step = 1 if size.padded else size.multiple_of
            if found % step or not 0 < found <= largest:
                raise BAD_SIZE(size=found, name=name, dim=dim, multiple=step, largest=largest)
    return values


def _shrunk(stride: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Dense strides of a smaller tensor whose dims lie in the same order."""
    found, step = list(stride), 1
    for dim in sorted(range(len(shape)), key=lambda one: (stride[one], -one)):
        if stride[dim]:
            found[dim] = step
            step *= shape[dim]
    return tuple(found)


def zero_inputs(lowered: Lowered) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of zeros; ``SpecError`` for a graph that takes anything but tensors."""
    if None in lowered.input_types:
        raise BAD_INPUT(found="an input that is no tensor", expected="a run with its real arguments before the report")
    leaves = [torch.zeros(kind[0], dtype=kind[1]) for kind in lowered.input_types if kind is not None]
    if lowered.in_spec is None:
        return tuple(leaves), {}
    args, kwargs = pytree.tree_unflatten(leaves, lowered.in_spec)
    return args, kwargs

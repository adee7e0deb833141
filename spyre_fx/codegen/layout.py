"""Stick layouts, and every address formula of the library: plain integers, one home.

Device memory is moved in sticks of 128 bytes. A tensor of rank N has N + 1 device dims: one per host dim, of which the
stick dim counts whole sticks, and last the lane within a stick. The default order for host dims (0, 1, ..., N-1) is
(1, ..., N-1, 0, lane), so that a matrix ``[R, C]`` of float16 is ``[ceil(C/64), R, 64]``: all rows of the first 64
columns, then all rows of the next 64. Memory is row-major over the device dims.

>>> default_layout((1024, 4096), torch.float16).device_size
(64, 1024, 64)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
import torch

from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.errors.lowering import BAD_DIM_ORDER, UNKNOWN_FORMAT, UNSUPPORTED_DTYPE

STICK_BYTES = 128

_FORMATS: dict[torch.dtype, str] = {
    torch.float16: "SEN169_FP16",
    torch.bfloat16: "BFLOAT16",
    torch.float32: "IEEE_FP32",
    torch.int32: "IEEE_INT32",
    torch.int64: "IEEE_INT64",
    torch.uint32: "SENUINT32",
    torch.int8: "SENINT8",
    torch.float8_e4m3fn: "SEN143_FP8",
    torch.float8_e5m2: "SEN152_FP8",
    torch.bool: "BOOL",
}

_WORD_BYTES: dict[str, int] = {
    "SEN169_FP16": 2,
    "BFLOAT16": 2,
    "IEEE_FP32": 4,
    "IEEE_INT32": 4,
    "IEEE_INT64": 8,
    "SENUINT32": 4,
    "SENINT8": 1,
    "SEN143_FP8": 1,
    "SEN152_FP8": 1,
    # A truth value fills the lane of a half, since that is what comparisons write and selections read: 0 or 1.
    "BOOL": 2,
}


def device_format(dtype: torch.dtype) -> str:
    """Name of the device's data format for a host dtype; ``LoweringError`` for one that the device lacks."""
    if dtype not in _FORMATS:
        raise UNSUPPORTED_DTYPE(dtype=dtype, known=", ".join(sorted(str(known) for known in _FORMATS)))
    return _FORMATS[dtype]


def has_format(dtype: torch.dtype) -> bool:
    """Whether the device stores tensors of a host dtype."""
    return dtype in _FORMATS


def word_bytes(data_format: str) -> int:
    """Bytes of one element in the device format ``data_format``."""
    if data_format not in _WORD_BYTES:
        raise UNKNOWN_FORMAT(data_format=data_format, known=", ".join(_WORD_BYTES))
    return _WORD_BYTES[data_format]


def lanes_of(data_format: str) -> int:
    """Elements per stick in the device format ``data_format``."""
    return STICK_BYTES // word_bytes(data_format)


def elements_per_stick(dtype: torch.dtype) -> int:
    """Elements per stick of a host dtype: 64 for halves, 32 for float32, 16 for int64."""
    return lanes_of(device_format(dtype))


def round_up(number: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not less than ``number``."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Layout:
    """How one buffer lies in device memory.

    ``slots`` names the host dim behind each device dim, the lane last; -1 is a device dim without a host dim (the lane
    of a sparse tensor, which holds one value per stick). ``device_size`` may exceed the host size of a dim: the rest is
    padding.
    """

    shape: tuple[int, ...]
    data_format: str
    slots: tuple[int, ...]
    device_size: tuple[int, ...]

    @property
    def lanes(self) -> int:
        return lanes_of(self.data_format)

    @property
    def stick_dim(self) -> int:
        """The host dim whose elements fill a stick, or -1 for a sparse or 0-d tensor."""
        return self.slots[-1]

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.device_size, self.data_format)

    def stride_map(self, host_strides: Sequence[int]) -> tuple[int, ...]:
        """Host elements per step along each device dim; -1 where there is no step to make.

        ``host offset == sum(device coordinate * stride)`` over the dims that are not -1.
        """
        strides: list[int] = []
        met: dict[int, int] = {}
        for dim, extent in zip(reversed(self.slots), reversed(self.device_size), strict=True):
            if dim < 0 or self.shape[dim] == 1:
                strides.append(-1)
                continue
            whole = host_strides[dim] * self.shape[dim]
            stride = min(met[dim], whole) if dim in met else host_strides[dim]
            met[dim] = stride * extent
            strides.append(stride)
        return tuple(reversed(strides))

    def coordinates(self, index: Sequence[int]) -> tuple[int, ...]:
        """Device coordinates of one host element."""
        point: list[int] = []
        for dim in self.slots[:-1]:
            at = index[dim] if dim >= 0 else 0
            point.append(at // self.lanes if dim == self.stick_dim else at)
        lane = index[self.stick_dim] % self.lanes if self.stick_dim >= 0 else 0
        return (*point, lane)

    def offset(self, index: Sequence[int]) -> int:
        """Byte offset of one host element from the start of the buffer."""
        strides = device_strides(self.device_size)
        elements = sum(at * stride for at, stride in zip(self.coordinates(index), strides, strict=True))
        return elements * word_bytes(self.data_format)


def default_layout(shape: Sequence[int], dtype: torch.dtype, dim_order: Sequence[int] | None = None) -> Layout:
    """Layout of a host tensor as the runtime makes it.

    ``dim_order`` is a permutation of the host dims whose last entry is the stick dim, or has -1 behind the permutation
    for a sparse tensor. The device dims are that order rotated left by one, then the lane.

    >>> default_layout((5, 100, 150), torch.float16).device_size
    (100, 3, 5, 64)
    >>> default_layout((1024,), torch.float16, dim_order=(0, -1)).device_size
    (1, 1024, 64)
    """
    order = tuple(range(len(shape)) if dim_order is None else dim_order)
    if sorted(dim for dim in order if dim >= 0) != list(range(len(shape))) or len(order) - len(shape) not in (0, 1):
        raise BAD_DIM_ORDER(order=order, shape=tuple(shape))
    if len(order) > len(shape) and order[-1] != -1:
        raise BAD_DIM_ORDER(order=order, shape=tuple(shape))
    order = order or (-1,)
    slots = (*order[1:], order[0], order[-1])
    return layout_of_slots(shape, device_format(dtype), slots)


def layout_of_slots(
    shape: Sequence[int], data_format: str, slots: Sequence[int], padded: Sequence[int] | None = None
) -> Layout:
    """Layout with the device dims ``slots``; ``padded`` gives, per host dim, the size that room is kept for."""
    lanes, stick = lanes_of(data_format), slots[-1]
    room = tuple(shape if padded is None else padded)

    def extent(dim: int) -> int:
        if dim < 0:
            return 1
        return -(-room[dim] // lanes) if dim == stick else room[dim]

    return Layout(tuple(shape), data_format, tuple(slots), (*(extent(dim) for dim in slots[:-1]), lanes))


def device_strides(device_size: Sequence[int]) -> tuple[int, ...]:
    """Elements per step along each device dim: row-major.

    >>> device_strides((64, 1024, 64))
    (65536, 64, 1)
    """
    return tuple(math.prod(device_size[position + 1 :]) for position in range(len(device_size)))


def size_bytes(device_size: Sequence[int], data_format: str) -> int:
    """Bytes of a buffer, padding included: always whole sticks."""
    return math.prod(device_size) * word_bytes(data_format)


def steps_of(device_size: Sequence[int], elements: int) -> tuple[int, ...]:
    """A move of ``elements`` as a step along each device dim; none along a dim of size 1, which has nowhere to go.

    >>> steps_of((64, 1024, 64), 2 * 65536 + 3 * 64)
    (2, 3, 0)
    """
    steps: list[int] = []
    for size, stride in zip(device_size, device_strides(device_size), strict=True):
        step = 0 if size == 1 else elements // stride
        steps.append(step)
        elements -= step * stride
    return tuple(steps)


def evaluate(coordinate: sympy.Expr, values: Mapping[sympy.Symbol, int]) -> int:
    """Value of a device coordinate, in plain integers: sums and products of symbols, ``floor`` and ``Mod`` of them."""
    match coordinate:
        case sympy.Integer():
            return int(coordinate)
        case sympy.Symbol():
            return values[coordinate]
        case sympy.Add():
            return sum(evaluate(term, values) for term in coordinate.args)
        case sympy.Mul():
            return math.prod(evaluate(factor, values) for factor in coordinate.args)
        case sympy.Mod():
            number, modulus = coordinate.args
            return evaluate(number, values) % int(modulus)
        case sympy.floor():
            number, denominator = sympy.together(coordinate.args[0]).as_numer_denom()
            return evaluate(number, values) // int(denominator)
    raise TypeError(f"a coordinate cannot hold {coordinate!r}")


def linear_offset(
    device_size: Sequence[int], coordinates: Sequence[sympy.Expr], values: Mapping[sympy.Symbol, int]
) -> int:
    """Elements from the start of the buffer to the element at ``coordinates``, for the given symbol values."""
    return sum(
        evaluate(sympy.sympify(coordinate), values) * stride
        for coordinate, stride in zip(coordinates, device_strides(device_size), strict=True)
    )


def byte_offset(arg: TensorArg, values: Mapping[sympy.Symbol, int]) -> int:
    """Bytes from the start of ``arg``'s buffer to its element at the given symbol values, in the first trip."""
    return linear_offset(arg.device_size, arg.device_coordinates, values) * word_bytes(arg.device_dtype)


def padded_ranges(spec: OpSpec) -> dict[sympy.Symbol, int]:
    """Extent of each symbol that the device really runs over: whole sticks for a symbol that is a stick anywhere."""
    ranges = {symbol: int(extent) for symbol, (extent, _) in spec.iteration_space.items()}
    for symbol, lanes in stick_units(spec.args).items():
        ranges[symbol] = round_up(ranges[symbol], lanes)
    return ranges


def stick_units(args: Sequence[TensorArg]) -> dict[sympy.Symbol, int]:
    """The symbols that index lanes in some tensor, with the most lanes that any of these tensors has in a stick."""
    units: dict[sympy.Symbol, int] = {}
    for arg in args:
        for symbol in arg.device_coordinates[-1].free_symbols:
            units[symbol] = max(units.get(symbol, 1), arg.device_size[-1])
    return units


def core_ranges(spec: OpSpec) -> dict[sympy.Symbol, int]:
    """Extent of each symbol on one core."""
    padded = padded_ranges(spec)
    return {symbol: padded[symbol] // split for symbol, (_, split) in spec.iteration_space.items()}


def cores_used(spec: OpSpec) -> int:
    """Product of the splits."""
    return math.prod(split for _, split in spec.iteration_space.values())


def core_slices(spec: OpSpec) -> tuple[dict[sympy.Symbol, int], ...]:
    """Which slice of each symbol each core works on.

    Mixed radix, the first split symbol fastest; a split reduction symbol goes before all others, so that the partial
    sums of one result are on adjacent cores.
    """
    kept = output_symbols(spec) if spec.is_reduction else frozenset(spec.iteration_space)
    order = sorted(spec.iteration_space, key=lambda symbol: symbol in kept)
    return tuple(_slices_of_core(spec, order, core) for core in range(cores_used(spec)))


def _slices_of_core(spec: OpSpec, order: Sequence[sympy.Symbol], core: int) -> dict[sympy.Symbol, int]:
    slices = dict.fromkeys(spec.iteration_space, 0)
    for symbol in order:
        core, slices[symbol] = divmod(core, spec.iteration_space[symbol][1])
    return slices


def output_symbols(spec: OpSpec) -> frozenset[sympy.Symbol]:
    """The symbols that the output is indexed by: the parallel ones."""
    return frozenset(
        symbol
        for arg in spec.args
        if not arg.is_input
        for coordinate in arg.device_coordinates
        for symbol in coordinate.free_symbols
    )


def symbol_strides(arg: TensorArg, steps: Mapping[sympy.Symbol, int]) -> dict[sympy.Symbol, int]:
    """Bytes that ``arg``'s address moves by when a symbol goes up by its step, all others at 0.

    Steps along a stick symbol are whole sticks, so that the moves of several symbols add up.
    """
    origin = dict.fromkeys(steps, 0)
    start = byte_offset(arg, origin)
    return {symbol: byte_offset(arg, {**origin, symbol: step}) - start for symbol, step in steps.items()}


def core_offsets(arg: TensorArg, spec: OpSpec) -> tuple[int, ...]:
    """Per core: bytes from the start of ``arg``'s buffer to the first element that it touches, in the first trip."""
    strides = symbol_strides(arg, core_ranges(spec))
    start = byte_offset(arg, dict.fromkeys(spec.iteration_space, 0))
    return tuple(
        start + sum(strides[symbol] * at for symbol, at in slices.items() if at) for slices in core_slices(spec)
    )


def lx_start(arg: TensorArg, spec: OpSpec) -> int:
    """Byte of a core's scratchpad at which ``arg`` begins, its window included; the same on every core.

    A core holds its slice alone, so that split dims are shorter there than ``device_size`` says.
    """
    cut = [
        extent // math.prod(spec.iteration_space[symbol][1] for symbol in coordinate.free_symbols)
        for extent, coordinate in zip(arg.device_size[:-1], arg.device_coordinates[:-1], strict=True)
    ]
    origin = dict.fromkeys(spec.iteration_space, 0)
    elements = linear_offset((*cut, arg.device_size[-1]), arg.device_coordinates, origin)
    return arg.allocation["lx"] + elements * word_bytes(arg.device_dtype)

"""Hand-written specs with the values that they should give: the canonical example, matmuls, sums, windows, float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
import torch
from torch import Tensor

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.layout import Layout, default_layout, layout_of_slots
from spyre_fx.codegen.lower import bundle_of
from spyre_fx.codegen.lowered import Argument, DeviceStep, Lowered, Value
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg
from spyre_fx.target import Target

C0, C1, C2 = sympy.symbols("c0 c1 c2")
HALF, FLOAT = "SEN169_FP16", "IEEE_FP32"
_DTYPES = {HALF: torch.float16, FLOAT: torch.float32}


@dataclass(frozen=True)
class Tensors:
    """A tensor of a sample: where it lies and how it is laid out."""

    name: str
    arg_index: int
    layout: Layout
    address: int
    is_output: bool = False

    def at(
        self,
        *coordinates: sympy.Expr | int,
        advance: Sequence[int] = (),
        output: bool = False,
    ) -> TensorArg:
        return TensorArg(
            is_input=not output,
            arg_index=self.arg_index,
            device_dtype=self.layout.data_format,
            device_size=self.layout.device_size,
            device_coordinates=coordinates,
            allocation={"hbm": self.address},
            advance=tuple(advance),
            name=self.name,
        )


@dataclass(frozen=True)
class Sample:
    """Specs with their arguments and what they compute."""

    specs: tuple[Spec, ...]
    tensors: tuple[Tensors, ...]
    expected: Callable[..., Tensor]
    exact: bool = True

    def lowered(self, target: Target | None = None) -> Lowered:
        arguments = tuple(_argument(tensor) for tensor in self.tensors)
        inputs = [one for one in arguments if one.role == "input"]
        return Lowered(
            target=target or Target(),
            inputs=tuple(one.name for one in inputs),
            outputs=(Value(arguments[-1].name),),
            arguments=arguments,
            constants=(),
            steps=(DeviceStep("kernel", self.specs),),
            input_types=tuple((one.shape, one.dtype) for one in inputs),
        )

    def bundle(self, target: Target | None = None, *, unroll: bool = False) -> Bundle:
        return bundle_of(self.lowered(target), unroll=unroll)

    def inputs(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        return [
            torch.randn(tensor.layout.shape, generator=generator).to(_DTYPES[tensor.layout.data_format])
            for tensor in self.tensors
            if not tensor.is_output
        ]


def _argument(tensor: Tensors) -> Argument:
    shape, dtype = tensor.layout.shape, _DTYPES[tensor.layout.data_format]
    stride = tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
    role = "output" if tensor.is_output else "input"
    return Argument(tensor.name, role, tensor.arg_index, shape, stride, dtype, tensor.layout, tensor.address)


def place(*layouts: tuple[str, Layout]) -> tuple[Tensors, ...]:
    """Tensors one behind the other in memory; the last is the output."""
    placed: list[Tensors] = []
    address = 0
    for index, (name, layout) in enumerate(layouts):
        placed.append(Tensors(name, index, layout, address, index == len(layouts) - 1))
        address += layout.size_bytes
    return tuple(placed)


def half(*shape: int) -> Layout:
    return default_layout(shape, torch.float16)


def single(*shape: int) -> Layout:
    return default_layout(shape, torch.float32)


def matrix(row: sympy.Expr | int, column: sympy.Expr, lanes: int = 64, first: int = 0) -> tuple[sympy.Expr, ...]:
    """Coordinates of a matrix in the default layout, from stick ``first`` of the columns on."""
    return sympy.floor(column / lanes) + first, sympy.sympify(row), sympy.Mod(column, lanes)


def lx(name: str, size: tuple[int, ...], coordinates: Sequence[sympy.Expr], *, output: bool) -> TensorArg:
    """A half tile at the start of LX, in two loops."""
    return TensorArg(not output, -1, HALF, size, tuple(coordinates), {"lx": 0}, True, (0, 0), name)


def op(
    name: str,
    space: dict[sympy.Symbol, tuple[int, int]],
    *args: TensorArg,
    tiled: Sequence[object] = (),
    constants: dict[str, float] | None = None,
) -> OpSpec:
    reduction = name.removesuffix("nonstick") in ("sum", "max", "min", "mean", "prod", "absmax", "batchmatmul")
    info = {"constants": constants} if constants else {}
    return OpSpec(name, reduction, space, args, info, tuple(tiled))


def canonical() -> Sample:
    """``z = (a + b) * c`` on [1024, 4096], rows in 2 tiles, columns in 4, with the sum in LX."""
    a, b, c, z = tensors = place(*((name, half(1024, 4096)) for name in "abcz"))
    at, space, advance = matrix(C0, C1), {C0: (512, 32), C1: (1024, 1)}, (65536, 2097152)
    y = (16, 512, 64)
    add = op(
        "add", space, a.at(*at, advance=advance), b.at(*at, advance=advance), lx("y", y, at, output=True),
        tiled=(C0, C1),
    )  # fmt: skip
    mul = op(
        "mul", space, lx("y", y, at, output=False), c.at(*at, advance=advance),
        z.at(*at, advance=advance, output=True), tiled=(C0, C1),
    )  # fmt: skip
    specs = (LoopSpec(2, (LoopSpec(4, (add, mul)),)),)
    return Sample(specs, tensors, lambda a, b, c: (a + b) * c)


def untiled_add() -> Sample:
    """The addition of the format's own example: [512, 1024] over 32 cores."""
    a, b, z = tensors = place(*((name, half(512, 1024)) for name in "abz"))
    at = matrix(C0, C1)
    spec = op("add", {C0: (512, 32), C1: (1024, 1)}, a.at(*at), b.at(*at), z.at(*at, output=True))
    return Sample((spec,), tensors, lambda a, b: a + b)


def matmul() -> Sample:
    """[128, 256] @ [256, 512], rows over 8 cores."""
    x, y, z = tensors = place(("x", half(128, 256)), ("y", half(256, 512)), ("z", half(128, 512)))
    spec = op(
        "batchmatmul", {C0: (128, 8), C1: (512, 1), C2: (256, 1)},
        x.at(*matrix(C0, C2)), y.at(*matrix(C2, C1)), z.at(*matrix(C0, C1), output=True),
    )  # fmt: skip
    return Sample((spec,), tensors, lambda x, y: x @ y, exact=False)


def padded_matmul() -> Sample:
    """[10, 100] @ [100, 70]: K is rounded to whole sticks, in the rows of the second operand too."""
    second = layout_of_slots((100, 70), HALF, (1, 0, 1), padded=(128, 70))
    x, y, z = tensors = place(("x", half(10, 100)), ("y", second), ("z", half(10, 70)))
    spec = op(
        "batchmatmul", {C0: (10, 5), C1: (70, 1), C2: (100, 1)},
        x.at(*matrix(C0, C2)), y.at(*matrix(C2, C1)), z.at(*matrix(C0, C1), output=True),
    )  # fmt: skip
    return Sample((spec,), tensors, lambda x, y: x @ y, exact=False)


def stick_sum() -> Sample:
    """``x.sum(1)`` of [96, 100] over 4 cores, into one value per stick."""
    sparse = default_layout((96,), torch.float16, (0, -1))
    x, z = tensors = place(("x", half(96, 100)), ("z", sparse))
    spec = op("sum", {C0: (96, 4), C1: (100, 1)}, x.at(*matrix(C0, C1)), z.at(0, C0, 0, output=True))
    return Sample((spec,), tensors, lambda x: x.sum(1), exact=False)


def row_sum() -> Sample:
    """``x.sum(0)`` of [96, 256]: columns over 2 cores."""
    x, z = tensors = place(("x", half(96, 256)), ("z", half(256)))
    at = (sympy.floor(C0 / 64), C1, sympy.Mod(C0, 64))
    spec = op("sumnonstick", {C0: (256, 2), C1: (96, 1)}, x.at(*at), z.at(at[0], at[2], output=True))
    return Sample((spec,), tensors, lambda x: x.sum(0), exact=False)


def window() -> Sample:
    """``x[10:42, 64:192] + y``: a window with gaps on both sides."""
    x, y, z = tensors = place(("x", half(100, 256)), ("y", half(32, 128)), ("z", half(32, 128)))
    at = matrix(C0, C1)
    spec = op(
        "add", {C0: (32, 8), C1: (128, 1)}, x.at(*matrix(C0 + 10, C1, first=1)), y.at(*at), z.at(*at, output=True)
    )
    return Sample((spec,), tensors, lambda x, y: x[10:42, 64:192] + y)


def broadcast() -> Sample:
    """``x * bias + column`` in float32: a row for all rows, and one value per row."""
    x, bias, column, z = tensors = place(
        ("x", single(20, 96)), ("bias", single(96)), ("column", single(20, 1)), ("z", single(20, 96))
    )
    at = matrix(C0, C1, lanes=32)
    space = {C0: (20, 4), C1: (96, 3)}
    middle = TensorArg(False, -1, FLOAT, (3, 20, 32), at, {"lx": 0}, True, (), "m")
    mul = op("mul", space, x.at(*at), bias.at(at[0], at[2]), middle)
    read = TensorArg(True, -1, FLOAT, (3, 20, 32), at, {"lx": 0}, True, (), "m")
    add = op("add", space, read, column.at(0, C0, 0), z.at(*at, output=True))
    return Sample((mul, add), tensors, lambda x, bias, column: x * bias + column)


def tiled_matmul() -> Sample:
    """Rows in 4 tiles and columns in 2: the operands advance in one loop each, the result in both."""
    x, y, z = tensors = place(("x", half(128, 64)), ("y", half(64, 256)), ("z", half(128, 256)))
    row, column_y, column_z = 32 * 128, 2 * 64 * 128, 2 * 128 * 128
    spec = op(
        "batchmatmul", {C0: (32, 4), C1: (128, 2), C2: (64, 1)},
        x.at(*matrix(C0, C2), advance=(row, 0)), y.at(*matrix(C2, C1), advance=(0, column_y)),
        z.at(*matrix(C0, C1), advance=(row, column_z), output=True), tiled=(C0, C1),
    )  # fmt: skip
    return Sample((LoopSpec(4, (LoopSpec(2, (spec,)),)),), tensors, lambda x, y: x @ y, exact=False)


def remainder() -> Sample:
    """10 rows in tiles of 4: a loop of 2 trips and a body of its own for the last 2 rows."""
    x, z = tensors = place(("x", half(10, 64)), ("z", half(10, 64)))
    at, tail, advance = matrix(C0, C1), matrix(C0 + 8, C1), (4 * 128,)
    main = op(
        "abs", {C0: (4, 2), C1: (64, 1)}, x.at(*at, advance=advance), z.at(*at, advance=advance, output=True),
        tiled=(C0,),
    )  # fmt: skip
    rest = op("abs", {C0: (2, 2), C1: (64, 1)}, x.at(*tail), z.at(*tail, output=True))
    return Sample((LoopSpec(2, (main,)), rest), tensors, torch.abs)


_ALL = (
    canonical,
    untiled_add,
    matmul,
    padded_matmul,
    stick_sum,
    row_sum,
    window,
    broadcast,
    tiled_matmul,
    remainder,
)
SAMPLES: dict[str, Callable[[], Sample]] = {sample.__name__: sample for sample in _ALL}

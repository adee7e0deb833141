"""A bundle of two programs with a host step between them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.utils import _pytree as pytree

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lower import bundle_of
from spyre_fx.codegen.lowered import Argument, Constant, DeviceStep, HostStep, Lowered, Value
from spyre_fx.target import Target
from tests.codegen.spec_samples import C0, C1, half, matrix, op, place

aten = torch.ops.aten


class TwoPrograms:
    """``y = x.abs(); s, i = y.sort(); z = |s| * scale``: a program, a host op, a program, with a constant.

    Takes ``(x,)`` and returns ``{"z": z, "all": [i, x, 3]}``.
    """

    def __init__(self, target: Target | None = None) -> None:
        x, y, s, scale, z = place(*((name, half(8, 64)) for name in ("x", "y", "s", "scale", "z")))
        at, space = matrix(C0, C1), {C0: (8, 2), C1: (64, 1)}
        first = op("abs", space, x.at(*at), y.at(*at, output=True))
        second = op("mul", space, s.at(*at), scale.at(*at), z.at(*at, output=True))
        self.scale = torch.full((8, 64), 2.0, dtype=torch.float16)
        args = {
            name: Argument(name, role, index, (8, 64), (64, 1), torch.float16, half(8, 64), tensor.address)
            for (name, role, index), tensor in zip(
                [("x", "input", 0), ("y", "internal", -1), ("s", "internal", -1), ("scale", "constant", -1),
                 ("z", "output", 1)],
                (x, y, s, scale, z), strict=True,
            )
        }  # fmt: skip
        fix = {"y": -1, "s": -1, "scale": -1, "z": 1}
        first, second = (
            replace(spec, args=tuple(replace(arg, arg_index=fix.get(arg.name, 0)) for arg in spec.args))
            for spec in (first, second)
        )
        sort = HostStep(aten.sort.default, (Value("y"),), {"descending": True}, ("s", "i"), "%sort in model.py:2")
        out_spec = pytree.tree_structure({"z": 0, "all": [1, 2, 3]})
        self.lowered = Lowered(
            target=target or Target(),
            inputs=("x",),
            outputs=(Value("z"), Value("i"), Value("x"), 3),
            arguments=tuple(args.values()),
            constants=(Constant("scale", self.scale),),
            steps=(DeviceStep("sdsc_0", (first,)), sort, DeviceStep("sdsc_1", (second,))),
            out_spec=out_spec,
            input_types=(((8, 64), torch.float16),),
            notes={"lower bound": 1.5},
        )
        self.bundle = bundle_of(self.lowered)
        self.x = torch.randn(8, 64).half()

    def check(self, bundle: Bundle) -> None:
        s, i = self.x.abs().sort(descending=True)
        result = bundle.run(self.x)
        assert torch.equal(result["z"], s * self.scale)
        assert torch.equal(result["all"][0], i)
        assert torch.equal(result["all"][1], self.x)
        assert result["all"][2] == 3

"""The canonical example: y = a + b; z = y * c, in 2 tiles of dim 0 and 4 of dim 1, on the simulated device.

Prints the loops, the generated MLIR and what was measured, and saves the bundle under ``out/canonical``.
"""

from __future__ import annotations

from pathlib import Path

import torch

import spyre_fx

SHAPE = (1024, 4096)
FOLDER = Path("out") / "canonical"


def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    y = a + b
    return y * c


def main() -> None:
    torch.manual_seed(0)
    args = [torch.randn(SHAPE, dtype=torch.float16) for _ in range(3)]

    gm = spyre_fx.capture(f, *args)
    tiled = spyre_fx.tile(gm, [(["add", "mul"], [(2, [0]), (4, [1])])])
    section("Loops", spyre_fx.summary(tiled))

    bundle = spyre_fx.lower(tiled)
    section("Specs", bundle)
    section("MLIR", bundle.mlir())

    expected = f(*args)
    assert torch.equal(tiled(*args), expected), "the tiled graph gives other values than eager"
    assert torch.equal(bundle.run(*args), expected), "the simulated device gives other values than eager"
    section("Measured on the simulated device, values bit-equal to eager", bundle.report())

    without = spyre_fx.lower(tiled, spyre_fx.Target(lx_planning=False))
    assert torch.equal(without.run(*args), expected)
    section("The same with y in HBM instead of LX (this: LX, other: HBM)", bundle.diff(without))

    print(f"\nSaved: {bundle.save(FOLDER).resolve()}")


def section(title: str, content: object) -> None:
    print(f"\n== {title}\n{content}")


if __name__ == "__main__":
    main()

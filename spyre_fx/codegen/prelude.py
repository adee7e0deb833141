"""The names that a wrapper source uses; running the source with them gives the specs that it was printed from.

>>> names = namespace()
>>> exec("k = async_compile.sdsc('k', [LoopSpec(count=sympify('2'), body=[UnimplementedOp(op='sort')])])", names)
>>> names["k"]
(LoopSpec(count=2, body=(UnimplementedOp(op='sort'),), count_symbol_bounds={}, count_symbol_sources={}),)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy import sympify

from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp

__all__ = ["DataFormats", "LoopSpec", "OpSpec", "TensorArg", "UnimplementedOp", "async_compile", "namespace"]


class _DataFormats:
    """``DataFormats.SEN169_FP16`` is the name ``"SEN169_FP16"``."""

    def __getattr__(self, name: str) -> str:
        return name


class _AsyncCompile:
    """Stands where the backend compiles a kernel: hands its specs back."""

    def sdsc(self, name: str, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        return tuple(specs)


DataFormats = _DataFormats()
async_compile = _AsyncCompile()


def namespace() -> dict[str, Any]:
    """A fresh namespace to run a wrapper source in."""
    return {name: globals()[name] for name in __all__ if name != "namespace"} | {"sympify": sympify}

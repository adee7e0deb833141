"""Reads a wrapper source back into specs without running it: calls of the known constructors on literals, no more."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sympy

from spyre_fx.codegen.prelude import async_compile
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg, UnimplementedOp
from spyre_fx.errors.spec import BAD_FILE

_CALL = re.compile(r"(\w+)\s*\(")
_EXPRESSION = re.compile(r"[A-Za-z0-9_ +\-*/(),]*")


@lru_cache(maxsize=4096)
def _sympify(text: str) -> sympy.Expr:
    """``sympify`` of text that holds numbers, symbols, ``floor`` and ``Mod``; sympy itself would evaluate anything."""
    if not _EXPRESSION.fullmatch(text) or "__" in text or set(_CALL.findall(text)) - {"floor", "Mod"}:
        raise ValueError(f"the expression {text!r}")
    names = {name: sympy.Symbol(name) for name in re.findall(r"[A-Za-z_]\w*", text) if name not in ("floor", "Mod")}
    return sympy.sympify(text, locals=names)


_CALLS: dict[str, Callable[..., Any]] = {
    "sympify": _sympify,
    "float": float,
    "LoopSpec": LoopSpec,
    "OpSpec": OpSpec,
    "TensorArg": TensorArg,
    "UnimplementedOp": UnimplementedOp,
    "async_compile.sdsc": async_compile.sdsc,
}


def read_source(text: str, file: str = "wrapper.py") -> dict[str, tuple[Spec, ...]]:
    """The kernels of a wrapper source by name.

    Raises:
        SpecError: for text that is not a wrapper source, or does more than one does.
    """
    try:
        tree = ast.parse(text, file)
        assignments = [statement for statement in tree.body if isinstance(statement, ast.Assign)]
        return {ast.unparse(statement.targets[0]): tuple(_value(statement.value)) for statement in assignments}
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, sympy.SympifyError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise BAD_FILE(file=file, problem=problem, expected="a wrapper source") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List():
            return [_value(item) for item in node.elts]
        case ast.Tuple():
            return tuple(_value(item) for item in node.elts)
        case ast.Dict():
            keys = [_value(key) for key in node.keys if key is not None]
            return dict(zip(keys, map(_value, node.values), strict=True))
        case ast.Attribute(value=ast.Name("DataFormats"), attr=name):
            return name
        case ast.Call():
            name = ast.unparse(node.func)
            if name not in _CALLS:
                raise ValueError(f"a call of {name}")
            fields = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
            return _CALLS[name](*map(_value, node.args), **fields)
    raise ValueError(f"line {node.lineno}: {ast.unparse(node)[:60]}")

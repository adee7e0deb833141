"""Arguments of ATen ops as JSON and back: numbers, dtypes, nested lists, and whatever leaf the caller adds.

A plain value stands for itself; everything else is a dict of one key that says what it is, ``{"dtype": "float16"}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Hook = Callable[[Any], Any]
"""Gives the JSON of a leaf of the caller's own (or the leaf of its JSON), or None for anything else."""


class NotPlain(ValueError):
    """The value has no form in JSON."""


def _nothing(_: Any) -> Any:
    return None


def encode(value: Any, hook: Hook = _nothing) -> Any:
    """``value`` as JSON; ``NotPlain`` for what it cannot hold (a tensor, a function)."""
    own = hook(value)
    if own is not None:
        return own
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case complex():
            return {"complex": [encode(value.real), encode(value.imag)]}
        case list():
            return [encode(item, hook) for item in value]
        case tuple():
            return {"tuple": [encode(item, hook) for item in value]}
        case dict():
            return {"dict": [[encode(key, hook), encode(item, hook)] for key, item in value.items()]}
        case slice():
            return {"slice": [encode(end, hook) for end in (value.start, value.stop, value.step)]}
        case torch.dtype() | torch.layout() | torch.memory_format():
            return {"torch": str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
    raise NotPlain(f"{type(value).__name__} {value!r}")


def decode(data: Any, hook: Hook = _nothing) -> Any:
    """The inverse of ``encode``; ``NotPlain`` for JSON that it does not write."""
    own = hook(data)
    if own is not None:
        return own
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return [decode(item, hook) for item in data]
        case {"float": str(text)}:
            return float(text)
        case {"complex": [real, imaginary]}:
            return complex(decode(real), decode(imaginary))
        case {"tuple": list(items)}:
            return tuple(decode(item, hook) for item in items)
        case {"dict": list(items)}:
            return {decode(key, hook): decode(item, hook) for key, item in items}
        case {"slice": [start, stop, step]}:
            return slice(decode(start, hook), decode(stop, hook), decode(step, hook))
        case {"torch": str(name)}:
            return torch_constant(name)
        case {"device": str(name)}:
            return torch.device(name)
    raise NotPlain(f"{data!r}")


def torch_constant(name: str) -> Any:
    """``torch.float16``, ``torch.strided``, ``torch.contiguous_format`` by name."""
    value = getattr(torch, name, None)
    if not isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        raise NotPlain(f"torch.{name}")
    return value

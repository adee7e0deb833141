"""Runs of ops on fake tensors, each kind once: a model of equal layers asks for the same shapes over and over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spyre_fx.analysis.fake import fake_like
from spyre_fx.analysis.statistics import true_results
from spyre_fx.torch_compat import FakeTensorMode
from spyre_fx.transforms.loop_types import type_of


class Fakes:
    """What functions of fake tensors gave so far, by their arguments; numbers are told apart by type as well."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], mode: FakeTensorMode
    ) -> Any:
        """``function(*args, **kwargs)`` under ``mode``; the tensors in the result belong to the caller alone."""
        key: Any = None
        with contextlib.suppress(TypeError):
            key = (id(mode), function, _key(args), _key(kwargs))
            if key in self._known:
                return _copied(self._known[key], mode)
        with mode, torch.no_grad():
            value = true_results(function, args, function(*args, **kwargs))
        with contextlib.suppress(TypeError):
            if key is not None:
                self._known[key] = value
        return value


def _key(value: Any) -> Any:
    """What the shapes of a result depend on; ``TypeError`` where that has no hash (symbolic sizes) or is not all (a
    complex tensor may be the conjugate of what is stored).
    """
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise TypeError("complex")
        return (value.shape, value.stride(), value.dtype, value.device)
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in value.items())
    return (type(value), value)


def _copied(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, torch.Tensor):
        return fake_like(type_of(value), mode)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: fake_like(type_of(tensor), mode), value)

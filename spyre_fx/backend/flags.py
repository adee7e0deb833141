"""``coarse_tiling`` and ``coarse_tiling_groups_fn``, as options or in the environment: other words for ``tile``.

coarse_tiling=True                                           tile="hints"
coarse_tiling=True, coarse_tiling_groups_fn=my.module.fn     tile=my.module.fn
COARSE_TILING=1                                              tile="hints", where no option says otherwise
COARSE_TILING_GROUPS_FN=my.module:fn                         tile=my.module.fn, beside COARSE_TILING=1
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from spyre_fx.errors.options import COMBINATION, FLAG_VALUE, OPTION_VALUE

ON, GROUPS_FN = "coarse_tiling", "coarse_tiling_groups_fn"
FLAGS = (ON, GROUPS_FN)

_SWITCH = {"1": True, "0": False, "": False}


def without_flags(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The options with ``tile`` in place of the flags.

    args:
        options: as ``torch.compile`` takes them.
        environment: variables that hold where neither the flags nor ``tile`` are among the options.

    errors: ``OptionError`` for values that cannot be, and for options that contradict each other.
    """
    rest = {name: value for name, value in options.items() if name not in FLAGS}
    given = {name: options[name] for name in FLAGS if name in options}
    if not given:
        return rest if "tile" in rest else {**_from_environment(environment), **rest}
    on = given.get(ON, False)
    if not isinstance(on, bool):
        raise OPTION_VALUE(name=ON, value=on, expected="True or False")
    if given.get(GROUPS_FN) is not None and not on:
        raise COMBINATION(one=GROUPS_FN, other=f"{ON}=False, which tiles nothing")
    if not on:
        return rest
    if "tile" in rest:
        raise COMBINATION(one=f"{ON}=True", other=f"tile={rest['tile']!r}")
    return {**rest, "tile": _groups_fn(given.get(GROUPS_FN))}


def _groups_fn(function: Any) -> Any:
    """The function that makes the groups, or ``"hints"`` if there is none."""
    if function is None:
        return "hints"
    module = sys.modules.get(getattr(function, "__module__", ""))
    if not callable(function) or getattr(module, getattr(function, "__name__", ""), None) is not function:
        expected = "a function that its module knows by name (no lambda, no inner function)"
        raise OPTION_VALUE(name=GROUPS_FN, value=function, expected=expected)
    return function


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    text, path = environment.get(ON.upper(), ""), environment.get(GROUPS_FN.upper(), "")
    if text not in _SWITCH:
        raise FLAG_VALUE(name=ON.upper(), value=text, expected="1 or 0")
    if not _SWITCH[text]:
        return {}
    if not path:
        return {"tile": "hints"}
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FLAG_VALUE(name=GROUPS_FN.upper(), value=path, expected=f"module:function ({error})") from None
    return {"tile": _groups_fn(function)}

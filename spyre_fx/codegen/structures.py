"""Structures of arguments and results as text in the manifest of a saved bundle, and back."""

from __future__ import annotations

from torch.utils import _pytree as pytree

from spyre_fx.codegen.plain import NotPlain
from spyre_fx.errors.spec import STRUCTURE_NOT_SAVABLE

_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError)
"""What reading a structure from a text of the wrong form may raise."""


def structure_text(structure: pytree.TreeSpec | None, what: str) -> str | None:
    """``structure`` as text.

    Raises:
        SpecError: no text gives the same structure back: a class that pytree knows under no name, or dict keys that
            JSON does not have. ``what`` says whose structure it is.
    """
    if structure is None:
        return None
    try:
        text = pytree.treespec_dumps(structure)
        same = pytree.treespec_loads(text) == structure
    except _UNREADABLE:
        same = False
    if not same:
        raise STRUCTURE_NOT_SAVABLE(what=what, structure=_example(structure))
    return text


def read_structure(text: str | None, what: str) -> pytree.TreeSpec | None:
    """The inverse; ``NotPlain`` for a text that says something else."""
    if text is None:
        return None
    try:
        return pytree.treespec_loads(text)
    except _UNREADABLE as error:
        raise NotPlain(f"{what}: {type(error).__name__}: {error}") from None


def _example(structure: pytree.TreeSpec) -> str:
    """The structure on one line, with a star for each leaf."""
    return " ".join(str(pytree.tree_unflatten([_Leaf()] * structure.num_leaves, structure)).split())


class _Leaf:
    def __repr__(self) -> str:
        return "*"

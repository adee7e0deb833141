"""The nearest known name, for messages about an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'add'?)``, or nothing where no known name is alike."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def with_article(word: str) -> str:
    """``word`` after "a" or "an", going by its first letter."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"

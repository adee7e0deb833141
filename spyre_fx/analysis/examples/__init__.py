"""One call of each op that has a rule of its own: what the coverage page shows, and a first check of every rule."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_fx.analysis.examples import indexing, moving, numeric, spatial
from spyre_fx.analysis.examples.make import Example

__all__ = ["Example", "examples"]


def examples() -> Iterator[Example]:
    """All examples, in the order of the files that hold them."""
    for family in (numeric, moving, indexing, spatial):
        yield from family.EXAMPLES

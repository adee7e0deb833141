"""Tables that show themselves: as text when printed, as HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate


@dataclass(frozen=True)
class Table:
    """Rows under headers; cells may have several lines and begin with spaces."""

    rows: Sequence[Sequence[Any]]
    headers: Sequence[str] = ()
    align: Sequence[str] = ()
    """``left`` or ``right`` for each column; all left by default."""

    def __str__(self) -> str:
        form = "simple" if self.headers else "plain"
        align = tuple(self.align) if self.rows and self.align else None
        return tabulate(self.rows, self.headers, tablefmt=form, colalign=align, disable_numparse=True)

    def to_html(self) -> str:
        """The same as an HTML table without styles of its own."""
        head = "".join(f"<th>{_cell(header)}</th>" for header in self.headers)
        align = self.align or ["left"] * max(map(len, self.rows), default=0)
        rows = [
            "".join(f'<td align="{side}">{_cell(cell)}</td>' for cell, side in zip(row, align, strict=True))
            for row in self.rows
        ]
        lines = [*([f"<tr>{head}</tr>"] if head else []), *(f"<tr>{row}</tr>" for row in rows)]
        return "\n".join(["<table>", *lines, "</table>"])


class Tables(str):
    """A text made of tables and paragraphs, which a notebook shows as HTML.

    >>> Tables([Table([("add", 2)], ("op", "loops")), "one op"])
    op    loops
    ----  -------
    add   2
    <BLANKLINE>
    one op
    """

    parts: tuple[Table | str, ...]

    def __new__(cls, parts: Iterable[Table | str]) -> Tables:
        kept = tuple(parts)
        text = super().__new__(cls, "\n\n".join(map(str, kept)))
        text.parts = kept
        return text

    def __reduce__(self) -> tuple[type[Tables], tuple[tuple[Table | str, ...]]]:
        return Tables, (self.parts,)

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = [part.to_html() if isinstance(part, Table) else f"<p>{_cell(part)}</p>" for part in self.parts]
        return {"text/plain": str(self), "text/html": "\n".join(shown)}


def _cell(value: Any) -> str:
    text = html.escape(str(value))
    indent = len(text) - len(text.lstrip(" "))
    return "&nbsp;" * indent + text[indent:].replace("\n", "<br>")

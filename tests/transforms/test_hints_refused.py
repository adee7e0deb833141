"""Hints that cannot be followed: each error names the hint, the dim, the tensors and the sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from spyre_fx import capture, hints_to_coarse_tile_groups, name_tensor_dims, spyre_hint, tile
from spyre_fx.errors import HintError, TilingError
from tests.transforms.hinting import TRACERS, declare, named


@pytest.fixture(autouse=True)
def declared() -> None:
    declare(rows=8, cols=12, other=8, wide=16)


def under(slices: dict[str, int], body: Callable[..., Any]) -> Callable[..., Any]:
    """A program whose body stands in one block."""

    def program(*args: torch.Tensor) -> Any:
        with spyre_hint(slices=slices):
            return body(*args)

    return program


def renamed(x: torch.Tensor, *names: str | None) -> torch.Tensor:
    name_tensor_dims(x, names)
    return x


ROWS = ("rows", "cols")
REFUSED: dict[str, tuple[Callable[[], tuple[Callable[..., Any], list[torch.Tensor]]], str]] = {
    "a typing error": (
        lambda: (under({"row": 2}, lambda x: x + 1), [named(*ROWS)]),
        r"spyre_hint\(slices=\{'row': 2\}\) names dim 'row', which no tensor of the graph has "
        r"\(named dims: 'rows', 'cols'\)\. Expected the name of a dim of a tensor in the graph "
        r"\(did you mean 'rows'\?\)[\s\S]*at %add = aten\.add\.Tensor\(%args_0 \[8, 12\] float32\)",
    ),
    "no names at all": (
        lambda: (under({"rows": 2}, lambda x: x + 1), [torch.randn(8, 12)]),
        r"names dim 'rows', which no tensor of the graph has \(named dims: none\).*name_tensor_dims before the program",
    ),
    "named on a tensor that is not used": (
        lambda: (named(*ROWS), (under({"rows": 2}, lambda x: x + 1), [torch.randn(8, 12)]))[1],
        r"no tensor of the graph has \(named dims: none\)",
    ),
    "more tiles than elements": (
        lambda: (under({"rows": 9}, lambda x: x + 1), [named(*ROWS)]),
        r"asks for 9 tiles of 'rows', which has 8 elements \(dim 0 of 'args_0' \[8, 12\]\)\. Expected at most 8 tiles",
    ),
    "two axes of one op": (
        lambda: (under({"rows": 2}, lambda x: x @ x.t()), [named(*ROWS)]),
        r"'rows' names two axes of 'mm', at position 0 and position 1 of its iteration space\. Expected a name for "
        r"each axis[\s\S]*at %mm = aten\.mm\.default\(%args_0 \[8, 12\] float32, %permute \[12, 8\] float32\)",
    ),
    "one axis under two names": (
        lambda: (
            under({"rows": 2}, lambda x, y: x + y),
            [named("rows", None, sizes=[3]), named("other", None, sizes=[3])],
        ),
        r"'add' steps through dim 0 of 'args_0' \[8, 3\] \('rows'\) and dim 0 of 'args_1' \[8, 3\] \('other'\)",
    ),
    "contracted under two names": (
        lambda: (under({"rows": 2}, lambda x, y: x @ y), [named("cols", "rows"), named("other", "wide")]),
        r"'mm' steps through dim 1 of 'args_0' \[12, 8\] \('rows'\) and dim 0 of 'args_1' \[8, 16\] \('other'\)",
    ),
    "one name for two sizes": (
        lambda: (under({"rows": 2}, lambda x, y: (x + 1, y + 1)), [named("rows"), (declare(rows=9), named("rows"))[1]]),
        r"'rows' stands for 8 elements at dim 0 of 'args_0' \[8\] and for 9 at dim 0 of 'args_1' \[9\]",
    ),
    "an intermediate in another size": (
        lambda: (under({"rows": 2}, lambda x: renamed(x[:4] + 1, "rows", None)), [torch.randn(8, 3)]),
        r"dim 0 of \[4, 3\] float32 is named 'rows', which stands for 8 elements, but it has 4",
    ),
    "an intermediate with too many names": (
        lambda: (under({"rows": 2}, lambda x: renamed(x.sum(1), "rows", "cols")), [named(*ROWS)]),
        r"2 names \['rows', 'cols'\] for \[8\] float32\. Expected 1 names, one per dim",
    ),
    "an undeclared name inside": (
        lambda: (under({"rows": 2}, lambda x: renamed(x + 1, "rows", "nobody")), [named(*ROWS)]),
        r"dim 'nobody' is not declared",
    ),
    "made in another size": (
        lambda: (made, []),
        r"dim 1 of \[8, 10\] float32 is named 'cols', which stands for 12 elements, but it has 10",
    ),
}


def made() -> torch.Tensor:
    with spyre_hint(slices={"rows": 2}, named_dims=["rows", "cols"]):
        return torch.zeros(8, 10) + 1


@pytest.mark.parametrize("case", REFUSED)
def test_hints_that_cannot_be_followed(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(HintError, match=message):
        program, args = make()
        hints_to_coarse_tile_groups(capture(program, *args))


@pytest.mark.parametrize("tracer", TRACERS)
def test_a_name_without_a_tensor_is_an_error_under_each_tracer(tracer: str) -> None:
    gm = TRACERS[tracer](under({"rows": 2}, lambda x: x + 1), torch.randn(8, 12))
    with pytest.raises(HintError, match="names dim 'rows', which no tensor of the graph has"):
        hints_to_coarse_tile_groups(gm)


def test_all_problems_are_told_at_once() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"row": 2}):
            x = x + 1
        with spyre_hint(slices={"cols": 50, "lines": 2}):
            return x * 2

    with pytest.raises(HintError, match="3 problems") as caught:
        hints_to_coarse_tile_groups(capture(program, named(*ROWS)))
    first, second, third = caught.value.problems
    assert "dim 'row'" in first and "50 tiles" in second and "'lines'" in third


def test_an_ambiguous_name_is_told_once() -> None:
    program = under({"rows": 2}, lambda x: ((x @ x.t()).relu() + 1).sigmoid())
    with pytest.raises(HintError, match="two axes of 'mm'") as caught:
        hints_to_coarse_tile_groups(capture(program, named(*ROWS)))
    assert len(caught.value.problems) == 1


def test_nothing_is_refused_when_hints_are_inherited() -> None:
    program = under({"rows": 2, "nobody": 2}, lambda x: x @ x.t())
    groups = hints_to_coarse_tile_groups(capture(program, named(*ROWS)), strict=False)
    assert groups == []
    assert groups.reasons[0] == "rows: no loop, since permute makes no more than a view"
    assert "names dim 'nobody', which no tensor of the graph has" in groups.reasons[1]


def test_tiles_that_no_view_allows_are_an_error_of_tile() -> None:
    gm = capture(under({"rows": 3}, lambda x: x.view(2, 4, 12) + 1), named(*ROWS))
    with pytest.raises(TilingError, match=r"3 tiles of 3 in groups\[0\] would straddle the factors \(2, 4\)"):
        tile(gm, hints_to_coarse_tile_groups(gm))

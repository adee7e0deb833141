"""From hint blocks to groups, and through ``tile`` to values."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from spyre_fx import capture, hints_to_coarse_tile_groups, spyre_hint, tile
from spyre_fx.errors import HintWarning
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.hints import DimHint
from tests.transforms.hinting import TRACERS, declare, hinted, named, shape_of
from tests.transforms.tiling import loops_of


@pytest.fixture(autouse=True)
def declared() -> None:
    declare(A=16, B=32, M=8, K=12, N=6, S=4, D=6)


def canonical(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    with spyre_hint(slices={"A": 2}), spyre_hint(slices={"B": 4}):
        y = a + b
        return y * c


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with spyre_hint(slices={"M": 4}):
        with spyre_hint(slices={"K": 2}):
            y = x @ w
        return y + b


@pytest.mark.parametrize("tracer", TRACERS)
def test_the_canonical_example(tracer: str) -> None:
    args = [named("A", "B", dtype=torch.float16) for _ in range(3)]
    found = hinted(canonical, *args, trace=TRACERS[tracer])
    assert found.groups == [LoopGroup(2, {"add": 0, "mul": 0}, [LoopGroup(4, {"add": 1, "mul": 1}, ["add", "mul"])])]
    (outer, inner) = loops_of(found.tiled)
    assert (outer.count, inner.count) == (2, 4)
    for node in inner.body(inner.phases[0]).graph.nodes:
        if node.op == "call_function":
            assert node.meta["loop_group_id"] == (0, 0)
            assert node.meta["loop_count"] == [2, 4]
            assert node.meta["loop_tiled_dims"] == [[0], [1]]
            assert list(node.meta["val"].shape) == [8, 8]


@pytest.mark.parametrize("tracer", TRACERS)
def test_a_reduction_inside_and_its_reader_outside(tracer: str) -> None:
    """The rows around matmul and add, the contracted dim around the matmul alone, which accumulates."""
    found = hinted(linear, named("M", "K"), named("K", "N"), torch.randn(8, 6), trace=TRACERS[tracer])
    assert [shape_of(group) for group in found.groups] == [(4, ((2, ("mm",)), "add"))]
    assert found.counts == [4, 2]
    (mm,) = (node for node in found.gm.graph.nodes if node.name == "mm")
    rows, columns = mm.meta["dim_hints"]
    assert (rows.name, rows.count, rows.positions, rows.is_reduction) == ("M", 4, (0,), False)
    assert (columns.name, columns.count, columns.positions, columns.is_reduction) == ("K", 2, (2,), True)


def test_several_dims_in_one_block_are_a_nest_in_the_order_given() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"N": 3, "M": 2, "K": 4}):
            return (x @ w).relu()

    found = hinted(program, named("M", "K"), named("K", "N"))
    assert [shape_of(group) for group in found.groups] == [(3, ((2, ((4, ("mm",)), "relu")),))]


def test_blocks_beside_each_other_are_loops_of_their_own() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            x = x + 1
        with spyre_hint(slices={"M": 2}):
            return x * 2

    assert [shape_of(group) for group in hinted(program, named("M", "K")).groups] == [(2, ("add",)), (2, ("mul",))]


def test_blocks_inside_one_block_are_siblings() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            with spyre_hint(slices={"K": 3}):
                x = x + 1
            x = x.sigmoid()
            with spyre_hint(slices={"K": 4}):
                return x * 2

    found = hinted(program, named("M", "K"))
    assert [shape_of(group) for group in found.groups] == [(2, ((3, ("add",)), "sigmoid", (4, ("mul",))))]


def test_tiles_of_tiles() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}), spyre_hint(slices={"M": 4}):
            return x + 1

    assert hinted(program, named("M", "K")).counts == [2, 4]


def test_one_tile_is_no_loop() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 1, "K": 2}):
            return x + 1

    found = hinted(program, named("M", "K"))
    assert found.counts == [2]
    assert found.groups.reasons[0] == "M: no loop, since spyre_hint(slices={'M': 1, 'K': 2}) asks for one tile"


def test_reasons_say_what_became_of_each_hint() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with spyre_hint(slices={"M": 2}):
            return (x + 1).relu(), y * 2

    groups = hints_to_coarse_tile_groups(capture(program, named("M", "K"), torch.randn(3)))
    assert groups.reasons == (
        "M: 2 tiles over add, relu",
        "outside of the loops of spyre_hint(slices={'M': 2}): mul",
    )


def test_no_hints_no_groups() -> None:
    gm = capture(lambda x: x + 1, named("M", "K"))
    groups = hints_to_coarse_tile_groups(gm)
    assert groups == [] and groups.reasons == ()
    assert all("dim_hints" not in node.meta for node in gm.graph.nodes)


def test_only_meta_data_is_written() -> None:
    gm = capture(linear, named("M", "K"), named("K", "N"), torch.randn(8, 6))
    code = gm.code
    first = hints_to_coarse_tile_groups(gm)
    assert gm.code == code
    assert hints_to_coarse_tile_groups(gm) == first
    (add,) = (node for node in gm.graph.nodes if node.name == "add")
    (hint,) = add.meta["dim_hints"]
    assert isinstance(hint, DimHint) and (hint.name, hint.positions) == ("M", (0,))


def test_hints_stay_with_the_nodes_of_the_tiled_graph() -> None:
    gm = capture(linear, named("M", "K"), named("K", "N"), torch.randn(8, 6))
    tiled = tile(gm, hints_to_coarse_tile_groups(gm))
    loop = loops_of(tiled)[0]
    body = loop.body(loop.phases[0])
    (add,) = (node for node in body.graph.nodes if node.name == "add")
    assert [hint.name for hint in add.meta["dim_hints"]] == ["M"]


def warned(program: object, *args: torch.Tensor) -> list[str]:
    gm = capture(program, *args)  # type: ignore[arg-type]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        groups = hints_to_coarse_tile_groups(gm)
    messages = [str(warning.message) for warning in caught if issubclass(warning.category, HintWarning)]
    assert messages == [reason for reason in groups.reasons if reason in messages]
    return messages


def test_a_name_that_the_block_lacks_is_a_warning() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with spyre_hint(slices={"K": 2}):
            y = y + 1
        return x * 2, y

    assert warned(program, named("M", "K"), torch.randn(3)) == [
        "spyre_hint(slices={'K': 2}): nothing is tiled along 'K', since no op of the block can be cut along it (add)"
    ]


def test_a_dim_that_no_op_can_cut_is_a_warning() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            return x.cumsum(0)

    (message,) = warned(program, named("M", "K"))
    assert "no op of the block can be cut along it (cumsum)" in message


def test_names_for_nothing_are_a_warning() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}, named_dims=["M", "K"]):
            return x + 1

    (message,) = warned(program, named("M", "K"))
    assert "no op of the block makes a tensor of 2 dims from nothing" in message


def test_a_size_that_is_known_at_run_time_only_is_a_warning() -> None:
    class Program(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with spyre_hint(slices={"M": 2}):
                return x + 1

    rows = torch.export.Dim("rows")
    program = torch.export.export(Program(), (named("M", "K"),), dynamic_shapes={"x": {0: rows}})
    (message,) = warned(program)
    assert "the size of dim 0 of 'x' [s" in message and "is only known at run time" in message


def test_a_block_inside_a_branch_is_a_warning() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        def inside(x: torch.Tensor) -> torch.Tensor:
            with spyre_hint(slices={"M": 2}):
                return x + 1

        return torch.cond(x.sum() > 0, inside, lambda x: x - 1, (x,))

    (message,) = warned(program, named("M", "K"))
    assert "it stands inside the graph of a branch or loop" in message

"""Hints in several threads and compilations of one process, and in random programs."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx import capture, declare_tensor_dim, hints_to_coarse_tile_groups, name_tensor_dims, spyre_hint, tile
from spyre_fx.capture.hint_scopes import scopes_of
from spyre_fx.errors import TilingError
from tests.transforms.hinting import TRACERS, declare, hinted, named, shape_of
from tests.transforms.tiling import loops_of


def program_with(count: int, rows: int) -> Any:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.mm(x, w)
        name_tensor_dims(y, ["rows", None])
        with spyre_hint(slices={"rows": count}):
            return (y + 1).relu() * rows

    return program


def test_threads_do_not_see_each_others_hints() -> None:
    ready = threading.Barrier(4)

    def work(number: int) -> tuple[int, int, int]:
        rows, count = 8 + 4 * number, 2 + number
        declare_tensor_dim("rows", rows)
        ready.wait(timeout=60)
        found = []
        for _ in range(3):
            gm = capture(program_with(count, rows), torch.randn(rows, 3), torch.randn(3, 5))
            blocks = {scope for node in gm.graph.nodes for scope in scopes_of(node)}
            (group,) = hints_to_coarse_tile_groups(gm)
            assert len(blocks) == 1
            tile(gm, [group])
            found.append(group.count)
        return number, min(found), max(found)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [(number, 2 + number, 2 + number) for number in range(4)]


def test_one_compilation_leaves_nothing_to_the_next() -> None:
    """The same names with other sizes, on other dims, with other counts, or with none."""
    declare(A=8, B=6)

    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"A": 2}):
            return x + 1

    assert hinted(program, named("A", "B")).groups[0].dims == {"add": 0}
    declare(A=6, B=8)
    assert hinted(program, named("B", "A")).groups[0].dims == {"add": 1}
    declare(A=12)
    assert hinted(program, named("A", None, sizes=[2])).groups[0].dims == {"add": 0}
    assert hints_to_coarse_tile_groups(capture(lambda x: x + 1, named("A"))) == []


def test_a_captured_program_keeps_no_input_alive() -> None:
    declare(A=8)
    x = named("A")
    gm = capture(lambda x: x + 1, x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert gm.graph.find_nodes(op="placeholder")[0].meta["named_dims"]


@pytest.mark.parametrize("tracer", TRACERS)
def test_layers_of_one_model_are_loops_of_their_own(tracer: str) -> None:
    declare(A=8, D=6)
    weights = [torch.randn(6, 6) for _ in range(3)]

    def model(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            with spyre_hint(slices={"A": 2}):
                x = (x @ w).sigmoid()
        return x

    found = hinted(model, named("A", "D"), *weights, trace=TRACERS[tracer])
    assert [shape_of(group)[0] for group in found.groups] == [2, 2, 2]
    assert len(loops_of(found.tiled)) == 3


SQUARE = torch.randn(6, 6) * 0.3
STEPS = {
    "add": lambda x, y: x + y,
    "relu": lambda x, y: x.relu(),
    "transposed": lambda x, y: (x.t() * 2).t(),
    "softmax": lambda x, y: x.softmax(-1),
    "centred": lambda x, y: x - x.mean(0, keepdim=True),
    "product": lambda x, y: x @ SQUARE,
    "flattened": lambda x, y: (x.flatten() * 3).view(x.shape),
    "split": lambda x, y: x.view(2, -1, x.shape[1]).sigmoid().flatten(0, 1),
    "sorted": lambda x, y: x.sort(0).values,
    "summed": lambda x, y: x * x.sum(1, keepdim=True),
    "rolled": lambda x, y: torch.cat([x[2:], x[:2]]),
}


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from(["", "M", "N", "MN", "NM"])), min_size=1, max_size=6
    ),
    rows=st.sampled_from([4, 6, 8]),
    counts=st.tuples(st.sampled_from([2, 4]), st.sampled_from([2, 3])),
    outer=st.sampled_from(["", "M", "N"]),
)
def test_random_programs_equal_eager(
    steps: list[tuple[str, str]], rows: int, counts: tuple[int, int], outer: str
) -> None:
    """Whatever hints ask for: values are those of eager, or there is a clear refusal."""
    declare(M=rows, N=6)
    count = dict(zip("MN", counts, strict=True))

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def body(x: torch.Tensor) -> torch.Tensor:
            for step, asked in steps:
                dims = asked.replace(outer, "")  # tiles of tiles might be more than there are elements
                if dims:
                    with spyre_hint(slices={dim: count[dim] for dim in dims}):
                        x = STEPS[step](x, y)
                else:
                    x = STEPS[step](x, y)
            return x

        if not outer:
            return body(x)
        with spyre_hint(slices={outer: count[outer]}):
            return body(x)

    x, y = named("M", "N"), named("M", "N")
    gm = make_fx(program)(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups = hints_to_coarse_tile_groups(gm)
    try:
        tiled = tile(gm, groups)
    except TilingError as error:
        assert "would straddle the factors" in str(error)
        return
    assert bool(loops_of(tiled)) == bool(groups)
    torch.testing.assert_close(tiled(x, y), program(x, y), rtol=1e-4, atol=1e-4)

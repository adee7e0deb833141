"""Hints through ``torch.compile``: forward, backward, dynamic sizes, threads, and what is refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from spyre_fx import declare_tensor_dim, hints_to_coarse_tile_groups, name_tensor_dims, spyre_hint
from spyre_fx.backend import Backend
from spyre_fx.transforms.groups import DimPart, DimParts, LoopGroup
from tests.backend.helpers import assert_same
from tests.transforms.hinting import declare, named, shape_of


@pytest.fixture(autouse=True)
def declared() -> None:
    declare(A=16, B=32, M=8, K=12, N=6)


def canonical(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    with spyre_hint(slices={"A": 2}), spyre_hint(slices={"B": 4}):
        y = a + b
        return y * c


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with spyre_hint(slices={"M": 4}):
        with spyre_hint(slices={"K": 2}):
            y = x @ w
        z = y + b
    return z.sigmoid()


def shapes(backend: Backend) -> list[list[Any]]:
    return [[shape_of(group) for group in record.groups] for record in backend.graphs]


def compiled(program: Callable[..., Any], **options: Any) -> tuple[Backend, Callable[..., Any]]:
    backend = Backend(**options)
    return backend, torch.compile(program, backend=backend, fullgraph=True)


@pytest.mark.parametrize("tile", ["auto", "hints"])
def test_the_canonical_example(tile: str) -> None:
    args = [named("A", "B") for _ in range(3)]
    backend, run = compiled(canonical, tile=tile)
    assert_same(run(*args), canonical(*args))
    assert shapes(backend) == [[(2, ((4, ("add", "mul")),))]]
    assert backend.graphs[0].reasons[:3] == [
        "1 group from hints",
        "A: 2 tiles over add, mul",
        "B: 4 tiles over add, mul",
    ]


def test_the_canonical_example_on_the_device() -> None:
    declare(A=16, B=256)
    args = [named("A", "B", dtype=torch.float16) for _ in range(3)]
    backend, run = compiled(canonical, execute="device")
    assert_same(run(*args), canonical(*args))
    assert backend.graphs[0].bundle is not None


def test_forward_and_backward() -> None:
    x, w = named("M", "K").requires_grad_(), named("K", "N").requires_grad_()
    b = torch.randn(8, 6)
    backend, run = compiled(linear)
    assert_same(run(x, w, b), linear(x, w, b))
    found, expected = (torch.autograd.grad(f(x, w, b).square().sum(), [x, w]) for f in (run, linear))
    assert_same(found, expected)
    forward, backward = backend.graphs
    assert [shape_of(group) for group in forward.groups] == [(4, ((2, ("mm",)), "add"))]
    assert [group.count for group in backward.groups] == [4], "gradients are named as what they are gradients of"
    assert all("mm" in str(group) for group in backward.groups)


def test_names_inside_the_program() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x @ x.t()
        name_tensor_dims(y, ["M", None])
        with spyre_hint(slices={"M": 2}):
            return y.relu() + 1

    x = torch.randn(8, 12, requires_grad=True)
    backend, run = compiled(program)
    assert_same(run(x), program(x))
    run(x).sum().backward()
    assert [shape_of(group)[0] for record in backend.graphs for group in record.groups][:1] == [2]
    assert all("name_dims" not in record.captured.code for record in backend.graphs)


def test_named_parameters() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(12, 6)
            name_tensor_dims(self.lin.weight, ["N", "K"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with spyre_hint(slices={"N": 3}):
                return self.lin(x).relu()

    model = Model()
    x = torch.randn(5, 12)
    backend, run = compiled(model)
    assert_same(run(x), model(x))
    found, expected = (torch.autograd.grad(f(x).sum(), list(model.parameters())) for f in (run, model))
    assert_same(found, expected)
    assert [group.count for group in backend.graphs[0].groups] == [3]


def test_views_of_named_tensors() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"K": 2}):
            return x + 1

    backend, run = compiled(program)
    for view in (named("M", "K").t(), named("M", "K").flatten()):
        assert_same(run(view), program(view))
    transposed, flat = (record.groups[0].dims["add"] for record in backend.graphs)
    assert transposed == 0
    assert flat == DimParts((DimPart(0, 12),))


def test_a_count_that_follows_from_a_size() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": x.shape[0] // 4}):
            return x + 1

    backend = Backend()
    run = torch.compile(program, backend=backend, fullgraph=True, dynamic=True)
    for rows in (8, 12):
        declare(M=rows)
        run(named("M", "K"))
    assert [record.groups[0].count for record in backend.graphs] == [2, 3]


def test_several_compilations_in_one_process() -> None:
    """Another size, another dim, another count: each compilation sees its own."""
    counts = []
    for rows, count in ((8, 2), (12, 3), (20, 5)):
        torch._dynamo.reset()
        declare(M=rows)

        def program(x: torch.Tensor, count: int = count) -> torch.Tensor:
            with spyre_hint(slices={"M": count}):
                return x.exp() + 1

        backend, run = compiled(program)
        x = named("M", "K")
        assert_same(run(x), program(x))
        counts += [(group.count, record.tiled is not None) for record in backend.graphs for group in record.groups]
    assert counts == [(2, True), (3, True), (5, True)]


def test_equal_layers_are_compiled_once() -> None:
    backend = Backend()

    def layer() -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            with spyre_hint(slices={"M": 2}):
                return x.relu() * 2

        return torch.compile(run, backend=backend)

    x = named("M", "K")
    for _ in range(2):
        layer()(x)
        torch._dynamo.reset()
    first, second = backend.graphs
    assert not first.reused and second.reused and second.groups == first.groups


def test_other_names_are_another_graph() -> None:
    declare(P=8)
    backend = Backend()

    def run(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"K": 2}):
            return x.relu() * 2

    torch.compile(run, backend=backend)(named("P", "K"))
    torch._dynamo.reset()
    square = torch.randn(8, 12)
    declare(K=8)
    name_tensor_dims(square, ["K", None])
    torch.compile(run, backend=backend)(square)
    assert [record.groups[0].dims for record in backend.graphs] == [{"relu": 1, "mul": 1}, {"relu": 0, "mul": 0}]


def test_threads() -> None:
    """Dynamo compiles one at a time, so what threads must not share is what they declare and name."""
    ready = threading.Barrier(3)

    def work(number: int) -> tuple[int, bool]:
        rows = 8 + 4 * number
        declare_tensor_dim("M", rows)

        def program(x: torch.Tensor) -> torch.Tensor:
            with spyre_hint(slices={"M": 2 + number}):
                return x.relu() + number

        x = torch.randn(rows, 3)
        name_tensor_dims(x, ["M", None])
        backend, run = compiled(program)
        ready.wait(timeout=60)
        same = torch.equal(run(x), program(x))
        return backend.graphs[0].groups[0].count, same

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(3))) == [(2, True), (3, True), (4, True)]


def test_sizes_that_change_from_call_to_call() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            return x.relu() + 1

    backend = Backend()
    run = torch.compile(program, backend=backend, dynamic=True)
    for rows in (8, 10, 14):
        declare(M=rows)
        x = named("M", "K")
        assert_same(run(x), program(x))
    assert [[group.count for group in record.groups] for record in backend.graphs] == [[2], [2], [2]]


def test_sizes_that_change_and_names_inside() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        name_tensor_dims(x, ["M", None])
        with spyre_hint(slices={"M": 2}):
            return x.relu() + 1

    backend = Backend()
    run = torch.compile(program, backend=backend, dynamic=True)
    for rows in (8, 10, 14):
        declare(M=rows)
        x = torch.randn(rows, 3)
        assert_same(run(x), program(x))
    assert [[group.count for group in record.groups] for record in backend.graphs] == [[2], [2], [2]]


def test_sizes_other_than_declared_stop_the_compilation() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        name_tensor_dims(x, ["M", "K"])
        return x.relu() + 1

    _, run = compiled(program)
    with pytest.raises(Exception, match=r"HintError: dim 0 of \[7, 12\] float32 is named 'M', which stands for 8"):
        run(torch.randn(7, 12))


def groups_of_rows(gm: torch.fx.GraphModule) -> list[Any]:
    return [LoopGroup(3, [0], [node.name for node in gm.graph.nodes if node.op == "call_function"])]


def test_a_function_goes_before_hints() -> None:
    args = [named("A", "B") for _ in range(3)]
    backend, run = compiled(canonical, tile=groups_of_rows)
    assert_same(run(*args), canonical(*args))
    assert shapes(backend) == [[(3, ("add", "mul"))]]


def test_a_function_may_use_hints() -> None:
    args = [named("A", "B") for _ in range(3)]
    backend, run = compiled(canonical, tile=hints_to_coarse_tile_groups)
    assert_same(run(*args), canonical(*args))
    assert shapes(backend) == [[(2, ((4, ("add", "mul")),))]]


def test_hints_that_are_turned_off_are_reported() -> None:
    backend, run = compiled(canonical, tile="off")
    run(*(named("A", "B") for _ in range(3)))
    assert backend.graphs[0].reasons == ["tiling is off, although the program has hints"]


def test_a_block_around_the_call_is_refused() -> None:
    _, run = compiled(lambda x: x + 1)
    with (
        spyre_hint(slices={"M": 2}),
        pytest.raises(Exception, match=r"HintError: spyre_hint\(slices=\{'M': 2\}\) around"),
    ):
        run(named("M", "K"))


def test_an_unknown_name_stops_the_compilation() -> None:
    _, run = compiled(canonical)
    with pytest.raises(Exception, match=r"HintError: 2 problems:\n1\. spyre_hint\(slices=\{'A': 2\}\) names dim 'A'"):
        run(*(torch.randn(16, 32) for _ in range(3)))


def test_backward_graphs_do_not_stop_the_training(caplog: pytest.LogCaptureFixture) -> None:
    """What the hints of the forward mean for the backward is followed as far as it goes."""
    declare(T=8)

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"M": 2}):
            keys = x @ w
            name_tensor_dims(keys, ["T", None])
            return (x @ keys.t()).softmax(-1) @ keys

    x, w = named("M", "K").requires_grad_(), torch.randn(12, 12, requires_grad=True)
    _, run = compiled(program)
    with caplog.at_level(logging.WARNING, logger="spyre_fx"):
        found, expected = (torch.autograd.grad(f(x, w).square().sum(), [x, w]) for f in (run, program))
    assert_same(found, expected, rtol=1e-4, atol=1e-4)

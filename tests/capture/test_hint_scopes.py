"""Hint blocks: what each tracer records of them, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx import capture, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_fx.capture.dim_spans import shown
from spyre_fx.capture.hint_scopes import check_no_surrounding_scope, scopes_of
from spyre_fx.errors import CaptureError, HintError, HintWarning

X, Y = torch.randn(4, 6), torch.randn(4, 6)


@pytest.fixture(autouse=True)
def declared() -> None:
    declare_tensor_dim("A", 4)
    declare_tensor_dim("B", 6)


class Program(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        name_tensor_dims(y, ["A", "B"])
        with spyre_hint(slices={"A": 2}):
            with spyre_hint(slices={"B": 3}):
                z = x + y
            z = z * y
        with spyre_hint(slices={"A": 2}):
            z = z - x
        return z.relu()


def exported(strict: bool) -> fx.GraphModule:
    return capture(torch.export.export(Program(), (X, Y), strict=strict))


def compiled() -> fx.GraphModule:
    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(Program(), backend=backend, fullgraph=True)(X, Y)
    return graphs[0]


TRACERS: dict[str, Callable[[], fx.GraphModule]] = {
    "capture": lambda: capture(Program(), X, Y),
    "make_fx": lambda: make_fx(Program())(X, Y),
    "make_fx, fake": lambda: make_fx(Program(), tracing_mode="fake")(X, Y),
    "make_fx, symbolic": lambda: make_fx(Program(), tracing_mode="symbolic")(X, Y),
    "export": lambda: exported(strict=False),
    "strict export": lambda: exported(strict=True),
    "dynamo": compiled,
}


@pytest.mark.parametrize("tracer", TRACERS)
def test_ops_know_the_blocks_around_them(tracer: str) -> None:
    gm = TRACERS[tracer]()
    ops = [node for node in gm.graph.nodes if node.op.startswith("call") and "name_dims" not in node.name]
    add, mul, sub, relu = (scopes_of(op) for op in ops)
    assert [scope.slices for scope in add] == [(("A", 2),), (("B", 3),)]
    assert mul == add[:1]
    assert [scope.slices for scope in sub] == [(("A", 2),)]
    assert sub != mul, "two blocks in a row are two"
    assert relu == ()


@pytest.mark.parametrize("tracer", [name for name in TRACERS if name != "dynamo"])
def test_names_inside_the_program_are_recorded(tracer: str) -> None:
    gm = TRACERS[tracer]()
    _, y = gm.graph.find_nodes(op="placeholder")
    assert shown(y.meta["named_dims"]) == "['A', 'B']"
    assert "name_dims" not in gm.code


def test_names_of_inputs_reach_make_fx_and_capture() -> None:
    x = torch.randn(4, 6)
    name_tensor_dims(x, ["A", None])
    for gm in (capture(Program(), x, Y), make_fx(Program())(x, Y), make_fx(Program(), tracing_mode="fake")(x, Y)):
        first, _ = gm.graph.find_nodes(op="placeholder")
        assert shown(first.meta["named_dims"]) == "['A', None]"


def test_hints_and_names_survive_a_file(tmp_path: Path) -> None:
    x = torch.randn(4, 6)
    name_tensor_dims(x, ["A", "B"])
    torch.export.save(torch.export.export(Program(), (x, Y), strict=False), tmp_path / "program.pt2")
    gm = capture(tmp_path / "program.pt2")
    assert [shown(node.meta["named_dims"]) for node in gm.graph.find_nodes(op="placeholder")] == ["['A', 'B']"] * 2
    assert [len(scopes_of(node)) for node in gm.graph.nodes if node.op == "call_function"] == [2, 1, 1, 0]


def test_other_words_for_slices() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(tiles={"A": 2, "B": 3}), spyre_hint(num_tiles_per_dim={"A": 2}):
            return x + 1

    (add,) = (node for node in make_fx(program)(X).graph.nodes if node.op == "call_function")
    assert [scope.slices for scope in scopes_of(add)] == [(("A", 2), ("B", 3)), (("A", 2),)]
    assert str(scopes_of(add)[0]) == "spyre_hint(slices={'A': 2, 'B': 3})"


def test_a_block_that_is_entered_twice_is_one_block() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        block = spyre_hint(slices={"A": 2})
        with block:
            x = x + 1
        x = x * 2
        with block:
            return x - 1

    gm = capture(program, X)
    add, mul, sub = (scopes_of(node) for node in gm.graph.nodes if node.op == "call_function")
    assert add == sub and mul == ()


def test_a_block_in_a_loop_is_a_block_per_round() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            with spyre_hint(slices={"A": 2}):
                x = x + 1
        return x

    gm = capture(program, X)
    assert len({scopes_of(node) for node in gm.graph.nodes if node.op == "call_function"}) == 3


def test_a_block_as_a_decorator() -> None:
    @spyre_hint(slices={"A": 2})
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    (add,) = (node for node in make_fx(program)(X).graph.nodes if node.op == "call_function")
    assert len(scopes_of(add)) == 1


def test_a_block_around_capture_holds_for_the_whole_graph() -> None:
    with spyre_hint(slices={"B": 2}):
        gm = capture(Program(), X, Y)
    for node in gm.graph.nodes:
        if node.op == "call_function":
            assert scopes_of(node)[0].slices == (("B", 2),)


def test_a_block_changes_nothing_in_eager_mode() -> None:
    assert torch.equal(Program()(X, Y), ((X + Y) * Y - X).relu())


def test_a_block_ends_when_an_error_leaves_it() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            with spyre_hint(slices={"A": 2}):
                x = x + 1
                raise ValueError
        except ValueError:
            return x * 2

    add, mul = (scopes_of(node) for node in make_fx(program)(X).graph.nodes if node.op == "call_function")
    assert len(add) == 1 and mul == ()


def test_an_empty_block_is_reported() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"A": 2}):
            pass
        return x + 1

    with pytest.warns(HintWarning, match=r"spyre_hint\(slices=\{'A': 2\}\) holds no op that was recorded"):
        make_fx(program)(X)


def no_capture(statement: Callable[[], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        with statement():
            return x + 1

    return program


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: spyre_hint(), r"spyre_hint without slices\. Expected at least one named dim"),
    "empty": (lambda: spyre_hint(slices={}), r"spyre_hint without slices"),
    "two words": (lambda: spyre_hint(slices={"A": 2}, tiles={"B": 2}), r"slices and tiles in one spyre_hint"),
    "a list": (lambda: spyre_hint(slices=["A"]), r"slices=\['A'\]\. Expected a dict from names to numbers of tiles"),
    "a count": (lambda: spyre_hint(tiles=4), r"tiles=4\. Expected a dict"),
    "no tiles": (lambda: spyre_hint(slices={"A": 0}), r"0 \(int\) tiles of dim 'A'\. Expected a positive int"),
    "half a tile": (lambda: spyre_hint(slices={"A": 0.5}), r"0\.5 \(float\) tiles of dim 'A'"),
    "yes": (lambda: spyre_hint(slices={"A": True}), r"True \(bool\) tiles of dim 'A'"),
    "a number": (lambda: spyre_hint(slices={0: 2}), r"0 \(int\) as the name of a dim"),
    "undeclared": (lambda: spyre_hint(named_dims=["Nowhere"]), r"dim 'Nowhere' is not declared"),
    "one string": (lambda: spyre_hint(named_dims="AB"), r"names 'AB'\. Expected a list"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("tracer", ["eager", "capture", "dynamo"])
def test_what_cannot_be_is_refused(case: str, tracer: str) -> None:
    statement, message = REFUSED[case]
    program = no_capture(statement)
    torch._dynamo.reset()
    run = {"eager": program, "dynamo": torch.compile(program, backend="eager")}.get(tracer)
    with pytest.raises(HintError, match=message):
        capture(program, X) if run is None else run(X)


def test_dynamo_says_why_it_cannot_make_one_graph() -> None:
    torch._dynamo.reset()
    program = torch.compile(no_capture(lambda: spyre_hint(slices={"A": 0})), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"0 \(int\) tiles of dim 'A'\. Expected a positive int"):
        program(X)


def wrong_order(x: torch.Tensor) -> torch.Tensor:
    name_tensor_dims(x, ["B", "A"])
    return x + 1


def too_many(x: torch.Tensor) -> torch.Tensor:
    name_tensor_dims(x, ["A", "B", None])
    return x + 1


def test_the_number_of_names_is_checked_while_dynamo_traces() -> None:
    torch._dynamo.reset()
    with pytest.raises(HintError, match=r"3 names \['A', 'B', None\] for a tensor of 2 dims"):
        torch.compile(too_many, backend="eager")(X)


@pytest.mark.parametrize("strict", [False, True])
def test_sizes_are_checked_in_what_was_exported(strict: bool) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return wrong_order(x)

    with pytest.raises(HintError, match=r"\[4, 6\] float32 is named 'B', which stands for 6 elements, but it has 4"):
        capture(torch.export.export(Wrong(), (X,), strict=strict))


def test_declarations_inside_a_compiled_function() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        declare_tensor_dim("inside", 4)
        name_tensor_dims(x, ["inside", None])
        return x + 1

    torch._dynamo.reset()
    assert torch.equal(torch.compile(program, backend="eager", fullgraph=True)(X), X + 1)
    name_tensor_dims(torch.ones(4), ["inside"])


def test_a_block_that_dynamo_would_leave_out_is_refused() -> None:
    """Made outside of the function, or broken in two: in both cases Dynamo runs the function as it is."""
    block = spyre_hint(slices={"A": 2})

    def outside(x: torch.Tensor) -> torch.Tensor:
        with block:
            return x + 1

    def broken(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"A": 2}):
            x = x + 1
            torch._dynamo.graph_break()
            return x * 2

    for program in (outside, broken):
        torch._dynamo.reset()
        with pytest.raises(HintError, match=r"is entered by a function that Dynamo does not compile as a whole"):
            torch.compile(program, backend="eager")(X)
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(program, backend="eager", fullgraph=True)(X)


def test_dynamo_enters_blocks_as_python_does() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        block = spyre_hint(slices={"A": 2})
        try:
            with block, spyre_hint(slices={"B": 2}):
                x = x + 1
                raise ValueError
        except ValueError:
            x = x * 2
        with block:
            return x - 1

    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(program, backend=backend, fullgraph=True)(X)
    add, mul, sub = (scopes_of(node) for node in graphs[0].graph.nodes if node.op == "call_function")
    assert len(add) == 2 and mul == () and sub == add[:1]


@pytest.mark.parametrize("trace", [fx.symbolic_trace, lambda program: torch.jit.trace(program, (X,))])
def test_tracers_that_record_nothing_are_refused(trace: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(HintError, match=r"under fx\.symbolic_trace or torch\.jit\.trace, which do not record it"):
            trace(no_capture(lambda: spyre_hint(slices={"A": 2})))


def test_a_block_around_what_is_compiled_is_refused() -> None:
    check_no_surrounding_scope()
    with spyre_hint(slices={"A": 2}), pytest.raises(HintError, match=r"around the call of a compiled function"):
        check_no_surrounding_scope()


def test_two_names_for_one_tensor_are_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        name_tensor_dims(x, ["A", "B"])
        name_tensor_dims(x, ["A", None])
        return x + 1

    for trace in (lambda: make_fx(program)(X), lambda: capture(program, X)):
        with pytest.raises(HintError, match=r"one tensor with the names \['A', 'B'\] and \['A', None\]"):
            trace()


def test_marks_do_not_disturb_other_backends() -> None:
    torch._dynamo.reset()
    for backend in ("eager", "aot_eager"):
        assert torch.equal(torch.compile(Program(), backend=backend, fullgraph=True)(X, Y), Program()(X, Y))


def test_a_program_that_cannot_be_captured_is_still_a_capture_error() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with spyre_hint(slices={"A": 2}):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match="chooses its path by the values"):
        capture(program, X)

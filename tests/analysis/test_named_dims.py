"""Names through ops and views, from readers, and where two statements contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from spyre_fx import capture, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_fx.analysis.named_dims import NamedDims, named_dims
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.capture.dim_spans import shown
from spyre_fx.errors import HintError

SIZES = {"M": 8, "K": 6, "N": 4, "B": 2, "S": 5}


@pytest.fixture(autouse=True)
def declared() -> None:
    for name, size in SIZES.items():
        declare_tensor_dim(name, size)


def tensor(*names: str | None, shape: tuple[int, ...] | None = None) -> torch.Tensor:
    """A tensor with these dims; the sizes of dims without a name come from ``shape``."""
    sizes = [SIZES[name] if name else (shape or ())[dim] for dim, name in enumerate(names)]
    made = torch.randn(sizes)
    if any(names):
        name_tensor_dims(made, names)
    return made


def names_in(program: Callable[..., Any], *args: torch.Tensor) -> tuple[fx.GraphModule, NamedDims]:
    gm = capture(program, *args)
    return gm, named_dims(gm)


def result_names(program: Callable[..., Any], *args: torch.Tensor) -> list[str]:
    """What the dims of each result are called, by the user or by inference."""
    gm, names = names_in(program, *args)
    values = map(Dataflow().value, gm.graph.output_node().all_input_nodes)
    return [shown(names.values.get(value) or names.inferred_values[value]) for value in values]


X, W = "MK", "KN"
CASES: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "pointwise": (lambda x: x + 1, [X], "['M', 'K']"),
    "broadcast": (lambda x, y: x + y, [X, "K"], "['M', 'K']"),
    "named by the other operand": (lambda x, y: x.unsqueeze(1) * y, ["M", "K"], "['M', 'K']"),
    "matmul": (lambda x, w: x @ w, [X, W], "['M', 'N']"),
    "linear": (lambda x, w: F.linear(x, w), [X, "NK"], "['M', 'N']"),
    "batched": (lambda x, w: x @ w, ["BSK", W], "['B', 'S', 'N']"),
    "einsum": (lambda x, w: torch.einsum("mk,kn->nm", x, w), [X, W], "['N', 'M']"),
    "sum": (lambda x: x.sum(0), [X], "['K']"),
    "kept": (lambda x: x.amax(1, keepdim=True), [X], "['M', None]"),
    "softmax": (lambda x: x.softmax(-1), [X], "['M', 'K']"),
    "layer norm": (lambda x: F.layer_norm(x, [6]), [X], "['M', 'K']"),
    "transpose": (lambda x: x.t() * 2, [X], "['K', 'M']"),
    "flatten": (lambda x: x.flatten() * 2, [X], "['M * K']"),
    "split": (lambda x: x.view(2, 4, 6) * 2, [X], "['M', 'M', 'K']"),
    "split and merged": (lambda x: x.view(2, 4, 6).flatten(1).view(8, 6), [X], "['M', 'K']"),
    "merged and split": (lambda x: x.flatten().view(4, 12).view(8, 6), [X], "['M', 'K']"),
    "expanded": (lambda x: x.unsqueeze(0).expand(3, 8, 6), [X], "[None, 'M', 'K']"),
    "dropped out": (lambda x: F.dropout(x, 0.5), [X], "['M', 'K']"),
    "random": (lambda x: torch.rand_like(x) * 2, [X], "['M', 'K']"),
    "sliced": (lambda x: x[:4] + 1, [X], "[None, 'K']"),
    "selected": (lambda x: x[2] + 1, [X], "['K']"),
    "joined": (lambda x, y: torch.cat([x, y]), [X, X], "[None, 'K']"),
    "gathered": (lambda x: x[torch.tensor([0, 2])], [X], "[None, 'K']"),
    "padded": (lambda x: F.pad(x, (1, 1)), [X], "['M', None]"),
}


@pytest.mark.parametrize("case", CASES)
def test_names_follow_ops_and_views(case: str) -> None:
    program, names, expected = CASES[case]
    assert result_names(program, *(tensor(*dims) for dims in names)) == [expected]


def test_results_of_one_op_have_names_each() -> None:
    assert result_names(lambda x: torch.max(x, 1), tensor("M", "K")) == ["['M']", "['M']"]


def test_a_result_can_be_named_anew() -> None:
    declare_tensor_dim("T", 8)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        name_tensor_dims(y, ["T", None])
        return y + 1

    gm, names = names_in(program, tensor("M", "K"))
    mul, add = (node for node in gm.graph.nodes if node.op == "call_function")
    assert names.axes[mul] == names.axes[add], "the op that makes it works under the new name"
    assert result_names(program, tensor("M", "K")) == ["['T', 'K']"]


def test_an_input_without_names_is_called_what_its_readers_call_it() -> None:
    x = torch.randn(8, 6)
    gm, names = names_in(lambda x, w, b: x.relu() @ w + b, x, torch.randn(6, 4), tensor("M", "N"))
    (placeholder, weight, _) = gm.graph.find_nodes(op="placeholder")
    shown_by_node = {value.node: shown(found) for value, found in names.inferred_values.items()}
    assert shown_by_node[placeholder] == "['M', None]"
    assert shown_by_node[weight] == "[None, 'N']"


def test_readers_that_disagree_name_nothing() -> None:
    declare_tensor_dim("T", 8)
    gm, names = names_in(lambda x, y, z: (x + y, x + z), torch.randn(8), tensor("M"), nowhere("T", 8))
    assert gm.graph.find_nodes(op="placeholder")[0] not in {value.node for value in names.inferred_values}


def nowhere(name: str, size: int) -> torch.Tensor:
    made = torch.randn(size)
    name_tensor_dims(made, [name])
    return made


def test_what_is_made_from_nothing_is_named_by_its_block() -> None:
    def program() -> torch.Tensor:
        with spyre_hint(named_dims=["M", "K"]):
            return torch.zeros(8, 6) + 1

    assert result_names(program) == ["['M', 'K']"]


def test_a_graph_without_names() -> None:
    _, names = names_in(lambda x: x + 1, torch.randn(3))
    assert not names.values and not names.inferred_values


def test_sizes_that_are_known_at_run_time_only_are_not_followed() -> None:
    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    x = tensor("M", "K")
    program = torch.export.export(Program(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    names = named_dims(capture(program))
    assert set(names.symbolic) == {"M"} and set(names.first) == {"K"}
    assert [shown(found) for found in names.values.values()] == ["[None, 'K']"] * 2


def square(name: str, other: str | None = None) -> torch.Tensor:
    declare_tensor_dim(name, 8)
    made = torch.randn(8, 8)
    name_tensor_dims(made, [name, other])
    return made


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "one name, two sizes": (
        lambda: names_in(lambda x, y: (x + 1, y + 1), tensor("M"), nowhere_of("M", 9)),
        r"'M' stands for 8 elements at dim 0 of 'x' \[8\] and for 9 at dim 0 of 'y' \[9\]",
    ),
    "one axis, two names": (
        lambda: names_in(lambda x, y: x + y, square("P"), square("Q")),
        r"'add' steps through dim 0 of 'x' \[8, 8\] \('P'\) and dim 0 of 'y' \[8, 8\] \('Q'\) together, 8 elements",
    ),
    "contracted under two names": (
        lambda: names_in(lambda x, y: x @ y, square("P", "M"), square("Q")),
        r"'mm' steps through dim 1 of 'x' \[8, 8\] \('M'\) and dim 0 of 'y' \[8, 8\] \('Q'\) together",
    ),
    "made in another size": (
        lambda: names_in(made_wrong),
        r"dim 0 of \[7, 6\] float32 is named 'M', which stands for 8 elements, but it has 7",
    ),
}


def nowhere_of(name: str, size: int) -> torch.Tensor:
    declare_tensor_dim(name, size)
    return nowhere(name, size)


def made_wrong() -> torch.Tensor:
    with spyre_hint(named_dims=["M", "K"]):
        return torch.zeros(7, 6) + 1


@pytest.mark.parametrize("case", REFUSED)
def test_contradictions_are_refused(case: str) -> None:
    statement, message = REFUSED[case]
    with pytest.raises(HintError, match=message):
        statement()


def test_a_backward_graph_may_contradict_itself() -> None:
    gm = capture(lambda x, y: x + y, square("P"), square("Q"))
    names = named_dims(gm, strict=False)
    (add,) = (node for node in gm.graph.nodes if node.op == "call_function")
    assert names.axes[add].get(0, ()) == ()


def test_names_for_all_and_for_parts_of_an_axis_go_together() -> None:
    declare_tensor_dim("MK", 48)
    assert result_names(lambda x, y: x.flatten() + y, tensor("M", "K"), nowhere("MK", 48)) == ["['M * MK * K']"]

"""Names on tensors: declared, given, refused, and read again."""

from __future__ import annotations

import copy
import gc
import io
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from spyre_fx import capture, declare_tensor_dim, name_tensor_dims
from spyre_fx.capture.dim_names import names_of
from spyre_fx.capture.dim_spans import Span, shown, whole
from spyre_fx.errors import HintError


@pytest.fixture(autouse=True)
def declared() -> None:
    for name, size in {"A": 4, "B": 6, "C": 8}.items():
        declare_tensor_dim(name, size)


def test_names_are_read_from_the_tensor() -> None:
    x = torch.ones(4, 6)
    assert names_of(x) is None
    name_tensor_dims(x, ["A", "B"])
    assert names_of(x) == (whole("A", 4), whole("B", 6))
    name_tensor_dims(x, ("A", None))
    assert names_of(x) == (whole("A", 4), ())


def test_parameters_can_be_named() -> None:
    layer = nn.Linear(6, 4)
    name_tensor_dims(layer.weight, ["A", "B"])
    gm = capture(layer, torch.ones(3, 6))
    weight = next(node for node in gm.graph.nodes if node.op == "get_attr" and node.name == "weight")
    assert weight.meta["named_dims"] == (whole("A", 4), whole("B", 6))


def test_names_follow_eager_views() -> None:
    x = torch.ones(4, 6, 8)
    name_tensor_dims(x, ["A", "B", "C"])
    assert shown(names_of(x.permute(2, 1, 0)) or ()) == "['C', 'B', 'A']"
    assert names_of(x.flatten(0, 1)) == ((Span("A", 4, 4, inner=6), Span("B", 6, 6)), whole("C", 8))
    with torch.no_grad():
        assert shown(names_of(x[1]) or ()) == "['B', 'C']"


def test_a_view_may_have_names_of_its_own() -> None:
    x = torch.ones(4, 4)
    name_tensor_dims(x, ["A", None])
    view = x.t()
    name_tensor_dims(view, ["A", None])
    assert shown(names_of(view) or ()) == "['A', None]"


def test_what_is_computed_is_no_view() -> None:
    x = torch.ones(4, 6)
    name_tensor_dims(x, ["A", "B"])
    assert names_of(x + 1) is None
    assert names_of("x") is None


def test_names_end_with_the_tensor() -> None:
    x = torch.ones(4, 6)
    name_tensor_dims(x, ["A", "B"])
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_names_go_along_with_copies_and_files() -> None:
    x = torch.ones(4, 6)
    name_tensor_dims(x, ["A", "B"])
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    for other in (copy.deepcopy(x), torch.load(file)):
        assert names_of(other) == names_of(x)


def test_a_later_declaration_holds_from_then_on() -> None:
    x = torch.ones(4)
    name_tensor_dims(x, ["A"])
    declare_tensor_dim("A", 5)
    name_tensor_dims(torch.ones(5), ["A"])
    assert names_of(x) == (whole("A", 4),)


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run ``work(0)``, ``work(1)``, ... at the same time; what one raises is raised here."""
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work, number) for number in range(count)]:
            future.result()


def test_a_new_thread_knows_what_was_declared() -> None:
    in_threads(lambda number: name_tensor_dims(torch.ones(4), ["A"]), 2)


def test_what_a_thread_declares_holds_whatever_others_declare() -> None:
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        declare_tensor_dim("A", 10 + number)
        ready.wait(timeout=30)
        name_tensor_dims(torch.ones(10 + number), ["A"])

    in_threads(work, 4)
    name_tensor_dims(torch.ones(4), ["A"])


REFUSED: dict[str, tuple[Any, str]] = {
    "no string": (lambda: declare_tensor_dim(3, 4), r"3 \(int\) as the name of a dim\. Expected a non-empty string"),
    "empty name": (lambda: declare_tensor_dim("", 4), r"'' \(str\) as the name of a dim"),
    "no size": (lambda: declare_tensor_dim("A", 0), r"size 0 \(int\) for dim 'A'\. Expected a positive int"),
    "a bool": (lambda: declare_tensor_dim("A", True), r"size True \(bool\)"),
    "a float": (lambda: declare_tensor_dim("A", 4.0), r"size 4\.0 \(float\)"),
    "undeclared": (
        lambda: name_tensor_dims(torch.ones(4, 6), ["A", "Bee"]),
        r"dim 'Bee' is not declared \(declared: .*'A', 'B'.*call declare_tensor_dim\('Bee', size\) first",
    ),
    "too few": (
        lambda: name_tensor_dims(torch.ones(4, 6), ["A"]),
        r"1 names \['A'\] for \[4, 6\] float32\. Expected 2 names, one per dim",
    ),
    "too many": (lambda: name_tensor_dims(torch.ones(4), ["A", "B"]), r"2 names \['A', 'B'\] for \[4\] float32"),
    "wrong order": (
        lambda: name_tensor_dims(torch.ones(4, 6), ["B", "A"]),
        r"dim 0 of \[4, 6\] float32 is named 'B', which stands for 6 elements, but it has 4",
    ),
    "twice": (lambda: name_tensor_dims(torch.ones(4, 4), ["A", "A"]), r"the name 'A' twice in \['A', 'A'\]"),
    "one string": (lambda: name_tensor_dims(torch.ones(4, 6), "AB"), r"names 'AB'\. Expected a list"),
    "an array": (lambda: name_tensor_dims([1, 2], ["A"]), r"a list to name the dims of\. Expected a tensor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str) -> None:
    statement, message = REFUSED[case]
    with pytest.raises(HintError, match=message):
        statement()


def test_a_tensor_that_changed_its_shape_must_be_named_again() -> None:
    x = torch.ones(4, 6)
    name_tensor_dims(x, ["A", "B"])
    x.unsqueeze_(0)
    with pytest.raises(HintError, match=r"\[1, 4, 6\] float32, which had shape \[4, 6\] when its dims were named"):
        names_of(x)

"""Every message has all three parts, every exception survives pickling, several problems become one error."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import string
from types import ModuleType

import pytest
import torch
from torch import fx

import spyre_fx.errors
from spyre_fx.errors import InternalError, SpecError, SpyreFxError, Template, TilingError, collect

MODULES = [
    importlib.import_module(f"spyre_fx.errors.{info.name}") for info in pkgutil.iter_modules(spyre_fx.errors.__path__)
]


def templates_of(module: ModuleType) -> list[tuple[str, Template]]:
    named = [(name, value) for name, value in vars(module).items() if isinstance(value, Template)]
    return [(f"{module.__name__.rpartition('.')[2]}.{name}", template) for name, template in named]


TEMPLATES = dict(entry for module in MODULES for entry in templates_of(module))


class Anything:
    """A value for any field: it has every attribute and item, and prints under every format."""

    def __format__(self, spec: str) -> str:
        return "something"

    __repr__ = __str__ = lambda self: "something"

    def __getattr__(self, name: str) -> Anything:
        return self

    def __getitem__(self, key: object) -> Anything:
        return self


def classes(root: type[SpyreFxError] = SpyreFxError) -> list[type[SpyreFxError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in classes(child))]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_message_says_found_expected_and_what_to_do(name: str) -> None:
    template = TEMPLATES[name]
    parts = (template.found, template.expected, template.do)
    assert all(part.strip() for part in parts)
    assert not any(part.rstrip().endswith(".") for part in parts), "the template adds the full stops"
    fields = {field for part in parts for _, field, _, _ in string.Formatter().parse(part) if field is not None}
    roots = {field.partition(".")[0].partition("[")[0] for field in fields}
    assert "" not in roots, "fields are named"
    error = template(**dict.fromkeys(roots, Anything()))
    assert isinstance(error, template.error)
    assert "Expected " in str(error)
    assert "To fix: " in str(error)


def test_no_two_messages_share_a_text() -> None:
    texts: dict[tuple[str, ...], str] = {}
    for name, template in TEMPLATES.items():
        text = (template.found, template.expected, template.do)
        assert text not in texts, f"{name} says the same as {texts[text]}"
        texts[text] = name


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_error_pickles_and_documents_itself(kind: type[SpyreFxError]) -> None:
    error = kind("one", ["first", "second"])
    error.add_note("a note")
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is kind
    assert (str(copied), copied.problems, copied.__notes__) == ("one", ("first", "second"), ["a note"])
    assert kind.__doc__
    assert kind.__name__ in spyre_fx.errors.__all__


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(TilingError, RuntimeError)
    assert issubclass(SpecError, ValueError)
    assert issubclass(spyre_fx.errors.LoweringError, NotImplementedError)
    assert not issubclass(InternalError, (RuntimeError, ValueError))


def test_problems_are_collected_into_one_error() -> None:
    one, two = TilingError("no node 'a'"), TilingError("two problems", ["count 0", "dim 7"])
    assert collect([one]) is one
    error = collect([one, two])
    assert type(error) is TilingError
    assert error.problems == ("no node 'a'", "count 0", "dim 7")
    assert str(error) == "3 problems:\n1. no node 'a'\n2. count 0\n3. dim 7"


def test_the_failing_graph_is_a_note() -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    relu, add = [node for node in gm.graph.nodes if node.op == "call_function"]
    error = Template(TilingError, "{what} is bad", "better", "improve it")(node=relu, what="this")
    (note,) = error.__notes__
    lines = note.splitlines()
    assert lines[0] == "  in the graph"
    marked = next(position for position, line in enumerate(lines) if set(line.strip()) == {"^"})
    assert lines[marked - 1].strip().startswith("%relu")
    assert any(add.name in line for line in lines)
    assert "^" not in str(error)

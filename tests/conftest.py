"""What every test has: golden files, the --slow switch and the settings of hypothesis."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
import torch

TESTS = Path(__file__).parent

hypothesis.settings.register_profile("dev", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("dev"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Data that a test module makes when it is imported is the same in every run."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Data that a test draws is the same in every run, whatever ran before."""
    torch.manual_seed(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="a long run; --slow turns it on"))


@dataclass(frozen=True)
class Golden:
    """The file that holds the text which one test expects."""

    path: Path
    update: bool

    def check(self, text: str) -> None:
        """Compare ``text`` with the file; the text ends with one newline, whatever the caller gave."""
        __tracebackhide__ = True
        text = text.rstrip("\n") + "\n"
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text, encoding="utf-8")
            return
        if not self.path.exists():
            pytest.fail(f"no golden file {self.path}: look at the text, then write it with --update-golden\n\n{text}")
        assert text == self.path.read_text(encoding="utf-8"), f"{self.path.name} differs; --update-golden rewrites it"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden.check(text)`` compares with ``tests/golden/<folder>/<module>/<test>.txt``."""
    module = request.path.relative_to(TESTS).with_suffix("")
    name = re.sub(r"[^\w.=-]+", "_", request.node.name).strip("_")
    return Golden(TESTS / "golden" / module / f"{name}.txt", request.config.getoption("--update-golden"))

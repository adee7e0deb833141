"""Reasons say what was compared, and in which unit."""

from __future__ import annotations

import pytest

from spyre_fx.transforms.auto import wording
from spyre_fx.transforms.auto.cost import Cost


def cost(total: int, warm: int = 0) -> Cost:
    return Cost(moved=0, working_set=0, held=0, total=total, warm=warm)


def test_of_loops():
    text = wording.tiled("4 tiles of 16 over dim 1 of bmm", 59520, 3262592, 1077888)
    assert text == "4 tiles of 16 over dim 1 of bmm; a trip holds 58.12 KiB; 1.028 MiB moved instead of 3.111 MiB"


def test_of_loops_that_move_more_and_are_faster():
    said = "; with new memory and the start of each op counted, the time of moving 2 KiB instead of 3 KiB"
    assert wording.faster(cost(3072), cost(2048)) == said


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (2048, "not tiled, loops would be slower: the time of moving 2 KiB instead of 1 KiB"),
        (1025, "not tiled, loops would hardly make a difference: the time of moving 1.001 KiB instead of 1 KiB"),
        (1020, "not tiled, loops would hardly make a difference: the time of moving 1020 B instead of 1 KiB"),
    ],
)
def test_of_loops_that_are_not_faster(after, said):
    assert wording.slower(cost(1024), cost(after), is_harm=False) == said


def test_of_loops_that_save_new_memory_alone():
    said = (
        "not tiled, loops would be slower where freed memory is used again: the time of moving 2 KiB instead of 1 KiB"
    )
    assert wording.slower(cost(9000, warm=1024), cost(3000, warm=2048), is_harm=True) == said


def test_of_loops_that_were_made_in_vain():
    said = "not tiled, loops would save nothing: 2 KiB moved instead of 1 KiB by the whole graph"
    assert wording.moves_no_less(1024, 2048, " by the whole graph") == said

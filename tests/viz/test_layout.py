"""Boxes do not overlap, links run forward and through no box, long ones become tags."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyre_fx.viz.diagram import Box, Diagram, Link
from spyre_fx.viz.graphs import graph_diagram
from spyre_fx.viz.layers import MOST_IN_A_ROW
from spyre_fx.viz.layers import layers as placed_rows
from spyre_fx.viz.layout import MAX_SPAN, Layout, lay_out
from spyre_fx.viz.rows import GAP_X, Item, place
from tests.viz.pictures import canonical, layers


def random_diagram(seed: int, count: int) -> Diagram:
    chooser = random.Random(seed)
    boxes = [Box("b" * chooser.randint(1, 30), ("line",) * chooser.randint(0, 4), "other") for _ in range(count)]
    links = [
        Link(source, target)
        for target in range(1, count)
        for source in {chooser.randrange(max(0, target - 6), target) for _ in range(chooser.randint(0, 3))}
    ]
    diagram = Diagram(boxes, links)
    if count > 3:
        boxes[count // 2].inside = random_diagram(seed + 1, count // 3)
    return diagram


def check(layout: Layout, depth: int = 0) -> None:
    boxes = layout.boxes
    for one in boxes:
        assert one.x >= -0.01 and one.x + one.width <= layout.width + 0.01
        assert one.y + one.height <= layout.height + 0.01
    for position, one in enumerate(boxes):
        for other in boxes[position + 1 :]:
            apart = (
                one.x + one.width <= other.x + 0.01
                or other.x + other.width <= one.x + 0.01
                or one.y + one.height <= other.y + 0.01
                or other.y + other.height <= one.y + 0.01
            )
            assert apart, (one.box.title, other.box.title)
    for route in layout.routes:
        points = layout.points(route)
        assert len(points) % 2 == 0 or len(points) == 2 * len(route.xs) - 1
        for (x, y), (next_x, next_y) in pairwise(points):
            assert next_y >= y - 0.01
            for box in boxes:
                if box in (boxes[route.link.source], boxes[route.link.target]):
                    continue
                beside = max(x, next_x) <= box.x or min(x, next_x) >= box.x + box.width
                assert beside or next_y <= box.y + 0.01 or y >= box.y + box.height - 0.01
    for one in boxes:
        if one.inside is not None:
            check(one.inside, depth + 1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_nothing_overlaps(seed, count):
    check(lay_out(random_diagram(seed, count)))


@pytest.mark.parametrize("gm", [*canonical(), layers(1), layers(6)], ids=["before", "after", "layer", "layers"])
def test_graphs_do_not_overlap(gm):
    check(lay_out(graph_diagram(gm)))


def test_a_chain_runs_straight_down():
    layout = lay_out(Diagram([Box(f"{i}" * (1 + i % 5)) for i in range(30)], [Link(i, i + 1) for i in range(29)]))
    assert all(max(route.xs) - min(route.xs) < 1 for route in layout.routes)


def test_parameters_stand_beside_what_reads_them():
    diagram = graph_diagram(layers(4), folding=_unfolded())
    layout = lay_out(diagram)
    rows = [one.item.row for one in layout.boxes]
    for link in diagram.links:
        if diagram.boxes[link.source].kind == "parameter":
            readers = [rows[other.target] for other in diagram.links if other.source == link.source]
            assert rows[link.source] == min(readers) - 1


def _unfolded():
    from spyre_fx.viz.graphs import Folding

    return Folding(fold=False)


def test_long_links_become_tags():
    count = MAX_SPAN + 3
    links = [*(Link(i, i + 1) for i in range(count)), *(Link(0, count, f"{n}") for n in range(3))]
    layout = lay_out(Diagram([Box(f"box {i}", kind="input" if i == 0 else "other") for i in range(count + 1)], links))
    assert layout.boxes[count].tags == ["← box 0"] and len(layout.routes) == count
    assert layout.boxes[0].readers == [f"→ box {count}"]


def test_a_value_with_many_far_readers_counts_them():
    count = MAX_SPAN + 8
    links = [*(Link(i, i + 1) for i in range(count)), *(Link(0, i) for i in range(2, count + 1))]
    layout = lay_out(Diagram([Box(f"box {i}", kind="input" if i == 0 else "other") for i in range(count + 1)], links))
    far = count - MAX_SPAN
    assert layout.boxes[0].readers == [f"→ box {MAX_SPAN + 1}, box {MAX_SPAN + 2}, {far - 2} more"]


def test_what_one_box_alone_needs_stands_above_it():
    names = ["x", "a", "b", "c", "v", "copy", "mm"]
    boxes = [Box(name, kind="input" if name in "xv" else "other") for name in names]
    links = [Link(0, 1), Link(1, 2), Link(2, 3), Link(3, 6), Link(4, 5), Link(5, 6)]
    rows, _ = placed_rows(Diagram(boxes, links))
    assert rows == [0, 1, 2, 3, 2, 3, 4]


@pytest.mark.parametrize("count", [MOST_IN_A_ROW, MOST_IN_A_ROW + 1, 3 * MOST_IN_A_ROW + 2])
def test_wide_rows_become_several(count):
    boxes = [*(Box(f"w{i}", kind="parameter") for i in range(count)), Box("loop", kind="loop")]
    diagram = Diagram(boxes, [Link(i, count) for i in range(count)])
    rows, _ = placed_rows(diagram)
    assert max(Counter(rows).values()) == MOST_IN_A_ROW and rows[count] == -(-count // MOST_IN_A_ROW)
    check(lay_out(diagram))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-500, 500), st.floats(0.01, 4), st.floats(1, 90)), min_size=1, max_size=12))
def test_placing_a_row_keeps_order_and_is_the_nearest(cases):
    row = [Item(0, width, is_bend=False) for _, _, width in cases]
    wishes = [(wish, weight) for wish, weight, _ in cases]
    place(row, wishes)
    for one, other in pairwise(row):
        assert other.x >= one.x + one.width + GAP_X - 1e-6
    cost = sum(weight * (item.x - wish) ** 2 for item, (wish, weight) in zip(row, wishes, strict=True))
    for shift in (-1.0, 1.0):  # no shift of a tail or of a head of the row is nearer
        for split in range(len(row)):
            moved = [
                item.x + shift * (position >= split if shift > 0 else position <= split)
                for position, item in enumerate(row)
            ]
            assert cost <= sum(w * (x - wish) ** 2 for x, (wish, w) in zip(moved, wishes, strict=True)) + 1e-6

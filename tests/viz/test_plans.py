"""Plans: one box per item, links along the values, and parameters beside what reads them."""

from __future__ import annotations

import spyre_fx
from spyre_fx.viz.plans import plan_diagram
from tests.viz.pictures import layers


def test_a_plan_has_a_box_for_each_item_and_only_forward_links():
    plan = spyre_fx.plan(layers(2))
    diagram = plan_diagram(plan)
    items = [box for box in diagram.boxes if box.nodes]
    assert [box.title for box in items] == [f"{item.id}: {item.kind.value}" for item in plan]
    assert all(link.source < link.target for link in diagram.links)
    reached = {link.target for link in diagram.links}
    assert {position for position, box in enumerate(diagram.boxes) if box.nodes} <= reached
    assert {box.kind for box in diagram.boxes if not box.nodes} == {"input", "parameter"}
    assert "element_ops_per_kib" in items[0].detail

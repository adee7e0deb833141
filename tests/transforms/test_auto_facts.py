"""What the search knows of a graph."""

from __future__ import annotations

import torch

import spyre_fx
from spyre_fx.transforms.auto.axes import InnerExtents
from spyre_fx.transforms.auto.facts import Facts, flops, value_bytes, values_of
from tests.transforms.auto_cases import facts, mlp, node


def test_ops_that_may_stand_in_a_loop():
    known = facts(lambda x: (x.exp() + torch.rand(8)).sort()[0].tanh() + torch.arange(8), (8,))
    names = [op.name for op in known.ops]
    assert {"exp", "add", "tanh", "add_1"} <= set(names)
    assert not {"rand", "arange"} & set(names)
    assert names == sorted(names, key=lambda name: known.position[node(known, name)])
    assert known.ops_set == set(known.ops)


def test_ops_that_draw_random_numbers_are_refused_with_words():
    known = facts(lambda x: torch.rand_like(x).exp(), (8,))
    refused = {op.name: why for op, why in known.refused.items()}
    assert len(refused) == 1
    assert all("draws random numbers" in why for why in refused.values())


def test_products_by_position():
    known = facts(mlp, (8, 4), (4, 16), (16, 4))
    assert known.products == [known.position[node(known, "mm")], known.position[node(known, "mm_1")]]


def test_edges_by_writer_and_by_reader():
    known = facts(lambda x: (y := x.exp()).tanh() + y, (8, 4))
    exp, tanh, add = (node(known, name) for name in ("exp", "tanh", "add"))
    assert [edge.reader for edge in known.written_by[exp]] == [tanh, add]
    assert {edge.value.node for edge in known.read_by[add]} == {exp, tanh}


def test_the_graph_is_a_copy():
    gm = spyre_fx.capture(lambda x: x.exp(), torch.ones(4))
    known = Facts(gm)
    assert not {*known.nodes} & {*gm.graph.nodes}


def test_sizes():
    known = facts(lambda x: x.double().topk(2)[0].exp(), (8, 4))
    topk = node(known, "topk")
    assert [value_bytes(value) for value in values_of(topk)] == [8 * 2 * 8, 8 * 2 * 8]


def test_atoms_inside_each_other():
    """[8, 24] is seen as [8, 4, 6] too: the second axis of exp has two atoms, of 4 and of 6."""
    known = facts(lambda x: x.exp().view(8, 4, 6).tanh(), (8, 24))
    inner, exp = InnerExtents(known.refined), node(known, "exp")
    assert [list(inner.of(exp, axis).values()) for axis in (0, 1)] == [[1], [6, 1]]
    heads, size = inner.of(exp, 1)
    assert [known.refined.atoms[atom].extent for atom in (heads, size)] == [4, 6]
    assert [inner.around(exp, 1, step) for step in (24, 6, 5, 1)] == [heads, heads, size, size]


def test_flops():
    known = facts(lambda x, w, b: torch.addmm(b, x.relu(), w), (4, 8), (8, 16), (16,))
    assert [flops(op) for op in known.ops] == [0, 2 * 4 * 8 * 16]


def test_ops_whose_results_are_all_scalars_have_atoms_too():
    known = facts(lambda x: x.sum() + 1, (8, 4))
    total, add = (node(known, name) for name in ("sum_1", "add"))
    assert [atom.extent for atom in known.refined.atoms] == [8, 4]
    assert known.refined.operands[total] == (((0,), (1,)),)
    assert known.refined.results[add] == ((),)


def test_groups_are_looked_for_where_all_results_are_scalars():
    gm = spyre_fx.capture(lambda x: x.sum() > 0, torch.ones(300, 640))
    for target in (
        spyre_fx.Target(),
        spyre_fx.Target.cpu(),
        spyre_fx.Target(cores=1, lx_bytes=1 << 14, lx_fixed_reserve=0),
    ):
        assert spyre_fx.auto_groups(gm, target).reasons

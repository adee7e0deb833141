"""What trips hold and move: numbers from index maps and tile sizes, against those of the tiled graph."""

from __future__ import annotations

import pytest
import torch

import spyre_fx
from spyre_fx.analysis.regions import Value
from spyre_fx.analysis.traffic import traffic
from spyre_fx.target import KIB
from spyre_fx.transforms.auto.candidates import Candidates
from spyre_fx.transforms.auto.cost import CostModel
from spyre_fx.transforms.auto.facts import Facts
from spyre_fx.transforms.auto.regions import grow
from spyre_fx.transforms.auto.tree import tree_of, with_loop
from spyre_fx.transforms.auto.trips import Trips, owner, trips_of
from tests.transforms.auto_cases import attention, facts, mlp, node, scratchpad, trees_around

MLP = (64, 16), (16, 32), (32, 16)
HEADS = ((2, 64, 16),) * 3


def trips(known: Facts, *cuts: tuple[str, int]) -> Trips:
    """Loops inside each other, each over a dim of a value, in all ops that have it."""
    tree, members = None, set(known.ops)
    for name, dim in cuts:
        op = node(known, name)
        (atom,) = known.refined.results[op][0][dim]
        region = grow(known, op, atom, members.__contains__)
        tree = tree_of(known, region) if tree is None else with_loop(known, tree, len(tree.loops) - 1, region)
        assert tree is not None
        members = set(region.ops)
    assert tree is not None
    return trips_of(tree, known.flow)


def reads(found: Trips, tiles: tuple[int, ...], room: int, whole: bool = False) -> dict[str, int]:
    return {piece.value.node.name: times for piece, times in found.reads(tiles, room, whole)}


def test_rows_stream_and_weights_are_kept_as_far_as_there_is_room():
    found = trips(facts(mlp, *MLP), ("mm", 0))
    weight = 16 * 32 * 4
    assert reads(found, (16,), 2 * weight) == {"x": 1, "up": 1, "down": 1}
    assert sorted(reads(found, (16,), weight).values()) == [1, 1, 4]
    assert reads(found, (16,), weight - 1) == {"x": 1, "up": 4, "down": 4}
    assert reads(found, (24,), 0) == {"x": 1, "up": 3, "down": 3}


def test_a_nest_reads_tiles_of_weights_for_each_tile_of_rows():
    found = trips(facts(mlp, *MLP), ("mm", 0), ("mm", 1))
    assert found.counts((16, 8)) == [4, 4]
    assert reads(found, (16, 8), 0) == {"x": 1, "up": 4, "down": 4}
    assert found.written == 64 * 16 * 4


def test_a_tile_of_an_outer_loop_is_read_again_by_a_loop_between():
    """Keys of one head, for each tile of queries: kept if there is room for the head."""
    found = trips(facts(attention, *HEADS), ("bmm", 0), ("bmm", 1), ("bmm", 2))
    head = 64 * 16 * 4
    assert reads(found, (1, 16, 8), 2 * head) == {"q": 1, "k": 1, "v": 1}
    assert reads(found, (1, 16, 8), 0) == {"q": 1, "k": 4, "v": 4}


def test_what_an_inner_loop_reads_tile_by_tile_is_not_kept_where_addresses_are_fixed():
    found = trips(facts(attention, *HEADS), ("bmm", 0), ("bmm", 1), ("bmm", 2))
    assert reads(found, (1, 16, 8), 1 << 20, whole=True) == {"q": 1, "k": 4, "v": 4}
    found = trips(facts(attention, *HEADS), ("bmm", 0), ("bmm", 1))
    assert reads(found, (1, 16), 1 << 20, whole=True) == {"q": 1, "k": 1, "v": 1}


def test_what_all_trips_of_an_inner_loop_read_stays_all_the_time():
    """A row tile of x counts beside whatever tile of hidden values; running sums as well, to which products are added
    where they stand.
    """
    found = trips(facts(mlp, *MLP), ("mm", 0), ("mm", 1))
    row, hidden, weights = 16 * 16 * 4, 16 * 8 * 4, 16 * 8 * 4
    assert found.working_set((16, 8)) == row + row + hidden + 2 * weights


def test_calls():
    found = trips(facts(mlp, *MLP), ("mm", 0), ("mm", 1))
    assert found.calls((16, 8)) == 3 * 4 * 4
    assert trips(facts(mlp, *MLP), ("mm", 0)).calls((24,)) == 3 * 3


def test_sums_of_half_precision_are_kept_in_float32():
    graph = spyre_fx.capture(mlp, *(torch.ones(shape, dtype=torch.float16) for shape in MLP))
    half, single = trips(Facts(graph), ("mm", 0), ("mm", 1)), trips(facts(mlp, *MLP), ("mm", 0), ("mm", 1))
    assert half.written == single.written // 2
    sums = [piece for piece in half.pieces if piece.summed_by]
    assert [piece.byte_size for piece in sums] == [64 * 16 * 4]


def test_steps_in_rows():
    assert trips(facts(mlp, *MLP), ("mm", 0)).finest == (0,)
    assert trips(facts(mlp, *MLP), ("mm", 0), ("mm", 1)).finest == (0, 4)
    assert trips(facts(lambda x: x.view(8, 4, 6).exp().view(8, 24).tanh(), (8, 24)), ("exp", 1)).finest == (6 * 4,)


@pytest.mark.parametrize("function, shapes, cuts, tiles", [
    (mlp, MLP, [("mm", 0)], (16,)),
    (mlp, MLP, [("mm", 0), ("mm", 1)], (16, 8)),
    (mlp, MLP, [("mm", 0), ("mm", 1)], (24, 8)),
    (attention, HEADS, [("bmm", 0)], (1,)),
    (attention, HEADS, [("bmm", 0), ("bmm", 1)], (1, 16)),
    (attention, HEADS, [("bmm", 0), ("bmm", 1), ("bmm", 2)], (1, 16, 8)),
])  # fmt: skip
@pytest.mark.parametrize("kib", [40, 64])
def test_the_traffic_is_that_of_the_tiled_graph(function, shapes, cuts, tiles, kib):
    gm = spyre_fx.capture(function, *(torch.ones(shape) for shape in shapes))
    found = trips(Facts(gm), *cuts)
    cost = CostModel(scratchpad(kib, whole_sticks=False)).tiled(found, tiles)
    assert cost.working_set <= kib * KIB
    tiled = spyre_fx.tile(gm, [found.tree.group(tiles)])
    assert traffic(tiled, kib * KIB).total == cost.moved


def test_the_owner_of_memory():
    known = facts(lambda x: (x.unsqueeze(0), x.exp().unsqueeze(0).unsqueeze(0)), (4, 4))
    assert owner(node(known, "unsqueeze")) is None
    assert owner(node(known, "unsqueeze_2")) is node(known, "exp")


def test_equal_layers_have_equal_trips():
    known = facts(lambda x, w: (x @ w).relu() @ w, (64, 16), (16, 16))
    candidates = Candidates(known, CostModel(scratchpad(8)))
    trees = list(trees_around(candidates, Value(node(known, "mm")), lambda op: True, set()))
    assert trees
    sizes = candidates.sizes
    assert all(tree.trips.shape == trips_of(tree.trips.tree, known.flow, sizes=sizes).shape for tree in trees)

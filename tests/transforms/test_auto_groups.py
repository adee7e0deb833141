"""What an automatic choice consists of."""

from __future__ import annotations

import copy
import pickle

from spyre_fx.transforms.auto.groups import AutoGroups, Reason
from spyre_fx.transforms.groups import LoopGroup


def test_a_reason_names_its_ops():
    assert str(Reason(("exp",), "not tiled, why")) == "exp: not tiled, why"
    assert str(Reason(("exp", "sin", "tanh"), "so")) == "exp to tanh (3 ops): so"


def test_groups_are_a_tuple_with_reasons():
    group, reason = LoopGroup(2, {"exp": 0}, ("exp",)), Reason(("exp",), "so", tiled=True)
    groups = AutoGroups([group], [reason])
    assert groups == (group,)
    assert groups.reasons == (reason,)
    assert AutoGroups() == () and AutoGroups().reasons == ()
    for other in (copy.deepcopy(groups), pickle.loads(pickle.dumps(groups))):
        assert (other, other.reasons) == (groups, groups.reasons)
        assert isinstance(other, AutoGroups)

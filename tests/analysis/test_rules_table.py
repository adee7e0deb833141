"""The table: one rule per op, size arguments rewritten, and torch's own list of ops."""

from __future__ import annotations

import pytest
import torch

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.analysis.iteration_space import body_call
from spyre_fx.analysis.rules.opset import aten_overloads
from spyre_fx.analysis.rules.table import known_ops, resize, rule, rule_for

aten = torch.ops.aten


def test_a_second_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"aten\.mm\.default has a rule already"):
        rule(aten.mm.default)(lambda call: None)
    with pytest.raises(ValueError, match=r"aten\.view\.default has a resize rule already"):
        resize(aten.view.default)(lambda call, shapes: ((), {}))


def test_rules_are_for_pure_ops() -> None:
    assert [str(op) for op in known_ops() if op._schema.is_mutable] == []


def test_all_pointwise_ops_have_rules() -> None:
    tagged = [op for op in aten_overloads(("aten",)) if torch.Tag.pointwise in op.tags and not op._schema.is_mutable]
    missing = [str(op) for op in tagged if rule_for(op) is None and torch.Tag.nondeterministic_seeded not in op.tags]
    assert len(tagged) > 200
    assert missing == []


def test_core_ops_without_a_rule() -> None:
    """Random, data-dependent, or about sizes: all others are covered."""
    core = [op for op in aten_overloads(("aten",)) if torch.Tag.core in op.tags and not op._schema.is_mutable]
    assert {op._schema.name.removeprefix("aten::") for op in core if rule_for(op) is None} == {
        "_embedding_bag",
        "_local_scalar_dense",
        "_pdist_forward",
        "as_strided",
        "native_dropout",
        "nonzero",
        "rand",
        "randn",
        "randperm",
        "sym_is_contiguous",
        "sym_numel",
        "sym_size",
        "sym_storage_offset",
        "sym_stride",
    }


@pytest.mark.parametrize(
    ("call", "shapes", "target", "args"),
    [
        (OpCall(aten.view.default, ("x", [6, 4]), {}, None), [[3, 4]], aten.reshape.default, ("x", [3, 4])),
        (OpCall(aten.squeeze.default, ("x",), {}, None), [[1, 4]], aten.reshape.default, ("x", [1, 4])),
        (OpCall(aten.full.default, ([6, 4], 2.0), {}, None), [[3, 4]], aten.full.default, ([3, 4], 2.0)),
        (OpCall(aten.expand.default, ("x", [-1, 4]), {}, None), [[3, 4]], aten.expand.default, ("x", [3, 4])),
        (OpCall(aten.empty_strided.default, ([6], [1]), {}, None), [[3]], aten.empty.memory_format, ([3],)),
        (OpCall(aten.mm.default, ("x", "y"), {}, None), [[3, 4]], aten.mm.default, ("x", "y")),
    ],
    ids=lambda value: str(getattr(value, "target", "")),
)
def test_body_call(call: OpCall, shapes: list[list[int]], target: object, args: tuple[object, ...]) -> None:
    assert body_call(call, shapes) == (target, args, {})

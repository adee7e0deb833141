"""The report says of each op that the host runs what the device lacks it for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from spyre_fx.codegen.decompose import lowered_ops
from spyre_fx.codegen.decompose.without_rule import explained_ops
from spyre_fx.codegen.lowered import HostStep


def bundle_of(function, *args, levels=None):
    gm = spyre_fx.capture(function, *args)
    if levels is not None:
        ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
        gm = spyre_fx.tile(gm, [(ops, levels)])
        assert any(isinstance(module, spyre_fx.CountedLoop) for module in gm.modules())
    bundle = spyre_fx.lower(gm)
    assert all(step.reasons for step in bundle.lowered.steps if isinstance(step, HostStep))
    for one, other in zip(bundle.run(*args), function(*args), strict=True):
        assert torch.equal(one, other)
    return bundle


def reasons(bundle):
    return [reason for step in bundle.lowered.steps if isinstance(step, HostStep) for reason in step.reasons]


@pytest.mark.parametrize(
    ("dtype", "treatment"),
    [
        (torch.bfloat16, "moves only"),
        (torch.float64, "has no format for"),
        (torch.int32, "moves and casts only"),
        (torch.int64, "moves only"),
    ],
)
def test_a_loop_in_a_type_that_the_device_lacks(dtype, treatment):
    x = torch.arange(512).reshape(8, 64).to(dtype)
    bundle = bundle_of(lambda x: (x * x + x).abs(), x, levels=2)
    ops = {"mul": "mul.Tensor", "add": "add.Tensor", "abs_1": "abs.default"}
    assert reasons(bundle) == [
        (f"loop_0.{name}", f"the device lacks aten.{op} for {dtype}, which it {treatment}") for name, op in ops.items()
    ]
    report = str(bundle.report())
    assert "on the host" in report
    assert f"loop_0.add    the device lacks aten.add.Tensor for {dtype}" in report


def test_only_the_ops_of_a_loop_that_are_lacking_are_named():
    bundle = bundle_of(lambda x: (x + 1).erfinv() * 2, torch.rand(8, 64) - 1.5, levels=[(2, [0]), (2, [1])])
    assert reasons(bundle) == [("loop_0.loop_0.erfinv", "the device lacks aten.erfinv.default")]


def test_known_numbers_are_no_reason():
    """The device compares integers with them."""

    def function(x, classes):
        hits = torch.arange(64, dtype=torch.int32) == classes
        return (torch.where(hits, x, 0.0).erfinv(),)

    bundle = bundle_of(
        function, torch.rand(8, 64) - 0.5, torch.arange(8, dtype=torch.int32).unsqueeze(1), levels=[(2, {"x": 1})]
    )
    assert reasons(bundle) == [("loop_0.erfinv", "the device lacks aten.erfinv.default")]


def test_ops_between_programs(tmp_path):
    bundle = bundle_of(lambda x: torch.sort(x * 2)[0] + 1, torch.randn(8, 64).half())
    ((name, why),) = reasons(bundle)
    assert name == "sort" and why.startswith("the device lacks aten.sort.default: it gives positions in torch.int64")
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    assert reasons(loaded) == reasons(bundle)
    assert str(loaded.report()) == str(bundle.report())


def test_a_graph_that_the_device_runs_has_no_such_table():
    bundle = bundle_of(lambda x: x * 2, torch.randn(8, 64).half(), levels=2)
    assert "on the host" not in bundle.report()


def test_what_is_missing_for_index_tensors_and_positions():
    table, places, x = torch.randn(9, 64).half(), torch.tensor([3, 1, 8]), torch.randn(3, 64).half()
    bundle = bundle_of(lambda w, i, x: (F.embedding(i, w), x.argmax(1)), table, places, x)
    (embedding, first), (argmax, second) = reasons(bundle)
    assert (embedding, argmax) == ("embedding", "argmax")
    assert first.startswith("the device lacks aten.embedding.default: an indirect access")
    assert second.endswith("casts to no integer but torch.int32")


def test_a_cast_to_a_type_without_a_format_names_the_type():
    bundle = bundle_of(lambda x: (x.double(),), torch.randn(3, 64))
    assert reasons(bundle) == [
        ("_to_copy", "the device lacks aten._to_copy.default for torch.float64, which it has no format for")
    ]


def test_the_listing_gives_the_reasons_of_each_step():
    x = torch.randn(8, 64).double()
    short = str(bundle_of(lambda x: (x * x + x).abs(), x, levels=2)).splitlines()
    assert short[1].startswith("on the host: loop_0 -> ")
    assert [line.split(":")[0] for line in short[2:5]] == ["  loop_0.mul", "  loop_0.add", "  loop_0.abs_1"]
    long = str(bundle_of(lambda x: (x * x + x).abs().exp().sqrt(), x, levels=2)).splitlines()
    assert long[2].startswith("  loop_0.mul: the device lacks aten.mul.Tensor for torch.float64")
    assert long[5] == "  and 2 more, which report() lists"


def test_only_ops_without_a_rule_are_explained():
    packets = {op.overloadpacket for op in lowered_ops()}
    assert not packets & set(explained_ops())

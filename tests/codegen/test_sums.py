"""Products over a tiled axis: added to the sum where it stands, filled before the loop and drained behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import spyre_fx
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lower import bundle_of
from spyre_fx.codegen.specs import LoopSpec, OpSpec
from spyre_fx.codegen.verify import verify_specs
from spyre_fx.errors import SpecError
from spyre_fx.target import Target
from tests.codegen.device_runs import close, device_ops, half, lowered, specs_of

ONE = Target(cores=1)
TARGETS = [Target(), Target(bundle_format="1.0"), ONE]
K4 = [(4, [2])]


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(1, 2) * 0.125, -1) @ v


def mlp(x, up, down):
    return F.gelu(x @ up) @ down


MLP = half(256, 128), half(128, 512) / 11, half(512, 128) / 22
CASES = {
    "mm": (torch.mm, (half(256, 512), half(512, 256)), K4),
    "mm in float32": (torch.mm, (torch.randn(128, 256), torch.randn(256, 64)), K4),
    "bmm": (torch.bmm, (half(2, 64, 256), half(2, 256, 64)), [(2, [3])]),
    "remainder": (torch.mm, (half(64, 448), half(448, 64)), [(3, [2])]),
    "rows around": (torch.mm, (half(256, 512), half(512, 256)), [(2, [0]), (4, [2])]),
    "rows inside": (torch.mm, (half(256, 512), half(512, 256)), [(4, [2]), (2, [0])]),
    "padded": (torch.mm, (half(50, 256), half(256, 70)), K4),
    "hidden values": (mlp, MLP, [(2, {"mm": 0}), (4, {"mm": 1})]),
    "online": (attention, [half(2, 128, 64) for _ in "qkv"], [(2, {"bmm": 1}), (2, {"bmm": 2})]),
}


def sums(bundle: Bundle) -> list[OpSpec]:
    """The products that are added to something."""
    return [spec for spec in specs_of(bundle) if spec.op == "batchmatmul" and len(spec.args) == 4]


def memory(spec: OpSpec, position: int) -> dict[str, int]:
    return dict(spec.args[position].allocation)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.bundle_format} {target.cores}")
@pytest.mark.parametrize("name", CASES)
def test_the_rule_of_numerics_holds(name, target, tmp_path):
    function, args, levels = CASES[name]
    bundle = close(function, *args, levels=levels, target=target)
    found = bundle.run(*args)
    bundle.save(tmp_path)
    assert torch.equal(spyre_fx.Bundle.load(tmp_path).run(*args), found)
    assert torch.equal(bundle_of(bundle.lowered, unroll=True).run(*args), found)


@pytest.mark.parametrize("name", CASES)
def test_on_one_core_every_sum_stands_where_it_is(name):
    """In the scratchpad, but for a sum with room for whole sticks; one that is cut out of a larger one is put together
    again elsewhere.
    """
    function, args, levels = CASES[name]
    found = sums(lowered(function, *args, levels=levels, target=ONE))
    assert found
    for spec in found if name != "rows inside" else ():
        assert memory(spec, 2) == memory(spec, 3)
        assert ("lx" in memory(spec, 3)) == (name != "padded")


def test_filled_added_to_in_place_and_drained():
    function, args, levels = CASES["mm"]
    bundle = lowered(function, *args, levels=levels)
    fill, loop, drain = bundle.lowered.steps[0].specs
    assert (fill.op, drain.op) == ("identity", "fp32todl16") and isinstance(loop, LoopSpec)
    (product,) = loop.body
    assert sums(bundle) == [product]
    # The loop casts its factors to float32, in which the device sums products of halves anyway.
    formats = [arg.device_dtype for arg in product.args]
    assert formats == ["SEN169_FP16", "SEN169_FP16", "IEEE_FP32", "IEEE_FP32"]
    places = [memory(fill, 1), memory(product, 2), memory(product, 3), memory(drain, 0)]
    assert "lx" in places[0] and places == places[:1] * 4


def test_on_one_core_hbm_moves_the_arguments_alone():
    a, b = half(256, 512), half(512, 256)
    bundle = lowered(torch.mm, a, b, levels=K4, target=ONE)
    bundle.run(a, b)
    assert moved(bundle) == 2 * (2 * 256 * 512 + 256 * 256) + 128  # and the zero that fills the sum


def test_the_sum_behind_a_running_maximum_is_scaled_in_place():
    function, args, _ = CASES["online"]
    bundle = lowered(function, *args, levels=[(2, {"bmm": 2})], target=ONE)
    (product,) = sums(bundle)
    home = memory(product, 3)
    scaled = [spec for spec in specs_of(bundle) if spec.op == "mul" and memory(spec, -1) == home == memory(spec, 0)]
    assert len(scaled) == 1 and memory(product, 2) == home


def test_a_sum_in_heads_is_scaled_in_place():
    def function(q, k, v):
        return torch.softmax(q @ k.transpose(2, 3) * 0.125, -1) @ v

    args = [half(2, 2, 128, 64) for _ in "qkv"]
    for target in TARGETS:
        bundle = close(function, *args, levels=[(2, {"k_1": 2})], target=target)
        assert all(memory(product, 2) == memory(product, 3) for product in sums(bundle))


def test_where_cores_share_k_the_product_is_made_first():
    """Partial sums meet in HBM: the sum itself stays on the cores, which add the product to it."""
    bundle = close(torch.mm, half(64, 4096), half(4096, 64) / 64, levels=K4)
    assert not sums(bundle)
    (added,) = [spec for spec in specs_of(bundle) if spec.op == "add"]
    assert "lx" in memory(added, 0) and memory(added, 0) == memory(added, -1) and "hbm" in memory(added, 1)


def test_factors_are_read_as_halves_unless_the_wide_ones_are_wanted():
    def function(x, w):
        wide = x.float()
        return wide @ w.float(), wide * 3

    args = half(64, 128), half(128, 64) / 8
    bundle = lowered(function, *args)
    assert sorted(device_ops(bundle)) == ["batchmatmul", "dl16tofp32", "mul"]
    assert_products(bundle, function, *args)
    mixed = lowered(lambda x, w: x.float() @ w, args[0], args[1].float())
    assert device_ops(mixed) == ["dl16tofp32", "batchmatmul"]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.bundle_format} {target.cores}")
def test_factors_are_read_through_views_of_the_wide_ones(target):
    def function(x, w):
        return (x.float().reshape(8, 16, 128).transpose(1, 2) @ w.float().view(8, 16, 64),)

    args = half(16, 8, 128).transpose(0, 1), half(128, 64) / 8
    bundle = lowered(function, *args, target=target)
    assert "dl16tofp32" not in device_ops(bundle)
    assert_products(bundle, function, *args)


def assert_products(bundle: Bundle, function: Callable[..., tuple[torch.Tensor, ...]], *args: torch.Tensor) -> None:
    """Products of halves in float32 are off by no more than the order of the additions."""
    for found, eager in zip(bundle.run(*args), function(*args), strict=True):
        assert found.dtype == eager.dtype == torch.float32
        torch.testing.assert_close(found, eager, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize(("rows", "k", "cores"), [(8, 1024, 4), (64, 4096, 32), (4, 4096, 4)])
def test_a_product_beside_its_sum_has_room_for_the_sticks_of_its_factors(rows, k, cores):
    """24 columns are one stick of halves, and one of float32 is half as long."""
    bundle = close(torch.mm, half(rows, k), half(k, 24), levels=K4, target=Target(cores=cores))
    (product,) = (spec for spec in specs_of(bundle) if spec.op == "batchmatmul")
    assert len(product.args) == 3 and "add" in device_ops(bundle)


def test_k_of_one_is_a_pointwise_product():
    close(torch.mm, half(64, 4), half(4, 64), levels=[(4, [2])], target=ONE)


def test_what_the_user_adds_is_added_afterwards():
    """An argument is no sum of ours: the product is made, and added."""
    bundle = close(torch.addmm, torch.randn(64, 64), torch.randn(64, 128), torch.randn(128, 64))
    assert not sums(bundle) and "add" in [spec.op for spec in specs_of(bundle)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device_dtype": "SEN169_FP16"}, "lanes of input 2|an accumulator in SEN169_FP16"),
        ({"allocation": {"hbm": 64}}, "multiple of 128"),
    ],
)
def test_bad_accumulators_are_refused(change, words):
    bundle = lowered(torch.mm, half(128, 256), half(256, 64), levels=[(2, [2])], target=ONE)
    (product,) = sums(bundle)
    args = [*product.args[:2], replace(product.args[2], **change), product.args[3]]
    with pytest.raises(SpecError, match=words):
        verify_specs((LoopSpec(2, (replace(product, args=tuple(args)),)),))


def test_an_accumulator_over_other_symbols_is_refused():
    bundle = lowered(torch.mm, half(128, 256), half(256, 64), levels=[(2, [2])], target=ONE)
    (product,) = sums(bundle)
    left, right, _, output = product.args
    with pytest.raises(SpecError, match=r"an accumulator over c0, c2 in op .* Expected c0, c1, as the output has"):
        verify_specs((LoopSpec(2, (replace(product, args=(left, right, replace(left, is_input=True), output)),)),))
    with pytest.raises(SpecError, match=r"4 inputs .* Expected 2 or 3"):
        verify_specs((LoopSpec(2, (replace(product, args=(left, right, left, left, output)),)),))


def moved(bundle: Bundle) -> int:
    return int(bundle.counters.hbm_bytes)

"""A loop has one name in summary, picture, listing and report, and keeps it in a saved bundle."""

import torch

import spyre_fx
from spyre_fx.codegen.loop_names import loop_names


def lowered():
    args = [torch.randn(300, 512, dtype=torch.float16) for _ in range(3)]
    gm = spyre_fx.capture(lambda a, b, c: (a + b) * c, *args)
    tiled = spyre_fx.tile(gm, [(["add", "mul"], [(4, [0]), (2, [1])])], multiple_of=64)
    return tiled, spyre_fx.lower(tiled), args


def test_one_name_everywhere():
    tiled, bundle, args = lowered()
    names = [loop.name for loop in spyre_fx.summary(tiled).loops]
    assert names == ["loop_0", "loop_0.loop_0"]
    # The remainder of the outer loop is one trip, and not a loop; the inner loop in it has a name of its own.
    assert list(loop_names(bundle.specs)) == [*names, "loop_0.remainder.loop_0"]
    assert spyre_fx.summary(tiled).loops[0].results == ("loop_0.loop_0: sliced along dim 0",)
    bundle.run(*args)
    for text in map(str, (spyre_fx.draw(tiled), spyre_fx.draw(bundle), bundle, bundle.report())):
        assert "loop_0.loop_0" in text and "i_0" not in text
    inner = next(line for line in str(bundle.report()).splitlines() if line.startswith("loop_0.loop_0"))
    assert inner.split()[:3] == ["loop_0.loop_0", "4", "8"]  # trips in all, dispatches


def test_a_saved_bundle_keeps_the_names(tmp_path):
    _, bundle, args = lowered()
    loaded = spyre_fx.Bundle.load(bundle.save(tmp_path))
    assert list(loop_names(loaded.specs)) == list(loop_names(bundle.specs))
    for one in (bundle, loaded):
        one.run(*args)
    assert str(loaded.report()) == str(bundle.report())
    assert str(loaded) == str(bundle)


def test_names_take_no_part_in_comparisons():
    spec = spyre_fx.LoopSpec(2, (), name="loop_0")
    assert spec == spyre_fx.LoopSpec(2, ()) and "loop_0" not in str(spec)

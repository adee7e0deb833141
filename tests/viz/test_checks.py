"""What pictures and plots refuse, in words of their own."""

import pytest
import torch

import spyre_fx
from spyre_fx import CaptureError, OptionError, draw, viz

GM = spyre_fx.capture(lambda x: x.relu() + 1, torch.ones(4, 4))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: draw(None), "draw was given None"),
        (lambda: draw(GM, limit=0), "limit=0. Expected an int from 1 up"),
        (lambda: draw(GM, depth="a"), "depth='a'. Expected an int from 0 up"),
        (lambda: draw(GM, depth=True), "depth=True. Expected an int"),
        (lambda: draw(GM, fold="no"), "fold='no'. Expected True, False or None"),
        (lambda: draw(GM, bundle=3), r"an int where a bundle belongs\. .* spyre_fx\.lower"),
        (lambda: viz.plot_lx_map(GM), "where a bundle belongs"),
        (lambda: viz.plot_working_set(GM, capacity="1 MiB"), "capacity='1 MiB'. Expected an int from 1 up"),
        (lambda: viz.plot_traffic(GM, capacity=0), "capacity=0. Expected an int from 1 up"),
        (lambda: viz.plot_tile_shapes(GM, ["relu"], (0, 1), capacity=1.5), "capacity=1.5. Expected an int"),
    ],
)
def test_options_and_values(call, words):
    with pytest.raises(OptionError, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: viz.plot_working_set(3),
        lambda: viz.plot_working_set(GM, 3),
        lambda: viz.plot_memory(torch.relu),
        lambda: viz.plot_traffic(3, capacity=1),
        lambda: viz.plot_tile_shapes(3, ["relu"], (0, 1), capacity=1),
    ],
)
def test_what_is_no_graph(call):
    with pytest.raises(CaptureError, match="where a graph belongs"):
        call()


@pytest.mark.parametrize("make", [lambda: draw(GM), lambda: viz.plot_working_set(GM)])
def test_files_that_cannot_be_written(make, tmp_path):
    with pytest.raises(OptionError, match=r"x\.svg: No such file or directory\. Expected a file that can be written"):
        make().save(tmp_path / "missing" / "x.svg")
    with pytest.raises(OptionError, match="a file given as an object of type int"):
        make().save(3)

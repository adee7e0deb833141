"""Pictures: valid XML, nothing that viewers strip, every name escaped."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from spyre_fx.errors import OptionError
from spyre_fx.viz.drawing import draw

FORBIDDEN = {"style", "class", "id", "onclick"}


def chain(length):
    def fn(x):
        for _ in range(length):
            x = x.sin() + 1
        return x

    return make_fx(fn)(torch.randn(4, 4))


@pytest.mark.parametrize("length", [1, 10, 200])
def test_svg_is_valid_and_plain(length):
    root = ElementTree.fromstring(draw(chain(length)).to_svg())
    tags = {element.tag.split("}")[1] for element in root.iter()}
    assert tags <= {"svg", "rect", "path", "text", "title", "circle", "g"}
    assert not FORBIDDEN & {name for element in root.iter() for name in element.attrib}


def test_every_op_shows_in_the_listing():
    text = str(draw(chain(3)))
    assert text.count("sin") == 6 and text.splitlines()[-1].startswith("result")


def test_long_graphs_fold():
    boxes = [line for line in str(draw(chain(500))).splitlines()]
    assert len(boxes) <= 130 and "nodes" in boxes[1]


def test_other_kinds_are_refused():
    with pytest.raises(OptionError, match="draw was given a int"):
        draw(3)
    with pytest.raises(OptionError, match=r"cannot be saved as '\.png'"):
        draw(chain(1)).save("picture.png")

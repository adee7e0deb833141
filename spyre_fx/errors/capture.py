"""What ``capture`` and the passes that need shapes say when they must refuse."""

from __future__ import annotations

from spyre_fx.errors import CaptureError, Template

NO_SHAPES = Template(
    CaptureError,
    "graph input {name!r} has no recorded shape (no meta['val']), and no example inputs were given",
    "a graph made by spyre_fx.capture, torch.export or make_fx, or example inputs to run it on",
    "make the graph with spyre_fx.capture(fn, *example_args), or pass example_args",
)
EXAMPLE_COUNT = Template(
    CaptureError,
    "{given} example inputs for a graph with {wanted} inputs ({names})",
    "one example per graph input, in the same order",
    "pass {wanted} examples, flattened in the order of the placeholders",
)
NOT_STRIDED = Template(
    CaptureError,
    "a tensor of layout {layout} at {name!r}",
    "strided (dense) tensors",
    "convert it with to_dense() before the graph",
)
NO_FAKE_RESULT = Template(
    CaptureError,
    "the shape of the result of {op} cannot be computed: {reason}",
    "an op that runs on fake tensors of the shapes of its inputs",
    "check that the example inputs fit the graph; a custom op needs a fake kernel (torch.library.register_fake)",
)

"""What a bundle returns and what its host steps read, when the graph copies or writes its inputs."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import spyre_fx


def _written(a):
    before = a.clone()
    a.add_(1)
    return before


def _copied_twice(a):
    before = a.detach().clone()
    a.zero_()
    return before + 1, before


def _traced(f, x, tracer):
    x = x.clone()
    return spyre_fx.capture(f, x) if tracer == "capture" else make_fx(f, tracing_mode="fake")(x)


@pytest.mark.parametrize("tracer", ["capture", "make_fx"])
@pytest.mark.parametrize("f", [_written, _copied_twice])
def test_a_copy_keeps_the_values_from_before_a_write(f, tracer):
    x = torch.arange(512).reshape(8, 64).half() / 64
    expected_input, given_input = x.clone(), x.clone()
    expected = f(expected_input)
    given = spyre_fx.lower(_traced(f, x, tracer)).run(given_input)
    torch.testing.assert_close(given, expected, rtol=0, atol=0)
    assert torch.equal(given_input, expected_input)


def test_a_copy_of_an_input_is_no_alias_and_a_view_is_one():
    x = torch.ones(8, 64).half()
    copy, view = spyre_fx.lower(make_fx(lambda a: (a.clone(), a.t()))(x)).run(x)
    assert copy.data_ptr() != x.data_ptr() == view.data_ptr()


def test_the_host_reads_a_copy_with_the_strides_of_eager():
    x = torch.arange(67 * 131).remainder(61).half().reshape(67, 131)[1:65, 1:129]

    def f(a):
        copy = a.clone(memory_format=torch.contiguous_format)
        return copy.view(-1).select(0, 5), copy.as_strided((3, 5), (2, 7))

    given = spyre_fx.lower(make_fx(f, tracing_mode="fake")(x)).run(x)
    torch.testing.assert_close(given, f(x), rtol=0, atol=0)


def test_results_come_in_plain_lists_and_dicts():
    x = torch.ones(8, 64).half()
    result = spyre_fx.lower(make_fx(lambda a: {"a": a + 1, "b": [a * 2, (a,)]})(x)).run(x)
    assert type(result) is dict and type(result["b"]) is list and type(result["b"][1]) is tuple


@pytest.mark.parametrize("x", [torch.ones(8, 64, device="meta"), torch.ones(8, 64).to_sparse()])
def test_inputs_without_dense_values_are_refused(x):
    bundle = spyre_fx.lower(make_fx(lambda a: a + 1)(torch.ones(8, 64)))
    with pytest.raises(spyre_fx.SpecError, match="a dense one with values"):
        bundle.run(x)


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_group_norm_by_every_dim_between_host_ops(dim):
    """The host reads what the loop made before the device reads it again; groups are tiled with all their channels."""

    def fn(x, w, b):
        y = torch.relu(torch.nn.functional.group_norm(x, 2, w, b))
        return torch.cat([y, y.cumsum(1)], 1)

    args = torch.randn(2, 6, 8, 6), torch.randn(6), torch.randn(6)
    gm = spyre_fx.capture(fn, *args)
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    tiled = spyre_fx.tile(gm, [(names[: names.index("relu") + 1], 2, [dim])])
    assert tiled.graph.find_nodes(op="call_module")
    for unroll in (False, True):
        bundle = spyre_fx.lower(tiled, unroll=unroll)
        assert "aten.cumsum.default" in str(bundle) and ("scf.for" in bundle.mlir()) is not unroll
        torch.testing.assert_close(bundle.run(*args), fn(*args))

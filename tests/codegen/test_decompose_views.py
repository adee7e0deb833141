"""Views, joins and creation: no data moves for a view, and constants are known before the run."""

from __future__ import annotations

import pytest
import torch

from tests.codegen.device_runs import device_ops, half, host_ops, same

VIEWS = {
    "reshape": lambda x: x.reshape(8, 8, 2, 64) + 1,
    "merge": lambda x: x.reshape(64, 2, 64).reshape(128, 64) + 1,
    "transpose": lambda x: x.t() + 1,
    "permute": lambda x: x.reshape(8, 8, 128).permute(1, 0, 2) + 1,
    "expand": lambda x: x.unsqueeze(0).expand(3, 64, 128) + 1,
    "slice": lambda x: x[3:50] + 1,
    "slice with a step": lambda x: x[1::3] + 1,
    "slice of whole sticks": lambda x: x[:, 64:] + 1,
    "select": lambda x: x[5] + 1,
    "select a column": lambda x: x[:, 5] + 1,
    "split": lambda x: torch.stack(x.split(64, 1)),
    "uneven split": lambda x: x.split([20, 44])[1] + 1,
    "unbind": lambda x: x.reshape(2, 32, 128).unbind(0)[1] + 1,
    "unflatten": lambda x: x.unflatten(0, (4, -1)) + 1,
    "squeeze": lambda x: x.reshape(64, 1, 128).squeeze(1) + 1,
    "squeeze all": lambda x: x.reshape(64, 1, 128, 1).squeeze() + 1,
    "repeat": lambda x: x.repeat(2, 1) + 1,
    "heads": lambda x: x.reshape(2, 32, 2, 64).transpose(1, 2) + 1,
    "slice then view": lambda x: x[:63].reshape(9, 7, 128) + 1,
    "view that does not nest": lambda x: x.t().reshape(64, 128) + 1,
    "cat": lambda x: torch.cat([x, x[:10]], 0),
    "cat of sticks": lambda x: torch.cat([x, x[:, :64]], 1),
    "stack": lambda x: torch.stack([x, x * 2], 1),
    "pad": lambda x: torch.nn.functional.pad(x, (64, 0, 1, 2), value=0.5),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_joins(name):
    torch.manual_seed(0)
    bundle = same(VIEWS[name], half(64, 128))
    assert not host_ops(bundle)


@pytest.mark.parametrize("name", ["reshape", "slice", "slice of whole sticks", "heads", "expand"])
def test_views_cost_no_op(name):
    assert device_ops(same(VIEWS[name], half(64, 128))) == ["add"]


def test_a_clone_is_the_value_itself():
    assert device_ops(same(lambda x: x.clone().contiguous() * 2, half(64, 128))) == ["mul"]


CREATED = {
    "full": lambda x: x + torch.full((64, 128), 0.5, dtype=torch.float16),
    "zeros like": lambda x: torch.zeros_like(x) - x,
    "ones": lambda x: x + torch.ones(128, dtype=torch.float16),
    "arange": lambda x: x + torch.arange(128).half(),
    "mask": lambda x: torch.where(torch.ones(64, 128, dtype=torch.bool).tril(), x, 0.0),
    "filled result": lambda x: torch.full((64, 128), 2.0, dtype=torch.float16) * 1,
}


@pytest.mark.parametrize("name", CREATED)
def test_what_needs_no_input_is_known_before_the_run(name):
    bundle = same(CREATED[name], half(64, 128))
    assert not host_ops(bundle)
    assert len(device_ops(bundle)) <= 1


def test_equal_constants_share_a_buffer():
    def twice(x):
        mask = torch.ones(64, 128, dtype=torch.bool).tril()
        other = torch.ones(64, 128, dtype=torch.bool).tril()
        return torch.where(mask, x, 0.0) + torch.where(other, x * 2, 0.0)

    arguments = same(twice, half(64, 128)).lowered.arguments
    assert sum(argument.role == "constant" and argument.shape == (64, 128) for argument in arguments) == 1

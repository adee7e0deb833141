# %% [markdown]
# # A rule for a custom op
#
# `spyre_fx` knows ATen ops. An op of your own is opaque to it: nothing says along which dims it may be cut. A *rule*
# says so, by giving the op's iteration space.

# %%
import torch

import spyre_fx
from spyre_fx.analysis.iteration import SpaceBuilder

torch.manual_seed(0)


@torch.library.custom_op("tour::rms_scale", mutates_args=())
def rms_scale(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Divide each row by its root mean square and scale each column."""
    return x / x.square().mean(dim=-1, keepdim=True).sqrt() * weight


@rms_scale.register_fake
def _(x, weight):
    return torch.empty_like(x)


def f(x, weight, w):
    return torch.relu(rms_scale(x, weight) @ w)


args = torch.randn(64, 32), torch.randn(32), torch.randn(32, 16)
gm = spyre_fx.capture(f, *args)
spyre_fx.draw(gm)

# %% [markdown]
# Without a rule, a group that holds the op is refused. The message names the op and says what to do:

# %%
group = (["rms_scale", "mm", "relu"], 4)
try:
    spyre_fx.tile(gm, [group])
except spyre_fx.TilingError as error:
    print(error)

# %% [markdown]
# ## The rule
#
# A rule takes an `OpCall` (the op with shapes and dtypes of its operands) and builds an `IterationSpace`:
#
# - `axis(extent)` is a parallel axis: run on tiles along it, the op gives the tiles of its result. Rows are free of
#   each other, so rows are such an axis.
# - `sequential(extent)` is an axis that must stay whole. All columns of a row go into its mean.
# - An *index map* says for each operand and result which axes its dims are made of. `weight` has no row axis: every
#   trip sees all of it.


# %%
def rms_scale_space(call):
    builder = SpaceBuilder()
    rows, columns = call.operands[0].shape
    row, column = builder.axis(rows), builder.sequential(columns)
    return builder.build(operands=[[row, column], [column]], results=[[row, column]])


spyre_fx.register_iteration_space(rms_scale, rms_scale_space)
node = next(node for node in gm.graph.nodes if node.name == "rms_scale")
for axis in spyre_fx.iteration_space(node).axes:
    print(axis)

# %% [markdown]
# Now the op is tiled like any other:

# %%
tiled = spyre_fx.tile(gm, [group])
spyre_fx.draw(gm, after=tiled)

# %%
torch.testing.assert_close(tiled(*args), f(*args))
spyre_fx.summary(tiled)

# %% [markdown]
# ## What the rule forbids
#
# The columns are sequential, so a group that would have to cut them is refused:

# %%
try:
    spyre_fx.tile(gm, [(["rms_scale", "mm", "relu"], 4, {"x": 1})])
except spyre_fx.TilingError as error:
    print(error)

# %% [markdown]
# A rule that does not fit the tensors is an error as soon as it is used: extents that do not multiply to the size of
# a dim are refused by name. What no check can see is a promise that the op does not keep, so compare values, as
# above.

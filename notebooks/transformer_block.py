# %% [markdown]
# # A transformer block: seeing memory fall
#
# The feed-forward half of a transformer block makes the widest values of a model, four times the width of its input,
# and attention makes a score for each pair of tokens. This notebook tiles both and watches allocated memory.

# %%
import torch
from torch import nn

import spyre_fx
from spyre_fx.analysis.budget import peak_bytes
from spyre_fx.viz import plot_memory, plot_traffic

torch.manual_seed(0)
BATCH, TOKENS, WIDTH, HEADS = 4, 256, 128, 4


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a norm and beside a skip connection."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        q, k, v = (
            part.view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = torch.softmax(q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5, dim=-1)
        return self.out((scores @ v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm_2(x))))


model, x = Block().eval(), torch.randn(BATCH, TOKENS, WIDTH)
gm = spyre_fx.capture(model, x)
print(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default))

# %% [markdown]
# Folded by module, the block is short enough to read:

# %%
spyre_fx.draw(gm, fold=True)

# %% [markdown]
# ## One group over the whole block
#
# Nothing in the block mixes samples, so one group can hold all of it: the batch dim of the input is followed through
# views, products, softmax and norms. A dict names the dim by the value that has it.

# %%
ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
by_sample = spyre_fx.tile(gm, [(ops, BATCH, {"x": 0})])
torch.testing.assert_close(by_sample(x), model(x))
for name, graph in [("untiled", gm), ("a loop over samples", by_sample)]:
    print(f"{name:20} {peak_bytes(graph):>10,} bytes at most")

# %%
plot_memory(gm, by_sample)

# %% [markdown]
# ## Two groups, finer
#
# Tiles of tokens cut further where tokens do not mix: the feed-forward network. Attention mixes tokens, but not heads
# and samples.

# %%
start = ops.index("native_layer_norm_1")
feed_forward = [name for name in ops[start:] if name != "add_1"]
tiled = spyre_fx.tile(gm, [(feed_forward, 16, {"add": 1})])
torch.testing.assert_close(tiled(x), model(x))
print(f"{peak_bytes(gm):,} -> {peak_bytes(tiled):,} bytes")

# %%
spyre_fx.draw(tiled.get_submodule("loop_0"))

# %% [markdown]
# The widest value, `gelu`, is internal to the loop now: it exists as one tile of 16 tokens of each sample. But the
# peak is that of attention, which this group leaves alone. Both together, attention by sample:

# %%
attention = [name for name in ops[:start] if name != "add"]
both = spyre_fx.tile(gm, [(attention, BATCH, {"x": 0}), (feed_forward, 16, {"add": 1})])
torch.testing.assert_close(both(x), model(x))
print(f"{peak_bytes(gm):,} -> {peak_bytes(both):,} bytes")

# %%
plot_memory(gm, both)

# %% [markdown]
# ## What is moved
#
# Less memory is not the same as less traffic: each trip of a loop reads the weights that it needs, unless they stay
# in the scratchpad. The model shows which loops pay.

# %%
plot_traffic(both, gm, capacity=2 << 20)

# %% [markdown]
# ## Let the cost model choose
#
# `auto_groups` looks for groups by itself, for a target that it is given.

# %%
groups = spyre_fx.auto_groups(gm, spyre_fx.Target(cores=1))
for reason in groups.reasons:
    print(reason)
chosen = spyre_fx.tile(gm, groups)
torch.testing.assert_close(chosen(x), model(x))
print(f"{peak_bytes(gm):,} -> {peak_bytes(chosen):,} bytes")

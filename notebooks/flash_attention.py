# %% [markdown]
# # From attention to flash attention, by one group
#
# Attention makes a score for each pair of tokens, a matrix far larger than its inputs and its result. Flash attention
# never makes it: it goes over tiles of keys and keeps a running maximum, a running sum and a running result. Here the
# same loop comes out of one group.

# %%
import torch

import spyre_fx
from spyre_fx.analysis.budget import peak_bytes
from spyre_fx.viz import plot_memory, plot_working_set

torch.manual_seed(0)
TOKENS, WIDTH = 512, 64


def attention(q, k, v):
    scores = q @ k.transpose(0, 1) / WIDTH**0.5
    return torch.softmax(scores, dim=-1) @ v


args = [torch.randn(TOKENS, WIDTH) for _ in range(3)]
gm = spyre_fx.capture(attention, *args)
spyre_fx.draw(gm)

# %% [markdown]
# ## Tiles of queries
#
# Rows of a softmax are free of each other, so cutting the queries changes nothing in the ops: each trip makes a strip
# of scores, over all keys.

# %%
ops = [node.name for node in gm.graph.nodes if node.op == "call_function"]
by_query = spyre_fx.tile(gm, [(ops, 8, {"q": 0})])
torch.testing.assert_close(by_query(*args), attention(*args))
spyre_fx.draw(by_query)

# %% [markdown]
# ## Tiles of keys
#
# Cutting the keys cuts the axis that the softmax reduces over. The maximum of a row is known only after its last
# tile, and a sum of exponentials is wrong as soon as the maximum changes. The online form repairs it: when a tile
# raises the maximum from $m$ to $m'$, what was summed so far is multiplied by $e^{m - m'}$ (Milakov and Gimelshein
# 2018; Dao et al. 2022).

# %%
by_key = spyre_fx.tile(gm, [(ops, 8, {"k": 0})])
torch.testing.assert_close(by_key(*args), attention(*args))
spyre_fx.draw(by_key)

# %% [markdown]
# ↻ marks the values that are carried from trip to trip. No loop makes a matrix of all scores:

# %%
spyre_fx.summary(by_key)

# %% [markdown]
# ## Both
#
# Tiles of queries outside, tiles of keys inside: the loops of flash attention.

# %%
flash = spyre_fx.tile(gm, [(ops, [(4, {"q": 0}), (8, {"k": 0})])])
torch.testing.assert_close(flash(*args), attention(*args))
for name, graph in [("attention", gm), ("by query", by_query), ("by key", by_key), ("both", flash)]:
    print(f"{name:10} {peak_bytes(graph):>10,} bytes at most")

# %%
plot_working_set(gm, flash, capacity=256 << 10)

# %%
plot_memory(gm, flash)

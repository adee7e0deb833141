# %% [markdown]
# # torch.compile on a CPU
#
# The same loops help where no scratchpad is: values that exist one tile at a time stay in the cache, and memory that
# is never allocated costs nothing. `torch.compile` finds the backend by its name.

# %%
import torch
from torch import nn

import spyre_fx
from spyre_fx.analysis.budget import peak_bytes
from spyre_fx.viz import plot_memory

torch.manual_seed(0)
TOKENS, WIDTH, CLASSES = 512, 64, 4096


class Head(nn.Module):
    """The head of a language model: a score for each word of the vocabulary, and the loss of the right one."""

    def __init__(self):
        super().__init__()
        self.words = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, x, target):
        return torch.nn.functional.cross_entropy(self.words(x), target)


model = Head()
x, target = torch.randn(TOKENS, WIDTH), torch.randint(CLASSES, (TOKENS,))

# %% [markdown]
# ## Look at what is compiled
#
# A `Backend` that you hold keeps a record of each graph: what was captured, which groups were chosen and why, the
# loops.

# %%
backend = spyre_fx.Backend(tile="auto")
compiled = torch.compile(model, backend=backend)
with torch.no_grad():
    loss = compiled(x, target)
torch.testing.assert_close(loss, model(x, target).detach())
record = backend.graphs[0]
for reason in record.reasons:
    print(reason)

# %% [markdown]
# The scores and their log-probabilities are the largest values by far. With the loop the scores exist one tile at a
# time:

# %%
print(f"{peak_bytes(record.captured):,} -> {peak_bytes(record.tiled):,} bytes")
plot_memory(record.captured, record.tiled)

# %%
spyre_fx.draw(record.tiled)

# %% [markdown]
# ## Groups of your own
#
# `tile` takes a list of groups as `spyre_fx.tile` does, or a function that gives one for each graph.


# %%
def largest_product(gm):
    products = [node for node in gm.graph.nodes if node.target is torch.ops.aten.mm.default]
    return [(products, 4)]


backend = spyre_fx.Backend(tile=largest_product)
compiled = torch.compile(model, backend=backend)
with torch.no_grad():
    torch.testing.assert_close(compiled(x, target), loss)
print([record.loops for record in backend.graphs])

# %% [markdown]
# ## Training
#
# Forward and backward are graphs of their own, and each may have loops. The gradients are those of eager PyTorch.

# %%
model.zero_grad()
model(x, target).backward()
expected = model.words.weight.grad.clone()

model.zero_grad()
backend = spyre_fx.Backend(tile="auto")
torch.compile(model, backend=backend)(x, target).backward()
torch.testing.assert_close(model.words.weight.grad, expected)
print([record.stage for record in backend.graphs])

# %% [markdown]
# How fast it is depends on the machine: `python benchmarks/cpu.py` measures time and memory on yours, beside eager
# PyTorch.

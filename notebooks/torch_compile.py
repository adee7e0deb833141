# %% [markdown]
# # torch.compile on a CPU
#
# The same loops help where no scratchpad is: values that exist one tile at a time stay in the cache, and memory that
# is never allocated costs nothing. `torch.compile` finds the backend by its name.

# %%
import statistics
import time

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
# `tile` also takes a function, which gives the groups for each graph: what `spyre_fx.tile` takes as `groups`.


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
# ## Time and memory, measured here
#
# The median of some calls, eager against compiled, and the bytes that each graph has allocated at most by the model
# that `plot_memory` draws. The table is what one machine gave when the notebook was last run, at these small sizes and
# with other work going on: read the bytes, and take the times on a machine of your own.


# %%
def milliseconds(call, count=15):
    """The median time of a call, after two calls that do not count."""
    times = []
    for _ in range(count + 2):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


class FeedForward(nn.Sequential):
    """The widest part of a transformer block."""

    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 16 * WIDTH), nn.GELU(), nn.Linear(16 * WIDTH, WIDTH))


def measure(name, model, *args, training=False):
    backend = spyre_fx.Backend(tile="auto")
    compiled = torch.compile(model, backend=backend)

    def step(function):
        if not training:
            with torch.no_grad():
                return function(*args)
        model.zero_grad()
        return function(*args).backward()

    eager, looped = (milliseconds(lambda function=function: step(function)) for function in (model, compiled))
    untiled, tiled = (max(peak_bytes(getattr(r, form)) for r in backend.graphs) for form in ("captured", "tiled"))
    loops = sum(record.loops for record in backend.graphs)
    print(f"{name:24} {eager:9.2f} {looped:12.2f} {untiled:14,} {tiled:14,} {loops:7}")


print(f"{'':24} {'eager ms':>9} {'compiled ms':>12} {'untiled bytes':>14} {'tiled bytes':>14} {'loops':>7}")
measure("head and loss", model, x, target)
measure("head and loss, training", model, x, target, training=True)
measure("feed-forward network", FeedForward(), torch.randn(4 * TOKENS, WIDTH))

# %% [markdown]
# `python benchmarks/cpu.py` measures larger cases on your machine, each in a process of its own, beside Inductor and
# kernels written by hand, with the memory that the allocator and the system saw.

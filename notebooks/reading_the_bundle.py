# %% [markdown]
# # Reading the bundle
#
# What `lower` makes, from the inside: layouts, specs, addresses, SuperDSC files and MLIR, and the simulated device
# that runs them. Start with `first_tour` if loops are new to you.

# %%
import json
from pathlib import Path

import torch

import spyre_fx
from spyre_fx.viz import plot_lx_map

torch.manual_seed(0)


def attention_scores(x, w):
    return torch.softmax(x @ w, dim=-1)


x, w = torch.randn(512, 256, dtype=torch.float16), torch.randn(256, 512, dtype=torch.float16)
gm = spyre_fx.capture(attention_scores, x, w)
tiled = spyre_fx.tile(gm, [(["mm", "_softmax"], 4)])
bundle = spyre_fx.lower(tiled)
print(bundle)

# %% [markdown]
# The device has no softmax: it became a maximum, a difference, an exponential, a sum and a division. Each op names
# its iteration symbols with the cores that share them.

# %%
spyre_fx.draw(bundle)

# %% [markdown]
# ## Layouts
#
# Memory is moved in sticks of 128 bytes. A layout says how a host tensor is cut into sticks: the last device dim is
# the lane within a stick, and the blocks of the stick dim come first. `coordinates` and `offset` tell where an
# element lies.

# %%
for argument in bundle.lowered.arguments:
    layout = argument.layout
    print(f"{argument.name:10} {list(argument.shape)} -> {list(layout.device_size)} at byte {argument.address:#x}")
layout = bundle.lowered.arguments[0].layout
print("element [3, 130]:", layout.coordinates((3, 130)), "at byte", layout.offset((3, 130)))

# %% [markdown]
# Element [3, 130] is in column block 2 (130 // 64), row 3, lane 2: (2 * 512 + 3) sticks of 128 bytes, then 2 numbers
# of 2 bytes.
#
# ## Specs
#
# The data that everything else is printed from. Coordinates are sympy expressions in the iteration symbols; `advance`
# is what each loop adds to an address per trip.

# %%
loop = next(spec for spec in bundle.specs if isinstance(spec, spyre_fx.LoopSpec))
for op in loop.body:
    print(f"{op.op:14}", {str(symbol): (int(extent), cores) for symbol, (extent, cores) in op.iteration_space.items()})
    for argument in op.args:
        side = "in " if argument.is_input else "out"
        print(f"    {side} {argument.name:12} {argument.allocation} advance {list(argument.advance)}")

# %% [markdown]
# ## The scratchpad over time
#
# Buffers that only the loop needs lie in LX, in every trip at the same place: `advance` is 0.

# %%
plot_lx_map(bundle)

# %% [markdown]
# ## Files
#
# `save` writes the specs as Python, one SuperDSC file per op, and the MLIR that calls them; `Bundle.load` reads what
# was written, so that what runs is what the files say.

# %%
folder = bundle.save("out")
print(sorted(path.name for path in folder.iterdir()))
mlir = Path(folder, "bundle.mlir").read_text()
print(mlir)

# %% [markdown]
# Each `sdsc_execute` names a SuperDSC file and passes the addresses that change from trip to trip; `symbol_ids` says
# which numbers in the file they stand for.

# %%
((name, superdsc),) = json.loads(Path(folder, "sdsc_0.json").read_text()).items()
print(name, *superdsc, sep="\n    ")
print("work slices per dim:", superdsc["numWkSlicesPerDim_"])
print("slice of core 5:    ", superdsc["coreIdToWkSlice_"]["5"])

# %% [markdown]
# ## Run
#
# The device has its own memory and knows nothing of the graph. It refuses to read a byte that nobody has written,
# another core's scratchpad, or an address outside of every buffer.

# %%
loaded = spyre_fx.Bundle.load(folder)
result = loaded.run(x, w)
print((result - attention_scores(x, w)).abs().max())
loaded.report()

# %% [markdown]
# The same without the scratchpad, side by side:

# %%
without = spyre_fx.lower(tiled, spyre_fx.Target(lx_planning=False))
bundle.diff(without)

# %% [markdown]
# # A first tour
#
# A tensor program is fast when what it works on fits into fast memory: the scratchpad of an accelerator, the cache of
# a CPU. `spyre_fx` takes a `torch.fx` graph, cuts chosen dims into tiles and turns the region into a *counted loop*.
# This tour follows one small function through every stage, with a picture of each. It takes about ten minutes.

# %%
import torch

import spyre_fx
from spyre_fx.viz import plot_lx_map, plot_traffic, plot_working_set

torch.manual_seed(0)


def f(a, b, c):
    y = a + b
    return y * c


args = [torch.randn(1024, 4096, dtype=torch.float16) for _ in range(3)]

# %% [markdown]
# ## 1. Capture
#
# `capture` gives a functional graph of ATen ops. Every node knows the shape and dtype of its value, and the source
# line it comes from (hover over a box, where your viewer shows tooltips).

# %%
gm = spyre_fx.capture(f, *args)
spyre_fx.draw(gm)

# %% [markdown]
# `y` is a full tensor of 8 MiB: the addition writes it to memory, and the product reads it back. A compiler would fuse
# these two ops, and `y` would not exist. Fusion ends at a matrix product or a softmax, and loops go on; here are two
# ops only because they are easy to draw.
#
# ## 2. Iteration spaces
#
# What may be cut is not guessed from shapes. Each op has an *iteration space*: its axes, which of them are parallel,
# reduction or sequential, and how operands and results are indexed by them.

# %%
mul = next(node for node in gm.graph.nodes if node.name == "mul")
space = spyre_fx.iteration_space(mul)
for axis in space.axes:
    print(axis)

# %% [markdown]
# Both axes are parallel, so both may be cut.
#
# ## 3. The plan
#
# `plan` lists pieces of work in an order in which they can run, with what each reads, writes and computes. What could
# be fused is one piece. `auto_groups` chooses loops from it; below we choose them ourselves.

# %%
spyre_fx.plan(gm)

# %% [markdown]
# ## 4. Tile
#
# A *group* names ops and how to cut them: here 2 tiles of dim 0, and in each of these 4 tiles of dim 1. The numbers
# count the axes of the first op; `{"mul": 0}` names a dim of a value instead. The axes are followed from op to op
# through the dataflow. The result is a new graph with one `call_module` node, a `CountedLoop`.

# %%
tiled = spyre_fx.tile(gm, [(["add", "mul"], [(2, [0]), (4, [1])])])
spyre_fx.draw(gm, after=tiled)

# %% [markdown]
# On the right, ▤ marks values that each trip sees a tile of, ▦ results that are put together from tiles. The dashed
# link is the point of it all: `y` is *internal*, it exists only as a tile of 1 MiB. A number in a dark circle says to
# which loop an op went. As a table, where *bytes per trip* are all tiles of a trip: `a`, `b`, `c`, `y` and the result:

# %%
spyre_fx.summary(tiled)

# %% [markdown]
# A tiled graph is an ordinary `GraphModule`: it runs on the CPU and gives the same values. Had the group been refused,
# the error would say why; `spyre_fx.explain(gm, groups)` says it without raising.

# %%
torch.equal(tiled(*args), f(*args))

# %% [markdown]
# ## 5. What it is good for
#
# What must be held at once so that nothing spills, op by op, before and after. The red line is the scratchpad of a
# small device, of 4 MiB in all cores together; the default `Target()` has 49.6 MiB, and `y` would fit into it.

# %%
small = spyre_fx.Target(lx_bytes=224 << 10)
print(small.capacity_bytes, spyre_fx.Target().capacity_bytes)

# %%
plot_working_set(gm, tiled, capacity=small.capacity_bytes)

# %%
plot_traffic(tiled, gm, capacity=small.capacity_bytes)

# %% [markdown]
# With the loop every byte is moved once: `a`, `b` and `c` are read and the result is written, and `y` never leaves
# the scratchpad. The red line is what no schedule can beat.
#
# ## 6. Lower
#
# `lower` assigns layouts, cores and addresses for IBM Spyre and returns a `Bundle`: programs as data, from which text
# is printed. ◆ is the scratchpad (LX) of each core, ◇ main memory (HBM). `c0` and `c1` are the axes of an op, and
# `512 on 32 cores` says that the cores share its 512 rows. `SEN169_FP16` is the device's 16-bit float, and an `sdsc`
# file describes one op.

# %%
bundle = spyre_fx.lower(tiled, small)
spyre_fx.draw(bundle)

# %%
print(bundle.mlir())

# %% [markdown]
# Where do `65536` and `2097152` come from? Memory is moved in sticks of 128 bytes, 64 numbers of two bytes, and a
# matrix of [1024, 4096] lies in memory as [64, 1024, 64]: 64 columns of sticks. One step of the outer loop is 512
# rows down, 512 sticks of 128 bytes: 65536 bytes. One step of the inner loop is 1024 columns to the right, 16 columns
# of sticks with 1024 sticks each: 2097152 bytes. The addresses follow the layout.
#
# What lies where in the scratchpad of one core, op by op: only `y`, 32 KiB of its tile of 1 MiB, which 32 cores share.

# %%
plot_lx_map(bundle)

# %% [markdown]
# ## 7. Run it on the simulated device
#
# The simulated device executes what was printed, checks every access and counts bytes. Here the values are those of
# eager PyTorch, bit by bit; ops that sum may round differently.

# %%
torch.equal(bundle.run(*args), f(*args))

# %% [markdown]
# A *dispatch* is one run of one op: 8 trips of 2 ops make 16. Main memory moves 32 MiB, the inputs once and the result
# once, which is the least that any schedule can do.

# %%
bundle.report()

# %% [markdown]
# Without the loop the same device moves 48 MiB: `y` does not fit, and goes to main memory and back.

# %%
untiled = spyre_fx.lower(gm, small)
untiled.run(*args)
untiled.report()

# %% [markdown]
# ## Where to go from here
#
# - `spyre_fx.draw(tiled, bundle=bundle).save("tour.html")` writes a page to zoom, fold and search; a click on a loop
#   shows its MLIR and its specs.
# - `spyre_fx.auto_groups(gm)` chooses the groups by a cost model.
# - The other notebooks: `transformer_block` (memory falls), `flash_attention` (softmax over tiles),
#   `reading_the_bundle` (layouts and addresses), `torch_compile` (on a CPU), `custom_op` (rules for your own ops).

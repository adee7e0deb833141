"""The first half of code generation: a graph of ATen ops and counted loops becomes specs with addresses.

walk       ATen ops -> device ops on accesses; loops -> loops around them; what the device lacks -> host calls
kernels    accesses -> axes and digits
pack       one reduced axis per matmul
rebase     copies of what the user's views cut inside a stick
sticks     the dim of each buffer that fills its sticks; moves where ops disagree
pad        room for whole sticks
divide     cores per axis
stage      tiles that several ops use, held in LX; constants of one value to a stick, laid out there
memory     LX and HBM addresses
emit       OpSpec and LoopSpec, dims folded where the device has labels for no more
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch import fx
from torch.fx import GraphModule

from spyre_fx.codegen import layout
from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.division import Splits
from spyre_fx.codegen.emit import Emitter
from spyre_fx.codegen.holding import Holder
from spyre_fx.codegen.host_reasons import Reasons
from spyre_fx.codegen.kernels import Item, Kernel, KernelLoop, kernels, kernels_of
from spyre_fx.codegen.launch import Launch
from spyre_fx.codegen.launch_rows import separate_symbols
from spyre_fx.codegen.lifetimes import Windows
from spyre_fx.codegen.lowered import Argument, Constant, DeviceStep, HostStep, LaunchSize, Lowered, Step
from spyre_fx.codegen.memory import Plan, plan_memory
from spyre_fx.codegen.packing import pack
from spyre_fx.codegen.padding import Padder
from spyre_fx.codegen.rebase import rebase
from spyre_fx.codegen.restickify import RESTICKIFY, Restickifier
from spyre_fx.codegen.spreading import Spreader
from spyre_fx.codegen.staging import Stager
from spyre_fx.codegen.stick_search import search
from spyre_fx.codegen.sticks import Layouts
from spyre_fx.codegen.sums import divide_sums
from spyre_fx.codegen.top import Top
from spyre_fx.codegen.tree import HostCall, live
from spyre_fx.codegen.unroll import unroll_windows
from spyre_fx.codegen.wide_ops import wide_ops
from spyre_fx.target import Target


def lower_graph(gm: GraphModule, target: Target) -> Lowered:
    """Lower a graph whose nodes have ``meta["val"]``; it is read, not edited.

    An op that turns out to have more dims than the device has labels for is the host's, and all is lowered again.

    Raises:
        LoweringError: naming what the device has no form for.
    """
    lacking: dict[fx.Node, Reasons] = {}
    while True:
        lowered = _lowered(gm, target, lacking)
        wide = wide_ops(gm, lowered.steps)
        if wide.keys() <= lacking.keys():
            return lowered
        lacking = {**wide, **lacking}


def _lowered(gm: GraphModule, target: Target, lacking: Mapping[fx.Node, Reasons]) -> Lowered:
    top = Top(gm, lacking)
    outputs = top.run()
    builder = top.builder
    block = live(builder.block, {*top.outputs, *top.exchanged}, builder.aliases)
    items = pack(builder, kernels_of(block, builder.aliases))
    fixed = {buffer: layout.default_layout(buffer.shape, buffer.dtype) for buffer in top.host_buffers(items)}
    items = rebase(builder, items, fixed)
    repeats = target.cores == 1 and not target.lx_windows
    layouts = search(items, fixed, repeats)
    items = Restickifier(builder, items, layouts, repeats).run(items)
    items = Padder(builder, layouts).run(items)
    items, splits = divide_sums(builder, items, layouts, target)
    counted = top.launch(items).counts
    windows = (lambda loop: loop not in counted) if target.lx_windows else None
    items, plan = _planned(builder, items, layouts, splits, list(fixed), target, windows)
    used = {operand.buffer for kernel in kernels(items) for operand in kernel.operands}
    numbers = {buffer: number for number, buffer in enumerate(b for b in fixed if b.role in ("input", "output"))}
    launch = top.launch(items)
    emitter = Emitter(layouts, splits, lambda b: _allocation(plan, b), numbers, lambda b: _per_tile(plan, b), launch)
    constants = [b for b in used if b.role in ("constant", "parameter")]
    constants.sort(key=lambda b: plan.hbm[b])
    arguments = [_argument(b, layouts, plan, numbers, top) for b in [*fixed, *constants]]
    tensors = {b.name: Constant(b.name, builder.constants[b].detach()) for b in constants}
    tensors |= {name: Constant(name, tensor.detach()) for name, tensor in top.host_constants.items()}
    return Lowered(
        target=target,
        inputs=top.input_names,
        outputs=tuple(outputs),
        arguments=tuple(arguments),
        constants=tuple(tensors.values()),
        steps=tuple(_steps(items, emitter)),
        in_spec=top.in_spec,
        out_spec=top.out_spec,
        input_types=top.input_types,
        sizes=tuple(_launch_sizes(launch, top, separate_symbols(items, launch.extents, launch.counts))),
        notes={
            "lx_bytes": plan.lx_bytes,
            "lx_bound": plan.lx_bound,
            "pool_bytes": plan.pool_bytes,
            "pool_bound": plan.pool_bound,
        },
    )


def _planned(
    builder: Builder,
    items: list[Item],
    layouts: Layouts,
    splits: dict[Kernel, Splits],
    fixed: list[Buffer],
    target: Target,
    windows: Windows | None,
) -> tuple[list[Item], Plan]:
    """The program with tiles held in LX as far as there is room, and where everything lies."""
    refused: set[Any] = set()
    moved = {kernel.output.buffer for kernel in kernels(items) if kernel.op == RESTICKIFY}
    first = plan_memory(items, layouts, splits, fixed, target, moved, windows)
    windowed = [buffer for buffer in first.lx if not first.lives[buffer].fixed]
    while target.lx_planning:
        holder = Holder(builder, layouts, splits, refused, first.lx)
        held = holder.run(items)
        stager = Stager(builder, layouts, splits, refused, windowed, holder.copied)
        staged = stager.run(held)
        spreader = Spreader(builder, layouts, splits, refused, first.lx)
        staged = spreader.run(staged)
        tiles = {**holder.tiles, **stager.tiles, **spreader.tiles}
        plan = plan_memory(staged, layouts, splits, fixed, target, moved | tiles.keys(), windows)
        missing = {key for tile, key in tiles.items() if tile not in plan.lx}
        if not missing:
            return staged, plan
        refused |= missing
    return items, plan_memory(items, layouts, splits, fixed, target, moved, windows)


def _allocation(plan: Plan, buffer: Buffer) -> dict[str, int]:
    return {"lx": plan.lx[buffer]} if buffer in plan.lx else {"hbm": plan.hbm[buffer]}


def _per_tile(plan: Plan, buffer: Buffer) -> bool:
    return buffer.role == "internal" and bool(plan.lives[buffer].home) and plan.lives[buffer].fixed


def _argument(buffer: Buffer, layouts: Layouts, plan: Plan, numbers: dict[Buffer, int], top: Top) -> Argument:
    return Argument(
        name=buffer.name,
        role="internal" if buffer.role == "exchange" else "constant" if buffer.role == "parameter" else buffer.role,
        arg_index=numbers.get(buffer, -1),
        shape=buffer.shape,
        stride=top.strides.get(buffer, layout.device_strides(buffer.shape)),
        dtype=buffer.dtype,
        layout=layouts[buffer],
        address=plan.hbm[buffer],
    )


def _launch_sizes(launch: Launch, top: Top, separate: Collection[str]) -> Iterator[LaunchSize]:
    """The sizes that may differ from launch to launch, and where inputs and outputs have them."""
    places: dict[str, list[tuple[str, int, int, int]]] = {symbol: [] for symbol in launch.largest}
    for name, dim, symbol in top.input_sizes:
        places[symbol].append((name, dim, 1, 1))
    for buffer in top.outputs:
        for dim, extent in launch.extents.get(buffer, {}).items():
            places[extent.symbol].append((buffer.name, dim, extent.share.numerator, extent.share.denominator))
    for symbol, largest in launch.largest.items():
        yield LaunchSize(symbol, largest, launch.multiples[symbol], tuple(places[symbol]), symbol in separate)


def _steps(items: Sequence[Item], emitter: Emitter) -> list[Step]:
    """Cut the program at host calls."""
    steps: list[Step] = []
    run: list[Item] = []

    def flush() -> None:
        if run:
            steps.append(DeviceStep(_name(run, len(steps)), unroll_windows(emitter.specs(run))))
            run.clear()

    for item in items:
        match item:
            case HostCall():
                flush()
                steps.append(HostStep(item.target, item.args, item.kwargs, item.results, item.origin, item.reasons))
            case Kernel() | KernelLoop():
                run.append(item)
    flush()
    return steps


def _name(items: list[Item], number: int) -> str:
    """``sdsc_fused_add_mul_0``: the first few ops of the program."""
    ops = list(dict.fromkeys(kernel.op for kernel in kernels(items)))[:4]
    return f"sdsc_fused_{'_'.join(ops)}_{number}"

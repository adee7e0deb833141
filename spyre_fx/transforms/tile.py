"""``tile``: rewrite groups of ops as counted loops over tiles.

y = relu(x @ w) @ v        ->        for each tile of rows:  y[tile] = relu(x[tile] @ w) @ v
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import fx

from spyre_fx.analysis.fake import check_graph, ensure_fake
from spyre_fx.analysis.regions import Dataflow
from spyre_fx.errors import TilingWarning
from spyre_fx.errors import tiling as messages
from spyre_fx.errors.calls import checked_call
from spyre_fx.transforms.functional import make_functional
from spyre_fx.transforms.groups import ACCUMULATE, Accumulate
from spyre_fx.transforms.normalise import normalise, read_groups
from spyre_fx.transforms.replace import tile_levels
from spyre_fx.transforms.select import Asked
from spyre_fx.transforms.sized import has_run_time_sizes, tile_sized
from spyre_fx.transforms.skip import tile_legal, with_skipped


@checked_call
def tile(
    gm: fx.GraphModule,
    groups: Any,
    tiled_dims: Any = None,
    *,
    multiple_of: int = 1,
    strict: bool = False,
    on_error: str = "raise",
    accumulate: Accumulate = "float32",
) -> fx.GraphModule:
    """A new module in which each group of ops runs tile by tile, inside ``call_module(CountedLoop)`` nodes.

    Args:
        gm: a graph of ATen ops with ``meta["val"]`` on its nodes, as ``capture`` or ``make_fx`` gives it. It is not
            edited; parameters and buffers are shared with the result.
        groups: a list of ``(ops, count)``, ``(ops, count, dims)``, ``(ops, [(count, dims), ...])`` (a nest, outermost
            first) or ``LoopGroup``. ``ops`` are nodes, their names, or what ``spyre_fx.groups`` has: a predicate on
            nodes, the path of an ``nn.Module`` (a node of that name comes first), ``lines`` or ``every``. ``dims`` are
            positions in the iteration space of the group's first op (of ops chosen by meaning: the first that reads
            more than parameters), negative ones counted from its last axis, or ``{value: dim}``, where the path of a
            module stands for its last tensor; several dims of one level make a nest of ``count`` tiles each.
        tiled_dims: the ``dims`` of groups that give none; axis 0 by default.
        multiple_of: tiles are rounded up to a multiple of this many elements.
        strict: refuse counts that do not give equal tiles, instead of making a smaller last one.
        on_error: what a group does that cannot be tiled: ``"raise"``, or ``"skip"``, which leaves it untiled.
        accumulate: in what loops keep running sums of half-precision operands, in groups that do not say it themselves:
            ``"float32"``, which is rounded once at the end, or ``"operand"``, their own dtype. The latter takes half of
            the bytes and is rounded on every trip; so is what a softmax or an attention computes on its way to its
            sums. Means, norms, variances and products of all elements stay in float32.

    Rewrite:
        ``z = op2(op1(x, w))`` -> ``z = loop(x, w)``, where trip i of ``loop`` computes the i-th tile of ``z`` from the
        i-th tile of ``x``. A reduction over the tiled axis becomes a running value that the trips combine into.

    Sizes that only the run knows:
        Where ops of a group have symbolic sizes, a call of a ``SizedLoop`` takes their place. It makes its loops for
        the sizes of each call: tiles of ``ceil(size / count)`` elements and a smaller last one, and fewer tiles where
        a size does not fall into as many (``strict`` refuses such a size). Groups are checked at the traced sizes.

    Checks:
        All groups are checked before anything is returned; several problems are raised as one error. With ``"skip"``
        each group is checked by itself and with those accepted before it. ``meta["skipped_groups"]`` of the result
        holds a ``(position in groups, message)`` for each that was left out, and ``summary`` shows them.

    Raises:
        TilingError: a group is malformed, or cannot be tiled as asked, or ``accumulate`` is neither of the two; the
            message names the culprit.
        OptionError: ``on_error`` is neither of the two, or ``strict`` no bool.

    Warns:
        TilingWarning: every group was skipped, and the result is an untiled copy.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x, y: (x + y).relu())(torch.ones(8, 4), torch.ones(8, 4))
    >>> tiled = tile(gm, [(["add", "relu"], 4)])
    >>> [node.name for node in tiled.graph.nodes]
    ['x_1', 'y_1', 'loop_0', 'output']
    """
    if on_error not in ("raise", "skip"):
        raise messages.ON_ERROR(value=on_error)
    if not isinstance(strict, bool):
        raise messages.STRICT(value=strict)
    check_accumulate(accumulate, "tile")
    check_graph(gm)
    asked = read_groups(gm.graph, groups)

    def attempt(some: Sequence[Asked]) -> fx.GraphModule:
        return tile_groups(gm, some, tiled_dims, multiple_of, strict, accumulate)

    tiled, refused = (attempt(asked), []) if on_error == "raise" else tile_legal(asked, attempt)
    tiled.meta["group_reasons"] = tuple(map(str, getattr(groups, "reasons", ())))
    if refused and len(refused) == len(asked):
        reasons = "\n".join(reason for _, reason in refused)
        warnings.warn(messages.ALL_SKIPPED.format(reasons=reasons), TilingWarning, stacklevel=3)
    return with_skipped(tiled, refused)


def check_accumulate(accumulate: Any, function: str) -> None:
    """``TilingError`` for anything but ``"float32"`` and ``"operand"``."""
    if accumulate not in ACCUMULATE:
        raise messages.ACCUMULATE(value=accumulate, place=f"the call of {function}")


def tile_groups(
    gm: fx.GraphModule,
    groups: Sequence[Asked],
    tiled_dims: Any,
    multiple_of: int,
    strict: bool,
    accumulate: Accumulate = "float32",
) -> fx.GraphModule:
    """``tile`` for groups that were read: all of them, or an error."""
    # 1. A copy of our own, with all shapes known under one fake mode, and without needless writes.
    copied = ensure_fake(gm, compiled=False)
    nodes = dict(zip(gm.graph.nodes, copied.graph.nodes, strict=True))
    make_functional(copied.graph)
    flow = Dataflow()
    # 2. Every form of group becomes a tree of levels, one axis per level.
    levels = normalise(nodes, flow, groups, tiled_dims, multiple_of, accumulate)
    names = {level.group: tuple(op.name for op in level.ops) for level in levels}
    # 3. The axes are followed, the ops placed and the loops built: now, or by each loop when it learns its sizes.
    build = tile_sized if has_run_time_sizes(levels, flow) else tile_levels
    tiled = build(copied, levels, flow, strict)
    tiled.meta["group_ops"] = names
    return tiled

"""Products whose rows lie in the sticks, where a loop carries a value for each row.

    for k: s = q @ k[k].T; m = max(m, amax(s)); t = t * a + sum(exp(s - m)); o = o * a + exp(s - m) @ v[k]

With keys in the sticks of ``s``, each value of a row (``m``, ``t``, ``a``) fills a stick of its own, 64 times the room
and the work that it needs. As ``s.T = k @ q.T`` and ``o.T = v.T @ p.T`` all of them lie side by side. Then ``v`` is
moved to other sticks in the place of ``k``, and tiles of ``q`` and ``o`` as they come and go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.hoist import Hoist
from spyre_fx.codegen.kernels import Kernel, Operand
from spyre_fx.codegen.layout import Layout
from spyre_fx.codegen.stick_regions import Options, Order, users_of
from spyre_fx.codegen.sticks import SPARSE, Costs, Layouts, choose, dim_for, lane_of, lanes_wanted


def rows_in_sticks(order: Order, layouts: Layouts, options: Options, hoist: Hoist) -> Layouts:
    """``layouts`` with rows in the sticks of products, and of all that is worked out from them, where that spares a
    loop values of one element to a stick. It is for a single core, which moves tiles to other sticks in its scratchpad.

    Args:
        order: the ops that have an opinion, with the loops around each.
        options: for the buffers whose layout may change.
    """
    found = dict(layouts)
    search = _Search(order, options, hoist)
    for kernel, path in order:
        if kernel.kind is OpKind.MATMUL and path:
            for axis in sorted(kernel.output.axes & kernel.inputs[0].axes):
                region = search.around(kernel, axis, found)
                if region is not None:
                    found |= region
                    break
    return found


class _Search:
    def __init__(self, order: Order, options: Options, hoist: Hoist) -> None:
        self.options = options
        self.hoist = hoist
        self.paths = dict(order)
        self.users = users_of(order)
        self.cut = {operand.buffer for kernel, _ in order for operand in kernel.operands if operand.advance}
        """The buffers of which loops use tiles: these are moved as they come and go."""

    def around(self, product: Kernel, rows: int, layouts: Layouts) -> Layouts | None:
        """What takes other sticks along with the result of ``product`` with ``rows`` in them; None: nothing is to."""
        region = self._region(product, rows, layouts)
        if region is None or not self._spares(region, layouts):
            return None
        touched = dict.fromkeys(kernel for buffer in region for kernel in self.users[buffer])
        return region if self._can_run(touched, layouts | region) else None

    def _spares(self, region: Layouts, layouts: Layouts) -> bool:
        """Whether running values of a loop have one element to a stick, and would fill whole ones."""
        tails = [
            buffer.shape[layout.stick_dim] % layout.lanes
            for buffer, layout in region.items()
            if layouts[buffer].stick_dim == SPARSE != layout.stick_dim and len(self.hoist.writers[buffer]) > 1
        ]
        return bool(tails) and not any(tails)

    def _can_run(self, kernels: Iterable[Kernel], layouts: Layouts) -> bool:
        return all(choose(kernel, layouts, Costs(self.hoist, self.paths[kernel])) is not None for kernel in kernels)

    def _region(self, product: Kernel, rows: int, layouts: Layouts) -> Layouts | None:
        """The buffers that want other sticks once the result of ``product`` has rows in its own, as far as their
        layouts may change; None where one of them cannot.
        """
        region: Layouts = {}
        queue: deque[Buffer] = deque()
        asked: list[tuple[Operand, int | None]]
        asked = [(product.output, dim_for(product.output, rows, layouts[product.output.buffer].lanes))]
        while True:
            for operand, dim in asked:
                options = self.options.get(operand.buffer)
                if options is None or operand.buffer in self.cut:
                    continue
                if dim is None or dim not in options or region.get(operand.buffer, options[dim]) is not options[dim]:
                    return None
                if operand.buffer not in region:
                    region[operand.buffer] = options[dim]
                    queue.append(operand.buffer)
            if not queue:
                return region
            changed = queue.popleft()
            followed = (kernel for kernel in self.users[changed] if self._is_followed(kernel, region))
            asked = [each for kernel in followed for each in _asked(kernel, changed, region[changed], layouts)]

    def _is_followed(self, kernel: Kernel, region: Layouts) -> bool:
        """Whether an op changes along with a tensor: in a loop, or behind one if it takes nothing from elsewhere."""
        if self.paths[kernel]:
            return True
        own = (operand.buffer for operand in kernel.inputs if operand.digits)
        return kernel.kind is OpKind.POINTWISE and all(
            buffer in region or len(self.hoist.writers[buffer]) > 1 for buffer in own
        )


def _asked(kernel: Kernel, changed: Buffer, layout: Layout, layouts: Layouts) -> Iterator[tuple[Operand, int | None]]:
    """The stick dims that the other tensors of an op want, where ``changed`` has ``layout``."""
    mine = [position for position, operand in enumerate(kernel.operands) if operand.buffer is changed]
    axes = {lane_of(kernel.operands[position], layout) for position in mine}
    for lanes in lanes_wanted(kernel):
        wanted = (*lanes.inputs, lanes.output)
        if {wanted[position] for position in mine} == axes == {lanes.output}:
            for operand, axis in zip(kernel.operands, wanted, strict=True):
                if operand.buffer is not changed and operand.digits and axis != SPARSE:
                    yield operand, dim_for(operand, axis, layouts[operand.buffer].lanes)
            return

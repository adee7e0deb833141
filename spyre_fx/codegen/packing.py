"""Makes the reduced axes of a matmul one axis: the device reduces over a single dim.

    out[s, n] = attention[h, s, d] * weight[(h, d), n]   ->   out[s, n] = attention[s, k] * weight[k, n]

Where ``attention`` is ours it is laid out with h in front of d from the start; where it is the user's, or is cut
otherwise, it is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spyre_fx.codegen.access import Buffer
from spyre_fx.codegen.builder import Builder
from spyre_fx.codegen.device_ops import OpKind
from spyre_fx.codegen.kernels import Axis, Digit, Item, Kernel, KernelLoop, Operand, nested, rewritten
from spyre_fx.codegen.tree import HostCall


def pack(builder: Builder, items: list[Item]) -> list[Item]:
    """The tree with one reduced axis in every matmul."""
    fused = _fused_buffers(items)
    items = rewritten(items, lambda kernel: _on_fused(kernel, fused))
    return _packed(builder, items)


def _reduced(kernel: Kernel) -> list[int]:
    return [axis for axis, entry in enumerate(kernel.axes) if entry.reduced]


def _fused_buffers(items: list[Item]) -> dict[Buffer, tuple[Buffer, dict[int, tuple[int, int]]]]:
    """Internal buffers with the dims that some matmul reduces over drawn together: the new buffer, and for each old
    dim its new dim and step.
    """
    found: dict[Buffer, tuple[Buffer, dict[int, tuple[int, int]]]] = {}
    for kernel, _ in nested(items):
        reduced = _reduced(kernel)
        if kernel.kind is not OpKind.MATMUL or len(reduced) < 2:
            continue
        for operand in kernel.inputs:
            if operand.buffer.role == "internal" and operand.buffer not in found:
                fusion = _fusion(kernel, operand, reduced)
                if fusion is not None:
                    found[operand.buffer] = fusion
    return found


def _fusion(kernel: Kernel, operand: Operand, reduced: list[int]) -> tuple[Buffer, dict[int, tuple[int, int]]] | None:
    buffer = operand.buffer
    dims: list[int] = []
    for axis in reduced:
        own = [digit for digit in operand.digits if digit.axis == axis]
        whole = len(own) == 1 and own[0].step == 1 and kernel.axes[axis].extent == buffer.shape[own[0].dim]
        if not whole:
            return None
        dims.append(own[0].dim)
    if len(set(dims)) < len(dims):
        return None
    places: dict[int, tuple[int, int]] = {}
    groups: list[tuple[int, ...]] = []
    shape: list[int] = []
    for group in (*(tuple(d for d in group if d not in dims) for group in buffer.dim_groups), tuple(dims)):
        if group == tuple(dims):
            step = 1
            for dim in reversed(dims):
                places[dim] = (len(shape), step)
                step *= buffer.shape[dim]
            groups.append((len(shape),))
            shape.append(step)
        elif group:
            groups.append(tuple(range(len(shape), len(shape) + len(group))))
            for dim in group:
                places[dim] = (len(shape), 1)
                shape.append(buffer.shape[dim])
    return replace(buffer, shape=tuple(shape), groups=tuple(groups), levels=()), places


def _on_fused(kernel: Kernel, fused: Mapping[Buffer, tuple[Buffer, dict[int, tuple[int, int]]]]) -> Kernel:
    def over(operand: Operand) -> Operand:
        if operand.buffer not in fused:
            return operand
        buffer, places = fused[operand.buffer]

        def moved(steps: tuple[int, ...]) -> tuple[int, ...]:
            found = [0] * len(buffer.shape)
            for dim, step in enumerate(steps):
                found[places[dim][0]] += step * places[dim][1]
            return tuple(found)

        digits = tuple(
            replace(digit, dim=places[digit.dim][0], step=digit.step * places[digit.dim][1]) for digit in operand.digits
        )
        advance = tuple((loop, moved(steps)) for loop, steps in operand.advance)
        return Operand(buffer, moved(operand.offset), digits, advance)

    return replace(kernel, inputs=tuple(map(over, kernel.inputs)), output=over(kernel.output))


def _packed(builder: Builder, items: list[Item]) -> list[Item]:
    result: list[Item] = []
    for item in items:
        match item:
            case KernelLoop(loop=loop, body=body):
                result.append(KernelLoop(loop, _packed(builder, body)))
            case Kernel(kind=OpKind.MATMUL) if len(_reduced(item)) > 1:
                for position, operand in enumerate(item.inputs):
                    if not _nests(item, operand):
                        copy, operand = _copy(builder, item, operand)
                        inputs = (*item.inputs[:position], operand, *item.inputs[position + 1 :])
                        result.append(copy)
                        item = replace(item, inputs=inputs)
                result.append(_merged(item))
            case Kernel() | HostCall():
                result.append(item)
    return result


def _nests(kernel: Kernel, operand: Operand) -> bool:
    """Whether the reduced axes run over consecutive elements of one buffer dim, the last one fastest; or over none, as
    in what the product is added to.
    """
    own = {digit.axis: digit for digit in operand.digits}
    if own.keys().isdisjoint(_reduced(kernel)):
        return True
    step, dims = 1, set()
    for axis in reversed(_reduced(kernel)):
        if axis not in own or own[axis].step != step:
            return False
        step *= kernel.axes[axis].extent
        dims.add(own[axis].dim)
    return len(dims) == 1


def _copy(builder: Builder, kernel: Kernel, operand: Operand) -> tuple[Kernel, Operand]:
    """Copy ``operand`` to a buffer in which it nests."""
    reduced = _reduced(kernel)
    kept = [axis for axis in sorted(operand.axes) if axis not in reduced]
    axes = [*kept, *reduced]
    total = 1
    digits: list[Digit] = []
    for axis in reversed(reduced):
        extent = kernel.axes[axis].extent
        digits.append(Digit(axis, len(kept), total, extent))
        total *= extent
    digits += [Digit(axis, dim, 1, kernel.axes[axis].extent) for dim, axis in enumerate(kept)]
    shape = (*(kernel.axes[axis].extent for axis in kept), total)
    made = Buffer(builder.unique(operand.buffer.name), shape, operand.buffer.dtype)
    target = Operand(made, (0,) * len(shape), tuple(digits))
    number = {axis: position for position, axis in enumerate(axes)}

    def over(one: Operand) -> Operand:
        return replace(one, digits=tuple(replace(digit, axis=number[digit.axis]) for digit in one.digits))

    entries = tuple(Axis(kernel.axes[axis].extent, False, kernel.axes[axis].levels) for axis in axes)
    copy = Kernel("identity", OpKind.POINTWISE, entries, (over(operand),), over(target), {}, kernel.origin)
    return copy, target


def _merged(kernel: Kernel) -> Kernel:
    reduced = _reduced(kernel)
    last = reduced[-1]
    extent = 1
    for axis in reduced:
        extent *= kernel.axes[axis].extent
    first = reduced[0]

    def over(operand: Operand) -> Operand:
        digits = tuple(
            replace(digit, axis=first, extent=extent) if digit.axis == last else digit
            for digit in operand.digits
            if digit.axis not in reduced[:-1]
        )
        return replace(operand, digits=digits)

    levels = frozenset().union(*(kernel.axes[axis].levels for axis in reduced))
    axes = (*kernel.axes[:first], Axis(extent, True, levels))
    return replace(kernel, axes=axes, inputs=tuple(map(over, kernel.inputs)), output=kernel.output)

"""The catalogue of kernels: what the planner knows of a custom op beside its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from spyre_fx.analysis.iteration import OpCall
from spyre_fx.analysis.iteration_space import call_of
from spyre_fx.analysis.schedule.counting import saturating_add, saturating_mul
from spyre_fx.analysis.schedule.operand_effects import Effect, kernel_op
from spyre_fx.errors.calls import checked_call
from spyre_fx.errors.schedule import KERNEL_EFFECT, KERNEL_OUTPUTS, KERNEL_REUSE, KERNEL_TWICE, NOT_AN_OP
from spyre_fx.torch_compat import CustomOpDef

Shape = tuple[int, ...]


@dataclass(frozen=True)
class KernelReduction:
    """A reduction inside a kernel: its name and the extents that one pass of it runs over."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class KernelReuse:
    """The reduction ``reduction`` is carried out once for each element of ``shape``.

    A product of [M, K] and [K, N] reduces ``KernelReduction("k", (K,))`` for each element of (M, N).
    """

    reduction: str
    shape: Shape


@dataclass(frozen=True)
class KernelDescriptor:
    """What a kernel makes and how much work that is.

    args:
        outputs: the shape of each result.
        reductions: what it reduces inside.
        reuse: how often each reduction is repeated; once for each element of the first output where none is given.
        effects: ``"read"``, ``"write"``, ``"read_write"`` or ``"none"`` for arguments by name, where the schema says
            too little (it has one mark, ``(a!)``, for an operand that is only written and for one that is also read).

    errors: ``SpecError`` for a reuse of a reduction that is not there, or an unknown effect.

    >>> product = KernelDescriptor([(4, 16)], [KernelReduction("k", (8,))], [KernelReuse("k", (4, 16))])
    >>> product.estimated_element_ops()
    1024
    """

    outputs: Sequence[Shape]
    reductions: Sequence[KernelReduction] = ()
    reuse: Sequence[KernelReuse] = ()
    effects: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", tuple(tuple(shape) for shape in self.outputs))
        object.__setattr__(self, "reductions", tuple(self.reductions))
        object.__setattr__(self, "reuse", tuple(self.reuse))
        object.__setattr__(self, "effects", MappingProxyType(dict(self.effects)))
        known = [reduction.name for reduction in self.reductions]
        for reuse in self.reuse:
            if reuse.reduction not in known:
                raise KERNEL_REUSE(name=reuse.reduction, known=known or "no reductions")
        allowed = [effect.value for effect in Effect]
        for argument, effect in self.effects.items():
            if effect not in allowed:
                raise KERNEL_EFFECT(effect=effect, argument=argument, allowed=allowed)

    def estimated_element_ops(self) -> int:
        """One op per output element; with reductions, a multiply and an add per step of each, stopping at 2**64 - 1."""
        if not self.reductions:
            return saturating_add(*(saturating_mul(*shape) for shape in self.outputs))
        return saturating_add(*(self._reduction_ops(reduction) for reduction in self.reductions))

    def _reduction_ops(self, reduction: KernelReduction) -> int:
        repeats = [reuse.shape for reuse in self.reuse if reuse.reduction == reduction.name] or self.outputs[:1]
        return saturating_mul(2, *reduction.shape, *(extent for shape in repeats for extent in shape))

    @property
    def units(self) -> int:
        """The size of the description, for the bound on planning work."""
        shapes = (*self.outputs, *(r.shape for r in self.reductions), *(r.shape for r in self.reuse))
        return 1 + len(self.effects) + sum(1 + len(shape) for shape in shapes)


Describe = Callable[[OpCall], KernelDescriptor]


class Catalogue:
    """Descriptors by op."""

    def __init__(self) -> None:
        self._entries: dict[OpOverload, KernelDescriptor | Describe] = {}

    def register(self, op: OpOverload, descriptor: KernelDescriptor | Describe) -> None:
        if self._entries.setdefault(op, descriptor) != descriptor:
            raise KERNEL_TWICE(op=op)

    def entry(self, node: fx.Node) -> KernelDescriptor | Describe | None:
        """What is registered for the op that ``node`` calls."""
        op = kernel_op(node)
        return None if op is None else self._entries.get(op)

    def describe(self, node: fx.Node) -> KernelDescriptor | None:
        """The descriptor of one call; ``SpecError`` where it does not fit the call's results."""
        entry = self.entry(node)
        descriptor = entry if entry is None or isinstance(entry, KernelDescriptor) else entry(call_of(node))
        if descriptor is not None:
            _check(node, descriptor)
        return descriptor


def _check(node: fx.Node, descriptor: KernelDescriptor) -> None:
    op, call = kernel_op(node), call_of(node)
    names = [] if op is None else [argument.name for argument in op._schema.arguments]
    for argument, effect in descriptor.effects.items():
        if argument not in names:
            raise KERNEL_EFFECT(node=node, effect=effect, argument=argument, allowed=names)
    actual = [tuple(result.shape) for result in call.results]
    if op is node.target and list(descriptor.outputs) != actual:
        raise KERNEL_OUTPUTS(node=node, op=op, described=list(descriptor.outputs), actual=actual)


CATALOGUE = Catalogue()
"""The kernels of this process, as ``torch.library`` has the ops of this process: custom ops are never unregistered."""


@checked_call
def register_kernel(op: Any, descriptor: KernelDescriptor | Describe) -> None:
    """Tell the planner what a custom op computes.

    args:
        op: an ``OpOverload`` (``torch.ops.mylib.scale.default``), its packet if that has one overload, or what
            ``torch.library.custom_op`` returns.
        descriptor: a ``KernelDescriptor``, or a function from the call to one, for a kernel of many shapes. The call
            (``OpCall``) has ``operands`` and ``results`` with their shapes, and ``argument(name)``.

    errors: ``SpecError`` where ``op`` is no op, or has another descriptor already.

    >>> import torch
    >>> @torch.library.custom_op("spyre_fx_doc::product", mutates_args=())
    ... def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    ...     return a @ b
    >>> def describe(call):
    ...     (m, k), (_, n) = (operand.shape for operand in call.operands)
    ...     return KernelDescriptor([(m, n)], [KernelReduction("k", (k,))], [KernelReuse("k", (m, n))])
    >>> register_kernel(product, describe)
    """
    CATALOGUE.register(_overload(op), descriptor)


def _overload(op: Any) -> OpOverload:
    match op:
        case OpOverload():
            return op
        case OpOverloadPacket() if len(names := op._overload_names) == 1:
            overload: OpOverload = getattr(op, names[0] or "default")
            return overload
        case CustomOpDef():
            return op._opoverload
        case _:
            raise NOT_AN_OP(found=type(op).__name__)

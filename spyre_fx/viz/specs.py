"""Diagrams of lowered programs: ops and loops as the device runs them, buffers told apart by memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.listing import host_name
from spyre_fx.codegen.lowered import DeviceStep, HostStep, Lowered, Value
from spyre_fx.codegen.memory_map import ops_of
from spyre_fx.codegen.source import print_spec
from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg
from spyre_fx.shows import counted
from spyre_fx.viz.diagram import VALUES, Box, Diagram, Link
from spyre_fx.viz.loop_texts import loop_texts

Place = tuple[str, int]
"""A buffer: its memory and its address."""


@dataclass(frozen=True)
class Buffer:
    """What a picture says of a buffer: its name, where it lies and its layout, and how it moves with each loop."""

    name: str
    facts: tuple[str, ...] = ()
    advance: tuple[int, ...] = ()
    is_result: bool = False

    def box(self, place: Place, depth: int) -> Box:
        """The buffer as what is read first inside of ``depth`` loops: there, only how it moves with the innermost."""
        if not depth:
            return Box(self.name, self.facts, "input")
        step = self.advance[depth - 1] if len(self.advance) >= depth else 0
        moves = f"+ {step} B per trip" if step else "the same in each trip"
        return Box(self.name, (f"{VALUES[place[0]][2]} {moves}",), "input", "\n".join(self.facts))


@dataclass
class Part:
    """One box of a program, the buffers that it reads before it writes them, and those that it writes."""

    box: Box
    reads: dict[Place, Buffer] = field(default_factory=dict)
    writes: dict[Place, Buffer] = field(default_factory=dict)


def spec_diagram(specs: Sequence[Spec], title: str = "", texts: Mapping[int, str] | None = None) -> Diagram:
    """Ops top to bottom in the order of execution, with links from the op that last wrote a buffer to its readers.

    args:
        texts: the MLIR of loops, by the identity of their specs.
    """
    return _with_results(*_diagram([_part(spec, texts or {}) for spec in specs], title))


def bundle_diagram(bundle: Bundle, title: str = "") -> Diagram:
    """All steps of a bundle; a bundle of one program shows its ops right away."""
    steps, texts = bundle.lowered.steps, dict(loop_texts(bundle))
    match steps:
        case (DeviceStep(name, specs),):
            return spec_diagram(specs, title or name, texts)
    return _with_results(*_diagram([_step(step, bundle.lowered, texts) for step in steps], title))


def _diagram(parts: Sequence[Part], title: str = "", depth: int = 0) -> tuple[Diagram, dict[Place, tuple[int, Buffer]]]:
    """The diagram of ``parts`` and who wrote each buffer last. What is read first stands at the top as a box."""
    written: set[Place] = set()
    first: list[tuple[Place, Box]] = []
    for part in parts:
        first += [(p, one.box(p, depth)) for p, one in part.reads.items() if p not in written and p[0] == "hbm"]
        written.update([*part.reads, *part.writes])
    diagram = Diagram([box for _, box in first], [], title)
    source = {place: position for position, (place, _) in enumerate(first)}
    writer: dict[Place, tuple[int, Buffer]] = {}
    for part in parts:
        index = diagram.add(part.box)
        diagram.links += [_link(source[place], index, place) for place in part.reads if place in source]
        source.update(dict.fromkeys(part.writes, index))
        writer.update((place, (index, one)) for place, one in part.writes.items())
    return diagram, writer


def _with_results(diagram: Diagram, writer: Mapping[Place, tuple[int, Buffer]]) -> Diagram:
    """A box at the bottom for each result of the graph."""
    for place, (source, one) in writer.items():
        if one.is_result:
            diagram.links.append(_link(source, diagram.add(Box(one.name, one.facts, "output")), place))
    return diagram


def _link(source: int, target: int, place: Place) -> Link:
    memory, address = place
    return Link(source, target, f"{memory} {address:#x}", memory)


def _part(spec: Spec, texts: Mapping[int, str], depth: int = 0) -> Part:
    match spec:
        case LoopSpec(count, body):
            inner = [_part(one, texts, depth + 1) for one in body]
            inside, _ = _diagram(inner, depth=depth + 1)
            box = Box(
                f"{spec.name or 'loop'}: {counted(count, 'trip')}", (), "loop", inside=inside, nodes=_names([spec])
            )
            part = _joined(box, inner)
        case OpSpec():
            part = Part(_op_box(spec))
            for argument in spec.args:
                place = next(iter(argument.allocation.items()))
                if argument.is_input:
                    part.reads.setdefault(place, _buffer(argument))
                else:
                    part.writes[place] = _buffer(argument)
        case _:
            return Part(Box(spec.op, ("on the host",), "host"))
    part.box.detail = "\n\n".join([*([texts[id(spec)]] if id(spec) in texts else []), print_spec(spec)])
    return part


def _joined(box: Box, parts: Iterable[Part]) -> Part:
    whole = Part(box)
    for part in parts:
        for place, one in part.reads.items():
            if place not in whole.writes:
                whole.reads.setdefault(place, one)
        whole.writes |= part.writes
    return whole


def _op_box(spec: OpSpec) -> Box:
    ranges = ", ".join(
        f"{symbol}: {size}" + (f" on {split} cores" if split > 1 else "")
        for symbol, (size, split) in spec.iteration_space.items()
    )
    kind = "matmul" if "matmul" in spec.op else "reduction" if spec.is_reduction else "pointwise"
    outputs = tuple(
        f"→ {VALUES[memory][2]} {argument.name or memory} {list(argument.device_size)} at {address:#x}"
        for argument in spec.args
        if not argument.is_input
        for memory, address in argument.allocation.items()
    )
    return Box(spec.op, (*([ranges] if ranges else []), *outputs), kind, spec.origin, nodes=_names([spec]))


def _buffer(argument: TensorArg) -> Buffer:
    ((memory, address),) = argument.allocation.items()
    name = argument.name or (f"argument {argument.arg_index}" if argument.arg_index >= 0 else "constant")
    facts = (f"{VALUES[memory][2]} {memory} {address:#x}", f"{list(argument.device_size)} {argument.device_dtype}")
    return Buffer(name, facts, argument.advance, not argument.is_input and argument.arg_index >= 0)


def _step(step: DeviceStep | HostStep, lowered: Lowered, texts: Mapping[int, str]) -> Part:
    match step:
        case DeviceStep(name, specs):
            parts = [_part(spec, texts) for spec in specs]
            return _joined(Box(name, (), "step", inside=_diagram(parts)[0], nodes=_names(specs)), parts)
        case HostStep():
            address = {one.name: one.address for one in lowered.arguments}
            part = Part(Box(host_name(step), ("on the host",), "host", step.origin))
            for one in [*step.args, *step.kwargs.values()]:
                if isinstance(one, Value) and one.name in address:
                    part.reads["hbm", address[one.name]] = _host_buffer(one.name, address[one.name])
            part.writes = {
                ("hbm", address[name]): _host_buffer(name, address[name]) for name in step.results if name in address
            }
            return part


def _host_buffer(name: str, address: int) -> Buffer:
    return Buffer(name, (f"{VALUES['hbm'][2]} hbm {address:#x}",))


def origin_name(spec: OpSpec) -> str:
    """The graph node that an op comes from; empty where none is known."""
    head = spec.origin.split(" ", 1)[0]
    return head.removeprefix("%") if head.startswith("%") else ""


def _names(specs: Sequence[Spec]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in map(origin_name, ops_of(specs)) if name))

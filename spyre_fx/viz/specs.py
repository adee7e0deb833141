"""Diagrams of lowered programs: ops and loops as the device runs them, buffers told apart by memory."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_fx.codegen.specs import LoopSpec, OpSpec, Spec, TensorArg
from spyre_fx.viz.diagram import Box, Diagram, Link


def spec_diagram(specs: Sequence[Spec], title: str = "") -> Diagram:
    """Ops top to bottom in the order of execution, with links from the op that last wrote a buffer to its readers."""
    diagram = Diagram(title=title)
    writer: dict[tuple[str, int], int] = {}
    for spec in specs:
        index = diagram.add(_box(spec))
        reads, writes = _buffers(spec)
        for key, argument in reads.items():
            memory, address = key
            if key not in writer:
                if memory == "hbm":
                    writer[key] = _source(diagram, argument, address)
                else:
                    continue
            if writer[key] != index:
                diagram.links.append(Link(writer[key], index, f"{memory} {address:#x}", memory))
        writer.update(dict.fromkeys(writes, index))
    return _forward(diagram)


def _source(diagram: Diagram, argument: TensorArg, address: int) -> int:
    name = argument.name or (f"argument {argument.arg_index}" if argument.arg_index >= 0 else "constant")
    return diagram.add(
        Box(name, (f"hbm {address:#x}", f"{list(argument.device_size)} {argument.device_dtype}"), "input")
    )


def _forward(diagram: Diagram) -> Diagram:
    """The same diagram with the buffers that are read first moved to the top."""
    order = sorted(range(len(diagram.boxes)), key=lambda index: (diagram.boxes[index].kind != "input", index))
    place = {index: position for position, index in enumerate(order)}
    links = [Link(place[link.source], place[link.target], link.label, link.kind) for link in diagram.links]
    return Diagram([diagram.boxes[index] for index in order], links, diagram.title)


def _box(spec: Spec) -> Box:
    match spec:
        case LoopSpec(count, body):
            return Box(f"loop: {count} trips", (), "loop", inside=spec_diagram(body))
        case OpSpec():
            ranges = ", ".join(f"{symbol}: {size}/{split}" for symbol, (size, split) in spec.iteration_space.items())
            output = spec.args[-1]
            memory, address = next(iter(output.allocation.items()))
            kind = "matmul" if "matmul" in spec.op else "reduction" if spec.is_reduction else "pointwise"
            mark = "◆" if memory == "lx" else "◇"
            return Box(spec.op, (ranges, f"{mark} {memory} {address:#x} {list(output.device_size)}"), kind, spec.origin)
        case _:
            return Box(spec.op, ("on the host",), "host")


def _buffers(spec: Spec) -> tuple[dict[tuple[str, int], TensorArg], list[tuple[str, int]]]:
    """What a spec reads before it writes it, and what it writes, by (memory, address)."""
    reads: dict[tuple[str, int], TensorArg] = {}
    writes: list[tuple[str, int]] = []
    match spec:
        case LoopSpec(_, body):
            for inner in body:
                inner_reads, inner_writes = _buffers(inner)
                reads |= {key: value for key, value in inner_reads.items() if key not in writes and key not in reads}
                writes += inner_writes
        case OpSpec():
            for argument in spec.args:
                key = next(iter(argument.allocation.items()))
                if argument.is_input:
                    reads.setdefault(key, argument)
                else:
                    writes.append(key)
    return reads, writes

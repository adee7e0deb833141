"""What the device refuses: each access that hardware would answer with garbage."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from spyre_fx.codegen.program import Execute
from spyre_fx.codegen.specs import OpSpec
from spyre_fx.errors import DeviceError
from spyre_fx.simulator.interpreter import Interpreter
from spyre_fx.simulator.loading import LoadedFor, load
from spyre_fx.target import GIB, Target
from tests.simulator.bench import C0, C1, C2, Bench, Buffer, loop, op

SHAPE = (64, 256)
ROWS = {C0: (64, 8), C1: (256, 1)}
BY_COLUMNS = {C0: (64, 1), C1: (256, 4)}


def ones(bench: Bench, name: str = "x") -> Buffer:
    return bench.tensor(name, torch.ones(SHAPE, dtype=torch.float16))


def copy(bench: Bench, source: Buffer, target: Buffer, space: dict = ROWS) -> OpSpec:  # type: ignore[type-arg]
    return op("identity", space, bench.arg(source, (C0, C1)), bench.arg(target, (C0, C1), output=True))


def test_bytes_that_nobody_wrote() -> None:
    bench = Bench()
    source, target = bench.buffer("source", SHAPE), bench.buffer("target", SHAPE)
    words = r"identity \(sdsc_0.json\), Tensor0 'source', core 0, HBM address 0x0 reads bytes that were never written"
    with pytest.raises(DeviceError, match=words):
        bench.run(copy(bench, source, target))


def test_the_host_reads_only_what_was_written() -> None:
    bench = Bench()
    with pytest.raises(DeviceError, match="host read of 'out'"):
        bench.read(bench.buffer("out", SHAPE))


def test_a_write_outside_every_allocation() -> None:
    bench = Bench()
    source = ones(bench)
    lost = dataclasses.replace(source, name="lost", address=1 << 20)
    bench.buffers.append(lost)
    with pytest.raises(DeviceError, match=r"touches HBM bytes 0x100000 to 0x108000. Expected a range inside one alloc"):
        bench.run(copy(bench, source, lost))


def test_a_stride_that_leaves_the_buffer() -> None:
    bench = Bench()
    source, target = ones(bench), bench.buffer("target", SHAPE)
    space = {C0: (32, 8), C1: (256, 1)}
    stride = 32 * 128
    body = op(
        "identity", space, bench.arg(source, (C0, C1), (stride,)), bench.arg(target, (C0, C1), (stride,), output=True)
    )  # fmt: skip
    bench.run(loop(2, body))
    assert torch.equal(bench.read(target), torch.ones(SHAPE, dtype=torch.float16))
    with pytest.raises(DeviceError, match=r"trip 2 of i_0\), Tensor0 'x', core 0 touches HBM bytes 0x2000 to 0x9000"):
        bench.run(loop(3, body))


def test_a_range_over_two_segments_or_outside_hbm() -> None:
    device = Bench().device
    device.allocate(15 * GIB, 1 << 20, "near the end")
    with pytest.raises(DeviceError, match="allocation of 'crossing'"):
        device.allocate(16 * GIB - 4096, 8192, "crossing")
    with pytest.raises(DeviceError, match="allocation of 'beyond'"):
        device.allocate(7 * 16 * GIB, 128, "beyond")


def test_memory_is_made_as_it_is_used() -> None:
    bench = Bench()
    bench.free = 3 * 16 * GIB
    source, target = ones(bench), bench.buffer("target", SHAPE)
    bench.run(copy(bench, source, target))
    assert torch.equal(bench.read(target), torch.ones(SHAPE, dtype=torch.float16))


@pytest.mark.parametrize("space", [BY_COLUMNS, {C0: (64, 4), C1: (256, 1)}, {C0: (64, 16), C1: (256, 1)}])
def test_lx_serves_only_the_core_that_wrote(space: dict) -> None:  # type: ignore[type-arg]
    bench = Bench()
    source, target, y = ones(bench), bench.buffer("target", SHAPE), bench.lx("y", SHAPE)
    bench.run(copy(bench, source, y), copy(bench, y, target))
    with pytest.raises(DeviceError, match=r"Tensor0 'y', core \d+, LX address"):
        bench.run(copy(bench, source, y), copy(bench, y, target, space))


def test_another_layout_of_the_work_in_lx_finds_the_wrong_sticks() -> None:
    bench = Bench()
    source, target, y = ones(bench), bench.buffer("target", SHAPE), bench.lx("y", SHAPE)
    with pytest.raises(DeviceError, match="the stick that this core wrote itself"):
        bench.run(copy(bench, source, y, {C0: (64, 4), C1: (256, 1)}), copy(bench, y, target, BY_COLUMNS))


def test_an_unsplit_value_is_in_the_lx_of_core_0_only() -> None:
    bench = Bench()
    source, target, y = ones(bench), bench.buffer("target", SHAPE), bench.lx("y", SHAPE)
    alone = {C0: (64, 1), C1: (256, 1)}
    bench.run(copy(bench, source, y, alone), copy(bench, y, target, alone))
    value, row = bench.tensor("value", torch.ones(256).half()), bench.lx("row", (256,))
    with pytest.raises(DeviceError, match="core 1, LX address 0x0 reads bytes that were never written"):
        bench.run(
            op("identity", {C1: (256, 1)}, bench.arg(value, (C1,)), bench.arg(row, (C1,), output=True)),
            op("identity", ROWS, bench.arg(row, (C1,)), bench.arg(target, (C0, C1), output=True)),
        )


def test_every_core_may_write_its_own_copy() -> None:
    bench = Bench()
    value = torch.randn(256).half()
    source, target = bench.tensor("row", value), bench.buffer("target", SHAPE)
    copies = bench.lx("copies", (256,))
    counters = bench.run(
        op("identity", ROWS, bench.arg(source, (C1,)), bench.arg(copies, (C1,), output=True)),
        op("identity", ROWS, bench.arg(copies, (C1,)), bench.arg(target, (C0, C1), output=True)),
    )
    assert torch.equal(bench.read(target), value.expand(SHAPE))
    assert counters.lx_bytes == 2 * 8 * 4 * 128


def test_lx_overflow() -> None:
    bench = Bench(Target(lx_bytes=(64 << 10) + (40 << 10)))
    assert bench.target.usable_lx_bytes == 32 << 10
    source, target = ones(bench), bench.buffer("target", SHAPE)
    alone = {C0: (64, 1), C1: (256, 1)}
    fits, not_any_more = bench.lx("fits", SHAPE), bench.lx("not_any_more", SHAPE, address=128)
    bench.run(copy(bench, source, fits, alone), copy(bench, fits, target, alone))
    with pytest.raises(DeviceError, match=r"LX bytes 128 to 32896. Expected at most the 32768 bytes"):
        bench.run(copy(bench, source, not_any_more, alone))


def test_lx_does_not_outlive_the_program() -> None:
    bench = Bench()
    source, target, y = ones(bench), bench.buffer("target", SHAPE), bench.lx("y", SHAPE)
    bench.run(copy(bench, source, y))
    with pytest.raises(DeviceError, match="never written"):
        bench.run(copy(bench, y, target))


def test_two_values_in_one_place() -> None:
    bench = Bench()
    source, target = ones(bench), bench.buffer("target", SHAPE)
    y, z = bench.lx("y", SHAPE), bench.lx("z", SHAPE)
    with pytest.raises(DeviceError, match=r"reads bytes of 'z'. Expected bytes of 'y'"):
        bench.run(copy(bench, source, y), copy(bench, source, z), copy(bench, y, target))


def test_two_values_that_overlap_are_seen_without_names() -> None:
    bench = Bench()
    source, target = ones(bench), bench.buffer("target", SHAPE)
    y, z = bench.lx("y", SHAPE), bench.lx("z", SHAPE, address=1024)
    program = bench.program(copy(bench, source, y), copy(bench, source, z), copy(bench, y, target))
    nameless = tuple(
        dataclasses.replace(step, values=()) if isinstance(step, Execute) else step for step in program.body
    )
    with pytest.raises(DeviceError, match="where stick"):
        bench.run_program(dataclasses.replace(program, body=nameless))


def test_two_cores_that_write_one_stick() -> None:
    bench = Bench()
    source, target = ones(bench), bench.buffer("target", SHAPE)
    program = bench.program(copy(bench, source, target))
    (data,) = program.files["sdsc_0.json"].values()
    (body,) = data["dscs_"][0].values()
    # A symbol of its own for each core, all bound to one address, takes away the distance between the slices.
    starts = body["scheduleTree_"][1]["startAddressCoreCorelet_"]["data_"]
    for core in range(8):
        starts[f"[{core}, 0, 0]"] = str(-10 - core)
    (step,) = program.body
    symbols = (-1, *(-10 - core for core in range(8)))
    changed = dataclasses.replace(step, operands=(step.operands[0], *step.operands[1:] * 8), symbol_ids=symbols)
    with pytest.raises(DeviceError, match=r"'target', core 1 starts at HBM address 0x8000. Expected 0x8400, where its"):
        bench.run_program(dataclasses.replace(program, body=(changed,)))


def test_cores_with_one_slice_start_at_one_address() -> None:
    bench = Bench()
    row = bench.tensor("row", torch.ones(256).half())
    target = bench.buffer("target", SHAPE)
    program = bench.program(
        op("identity", ROWS, bench.arg(row, (C1,)), bench.arg(target, (C0, C1), output=True)),
    )
    (data,) = program.files["sdsc_0.json"].values()
    (body,) = data["dscs_"][0].values()
    body["scheduleTree_"][0]["startAddressCoreCorelet_"]["data_"]["[3, 0, 0]"] = "-2"
    with pytest.raises(DeviceError, match=r"core 3 starts at HBM address 0x200. Expected 0x0"):
        bench.run_program(program)


def test_a_sparse_tensor_is_not_read_as_a_dense_one() -> None:
    bench = Bench()
    source, sums = ones(bench), bench.buffer("sums", (64,), order=(0, -1))
    dense = bench.buffer("dense", (64, 64))
    rows = {C0: (64, 1), C1: (256, 1)}
    bench.run(op("sum", rows, bench.arg(source, (C0, C1)), bench.arg(sums, (C0,), output=True)))
    wide = dataclasses.replace(bench.lx("sums", (64, 64)), lx=False, address=sums.address)
    bench.buffers[1] = wide
    with pytest.raises(DeviceError, match="reads 128 bytes of a stick of which 2 are valid"):
        bench.run(copy(bench, wide, dense, {C0: (64, 1), C1: (64, 1)}))


def test_an_address_between_sticks() -> None:
    bench = Bench()
    source, target = ones(bench), bench.buffer("target", SHAPE)
    shifted = dataclasses.replace(source, address=64)
    bench.buffers.append(shifted)
    with pytest.raises(DeviceError, match=r"starts at HBM address 0x40. Expected an address on a boundary of 128"):
        bench.run(copy(bench, shifted, target))


def test_what_a_trip_leaves_behind_is_dead() -> None:
    """The loop writes y before it reads it; an interpreter that turned the two round would read the trip before."""
    bench = Bench()
    source, target = ones(bench), bench.buffer("target", SHAPE)
    y = bench.tensor("y", torch.ones(SHAPE, dtype=torch.float16))
    program = bench.program(loop(2, copy(bench, source, y), copy(bench, y, target)))
    bench.run_program(program)
    loaded = load(program, {}, bench.target, number=0)
    (trips,) = loaded.body
    assert isinstance(trips, LoadedFor)
    trips.body.reverse()
    with pytest.raises(DeviceError, match=r"trip 1 of i_0.*reads bytes of a buffer whose life has ended"):
        Interpreter(loaded, bench.device.machine(loaded.lx_bytes), number=0).run()


def test_an_accumulator_lives_from_trip_to_trip() -> None:
    bench = Bench()
    source, total, target = ones(bench), bench.lx("total", SHAPE), bench.buffer("target", SHAPE)
    add = op(
        "add", ROWS, bench.arg(total, (C0, C1)), bench.arg(source, (C0, C1)), bench.arg(total, (C0, C1), output=True)
    )  # fmt: skip
    bench.run(copy(bench, source, total), loop(4, add), copy(bench, total, target))
    assert torch.equal(bench.read(target), torch.full(SHAPE, 5.0, dtype=torch.float16))


def test_a_window_of_a_value_in_lx() -> None:
    """Rows and columns that no core divides may be read in part; each core's slice of the others stays its own."""
    x = torch.randn(8, 64, 256).half()
    bench = Bench()
    source, y = bench.tensor("source", x), bench.lx("y", x.shape, address=256)
    rows, columns = bench.buffer("rows", (8, 32, 256)), bench.buffer("columns", (8, 64, 128))
    whole = {C0: (8, 8), C1: (64, 1), C2: (256, 1)}

    def read(target: Buffer, index: tuple, height: int, width: int) -> OpSpec:  # type: ignore[type-arg]
        space = {C0: (8, 8), C1: (height, 1), C2: (width, 1)}
        return op("identity", space, bench.arg(y, index), bench.arg(target, (C0, C1, C2), output=True))

    bench.run(
        op("identity", whole, bench.arg(source, (C0, C1, C2)), bench.arg(y, (C0, C1, C2), output=True)),
        read(rows, (C0, (C1, 32), C2), 32, 256),
        read(columns, (C0, C1, (C2, 128)), 64, 128),
    )
    assert torch.equal(bench.read(rows), x[:, 32:])
    assert torch.equal(bench.read(columns), x[:, :, 128:])


def test_a_value_in_lx_put_together_from_windows() -> None:
    top, bottom = torch.randn(2, 32, 256).half()
    bench = Bench()
    a, b, out = bench.tensor("top", top), bench.tensor("bottom", bottom), bench.buffer("out", SHAPE)
    y = bench.lx("y", SHAPE)
    half = {C0: (32, 1), C1: (256, 4)}
    bench.run(
        op("identity", half, bench.arg(a, (C0, C1)), bench.arg(y, (C0, C1), output=True)),
        op("identity", half, bench.arg(b, (C0, C1)), bench.arg(y, ((C0, 32), C1), output=True)),
        copy(bench, y, out, BY_COLUMNS),
    )
    assert torch.equal(bench.read(out), torch.cat([top, bottom]))

"""Liveness over the loop tree, on programs of a few steps."""

from __future__ import annotations

from spyre_fx.simulator.lifetimes import Loop, Range, Step, find_lifetimes


def write(low: int, high: int, memory: str = "lx", *, covered: bool = True, cores: int = 1) -> Range:
    return Range(low, high, memory, written=True, covered=covered, cores=cores)


def read(low: int, high: int, memory: str = "lx", cores: int = 1) -> Range:
    return Range(low, high, memory, written=False, cores=cores)


def step(*ranges: Range) -> Step:
    return Step(ranges)


def test_a_value_lives_from_its_write_to_its_last_read() -> None:
    steps = [step(write(0, 100)), step(write(100, 300)), step(read(0, 100)), step(read(100, 300))]
    find_lifetimes(steps)
    assert [at.live_lx for at in steps] == [100, 300, 300, 200]


def test_what_each_trip_writes_anew_is_dead_between_trips() -> None:
    loop = Loop([step(write(0, 100)), step(read(0, 100), write(0, 64, "hbm"))])
    find_lifetimes([loop, step(read(0, 64, "hbm"))])
    assert loop.dead_between == [("hbm", 0, 64), ("lx", 0, 100)]
    assert loop.dead_after == [("lx", 0, 100)]


def test_what_is_read_before_it_is_written_is_carried() -> None:
    body = [step(read(0, 100), write(0, 100))]
    loop = Loop(list(body))
    find_lifetimes([step(write(0, 100)), loop, step(read(0, 100))])
    assert loop.dead_between == []
    assert loop.dead_after == []


def test_a_value_that_the_last_trip_leaves_is_alive_after_the_loop() -> None:
    loop = Loop([step(write(0, 100))])
    find_lifetimes([loop, step(read(0, 100))])
    assert loop.dead_between == [("lx", 0, 100)]
    assert loop.dead_after == []


def test_a_value_from_before_the_loop_lives_through_all_trips() -> None:
    middle = step(write(200, 300))
    loop = Loop([step(read(0, 100)), middle])
    find_lifetimes([step(write(0, 100)), loop])
    assert middle.live_lx == 200
    assert loop.dead_between == [("lx", 200, 300)]


def test_an_accumulator_of_the_inner_loop_dies_with_the_outer_trip() -> None:
    inner = Loop([step(read(0, 100), write(0, 100))])
    outer = Loop([step(write(0, 100)), inner, step(read(0, 100))])
    find_lifetimes([outer])
    assert inner.dead_between == []
    assert inner.dead_after == []
    assert outer.dead_between == [("lx", 0, 100)]


def test_a_write_that_leaves_holes_or_cores_out_ends_no_life() -> None:
    for partial in (write(0, 100, covered=False), write(0, 50), write(0, 100, cores=1)):
        loop = Loop([step(write(0, 100, cores=2)), step(partial), step(read(0, 100, cores=2))])
        middle = loop.body[1]
        assert isinstance(middle, Step)
        find_lifetimes([loop])
        assert middle.live_lx == 100
        assert loop.dead_between == [("lx", 0, 100)]


def test_a_partial_write_at_the_start_of_a_trip_leaves_the_rest_carried() -> None:
    loop = Loop([step(write(0, 50)), step(read(0, 100)), step(write(50, 100))])
    find_lifetimes([loop])
    assert loop.dead_between == [("lx", 0, 50)]

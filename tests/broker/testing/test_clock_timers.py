"""A manual clock: what it shows, and whom it wakes."""

import asyncio
import time

import pytest

from tidelog.broker.clock import FIRST_MS, LAST_MS, ClockRangeError, ManualClock, SystemClock

DAY_MS = 86_400_000


def test_it_stands_still_until_it_is_told():
    clock = ManualClock(-5)
    assert (clock.now_ms(), clock.rate) == (-5, 0)
    clock.step(7 * DAY_MS)
    assert clock.now_ms() == 7 * DAY_MS - 5
    clock.step(-8 * DAY_MS)
    assert clock.now_ms() == -DAY_MS - 5
    clock.set(LAST_MS)
    assert clock.now_ms() == LAST_MS
    clock.set(FIRST_MS)
    assert clock.now_ms() == FIRST_MS


def test_no_time_is_no_time_it_shows():
    """A stamp of -1 would say that the record has none."""
    clock = ManualClock(-2)
    clock.step(1)
    assert clock.now_ms() == 0
    clock.set(-1)
    assert clock.now_ms() == 0


@pytest.mark.parametrize("now_ms", [LAST_MS + 1, FIRST_MS - 1])
def test_what_no_clock_shows_is_refused_and_changes_nothing(now_ms):
    clock = ManualClock(3)
    for touch in (
        lambda: clock.set(now_ms),
        lambda: clock.step(now_ms - 3),
        lambda: clock.freeze(now_ms),
        lambda: clock.run(2, now_ms),
        lambda: ManualClock(now_ms),
    ):
        with pytest.raises(ClockRangeError, match="a clock shows times from -9223372036854775806"):
            touch()
    assert (clock.now_ms(), clock.rate) == (3, 0)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 2e9])
def test_a_rate_that_is_none(rate):
    with pytest.raises(ClockRangeError, match=r"expected a number above 0, at most 1e9"):
        ManualClock().run(rate)


@pytest.fixture
def machine(monkeypatch):
    """The machine's own clock, in the hand of the test."""

    class Machine:
        ns = 10**15

        def passes(self, seconds):
            self.ns += int(seconds * 1e9)

    found = Machine()
    monkeypatch.setattr(time, "monotonic_ns", lambda: found.ns)
    return found


def test_it_runs_at_a_rate(machine):
    clock = ManualClock(100)
    clock.run(1000)
    machine.passes(2.5)
    assert (clock.now_ms(), clock.steady_ms()) == (2_500_100, 2_500_000)
    clock.set(-7)  # and runs on
    machine.passes(1)
    assert clock.now_ms() == 999_993
    clock.step(-10)
    assert clock.now_ms() == 999_983
    clock.run(0.5, 0)
    machine.passes(1)
    assert clock.now_ms() == 500
    clock.freeze()
    machine.passes(1)
    assert (clock.now_ms(), clock.rate) == (500, 0)
    clock.freeze(-3)
    assert clock.now_ms() == -3


def test_at_the_end_of_time_it_stands_still(machine):
    clock = ManualClock(LAST_MS - 5)
    clock.run(1)
    machine.passes(1)
    assert clock.now_ms() == LAST_MS


def test_steady_time_counts_what_went_forward(machine):
    clock = ManualClock(1000)
    clock.step(50)
    clock.step(-1000)
    assert clock.steady_ms() == 50
    clock.set(2000)
    assert clock.steady_ms() == 50 + 1950
    clock.run(1, 0)
    machine.passes(0.25)
    assert clock.steady_ms() == 2000 + 250


async def test_a_step_wakes_who_waits_for_it_and_nothing_else_does():
    clock = ManualClock()
    waits = [asyncio.ensure_future(clock.reached(at_ms)) for at_ms in (100, 200)]
    await asyncio.sleep(0)
    clock.step(99)
    clock.step(-(10**9))
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    clock.step(1)
    await asyncio.wait_for(waits[0], 60)
    assert not waits[1].done()
    clock.step(DAY_MS)
    await asyncio.wait_for(waits[1], 60)
    await clock.reached(0)


async def test_a_clock_that_runs_wakes_in_its_own_time():
    clock = ManualClock()
    waiting = asyncio.ensure_future(clock.reached(7 * DAY_MS))
    await asyncio.sleep(0)
    clock.run(1e9)
    await asyncio.wait_for(waiting, 60)
    assert clock.steady_ms() >= 7 * DAY_MS


async def test_the_machines_clock():
    clock = SystemClock()
    before_ms = clock.steady_ms()
    await clock.reached(before_ms + 2)
    assert clock.steady_ms() >= before_ms + 2
    assert abs(clock.now_ms() / 1000 - time.time()) < 60


def test_a_leap_moves_the_clock_and_no_time_passes():
    clock = ManualClock(5)
    before = clock.reading()
    clock.step(DAY_MS)
    clock.leap(2 * DAY_MS)
    after = clock.reading()
    assert after.wall_ms == clock.now_ms() == 5 + 3 * DAY_MS
    assert after.elapsed_ms - before.elapsed_ms == clock.steady_ms() == DAY_MS
    clock.leap(-2 * DAY_MS)
    assert clock.reading() == after._replace(wall_ms=5 + DAY_MS)
    assert ManualClock(5).reading().boot_id != before.boot_id, "each process begins anew"


def test_readings_of_the_machine_name_its_start():
    one, other = SystemClock().reading(), SystemClock().reading()
    assert one.boot_id == other.boot_id != ""
    assert (
        0
        <= other.elapsed_ms - one.elapsed_ms
        == pytest.approx(other.wall_ms - one.wall_ms, abs=1000)
    )

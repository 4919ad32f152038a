"""What a watch of the clock has stored when a broker ends, whatever it was doing then."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from tidelog.broker.clock import ManualClock
from tidelog.broker.logs.maintenance.clock_watch import ClockWatch
from tidelog.broker.pools import Pool
from tidelog.storage.directory.clock_file import read_clock
from tidelog.storage.directory.opening_clock import OpeningClock
from tidelog.storage.filenames import CLOCK_CHECKPOINT, RECENT_CLOCK_CHECKPOINT
from tidelog.storage.time.trusted_clock import StepBack

NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def node(tmp_path):
    """What a watch needs of a node, without logs and groups."""
    maintenance = Pool("maintenance", 1)
    yield SimpleNamespace(
        clock=ManualClock(10 * MINUTE_MS),
        config=SimpleNamespace(clock_start_pause_ms=0),
        store=SimpleNamespace(log_dirs=[tmp_path], opened=list, clock=OpeningClock()),
        pools=SimpleNamespace(maintenance=maintenance),
        coordinator=SimpleNamespace(correct_times=AsyncMock()),
        metadata=SimpleNamespace(image=SimpleNamespace(topics={"t": None})),
    )
    maintenance.stop()


def test_a_step_that_only_the_end_sees_has_its_number_at_the_next_start(node, tmp_path):
    watch = ClockWatch(node)
    watch.begin()
    node.clock.leap(NEW_YEAR_MS)  # from 1970, which is trusted
    watch.end()
    again = ClockWatch(node)
    again.begin()
    ((number, step),) = again.history.steps
    assert (number, step.shift_ms) == (1, NEW_YEAR_MS)
    (tmp_path / RECENT_CLOCK_CHECKPOINT).unlink()
    stored, _ = read_clock(tmp_path)
    assert stored is not None, "it must outlive a power loss"
    assert stored.history == again.history


@pytest.mark.parametrize(
    ("lost", "has_topics", "is_said"),
    [
        ([CLOCK_CHECKPOINT, RECENT_CLOCK_CHECKPOINT], True, True),
        ([CLOCK_CHECKPOINT, RECENT_CLOCK_CHECKPOINT], False, False),
        ([RECENT_CLOCK_CHECKPOINT], True, False),
        ([CLOCK_CHECKPOINT], True, False),
    ],
)
def test_lost_files_are_said_where_topics_are_not_new(
    node, tmp_path, caplog, lost, has_topics, is_said
):
    node.metadata.image.topics.clear()
    watch = ClockWatch(node)
    watch.begin()
    asyncio.run(watch.store_if_changed())
    node.clock.step(MINUTE_MS)
    asyncio.run(watch.observe())
    asyncio.run(watch.store_if_changed())
    assert caplog.text == ""
    if has_topics:
        node.metadata.image.topics["t"] = None
    for name in lost:
        (tmp_path / name).unlink()
    ClockWatch(node).begin()
    said = "clock checkpoint missing"
    assert (said in caplog.text) == is_said
    assert len(caplog.records) == is_said


def test_steps_back_are_shown_after_a_restart(node):
    node.clock = ManualClock(NEW_YEAR_MS)
    watch = ClockWatch(node)
    watch.begin()
    node.clock.step(-HOUR_MS)
    asyncio.run(watch.observe())
    back = (StepBack(NEW_YEAR_MS, NEW_YEAR_MS - HOUR_MS),)
    assert watch.status().steps_back == back
    watch.end()
    again = ClockWatch(node)
    again.begin()
    assert again.status().steps_back == back


def test_a_leap_that_only_the_end_sees_is_logged(node, caplog):
    node.clock = ManualClock(NEW_YEAR_MS)
    watch = ClockWatch(node)
    watch.begin()
    node.clock.leap(HOUR_MS)
    watch.end()
    assert watch.leaps == 1
    assert "clock leapt forward" in caplog.text


def test_a_first_reading_and_one_of_each_hour_outlive_a_power_loss(node, tmp_path):
    def durable_ms():
        (tmp_path / RECENT_CLOCK_CHECKPOINT).unlink(missing_ok=True)
        stored, _ = read_clock(tmp_path)
        return stored.state.last.wall_ms

    async def passes(ms):
        node.clock.step(ms)
        await watch.observe()
        await watch.store_if_changed()

    watch = ClockWatch(node)
    watch.begin()
    assert durable_ms() == 10 * MINUTE_MS
    asyncio.run(passes(HOUR_MS - 1))
    assert (tmp_path / RECENT_CLOCK_CHECKPOINT).exists()
    assert durable_ms() == 10 * MINUTE_MS
    asyncio.run(passes(1))
    assert durable_ms() == 70 * MINUTE_MS
    assert (tmp_path / CLOCK_CHECKPOINT).exists()


def test_a_clock_that_leaps_again_is_not_accepted_for_the_first_leap(node):
    node.clock = ManualClock(NEW_YEAR_MS)
    watch = ClockWatch(node)
    watch.begin()
    node.clock.leap(HOUR_MS)
    asyncio.run(watch.observe())
    node.clock.leap(1_000 * HOUR_MS)  # nobody has seen this one
    assert asyncio.run(watch.accept(NEW_YEAR_MS + HOUR_MS)) == []
    assert watch.status().deletion_ms == NEW_YEAR_MS
    leap = watch.status().leap
    assert leap.to_ms == NEW_YEAR_MS + 1_001 * HOUR_MS
    node.clock.leap(-HOUR_MS)  # still far ahead, and another time again
    assert asyncio.run(watch.accept(leap.to_ms)) == []
    node.clock.step(MINUTE_MS)
    steps = asyncio.run(watch.accept(NEW_YEAR_MS + 1_000 * HOUR_MS))
    assert 1_000 * HOUR_MS in {step.shift_ms for step in steps}
    assert watch.status().deletion_ms == NEW_YEAR_MS + 1_000 * HOUR_MS + MINUTE_MS

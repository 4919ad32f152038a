"""Steps of the clock that last for less than a reading of the watch, seen from inside the broker."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.broker import asking
from tests.broker.inside import Inside
from tests.broker.logs.maintenance.test_clock_watch import DAY_MS, NEW_YEAR_MS
from tests.broker.members import commit, fetched
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.broker.clock import ManualClock
from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.logs.maintenance import clock_watch
from tidelog.config import BrokerConfig
from tidelog.storage.directory.clock_file import read_clock, write_clock


@pytest.fixture
def broker(tmp_path):
    config = BrokerConfig(clock_scope="all")
    with Inside(tmp_path, ManualClock(NEW_YEAR_MS), config) as broker:
        broker.call(broker.node.clock_watch.begin)
        yield broker


@pytest.fixture
def partition(broker):
    with broker.connect() as connection:
        asking.create(connection, "t")
    return broker.node.partitions.get("t", 0)


def produce(broker, time_ms=NEW_YEAR_MS):
    """The error code."""
    with broker.connect() as connection:
        records = recordset.batch([Rec(time_ms, b"v")])
        return asking.produce(connection, "t", records)["error_code"]


def test_a_step_is_durable_before_anything_is_stamped_with_it(broker, partition):
    broker.call(lambda: broker.clock.leap(-8 * DAY_MS))
    produce(broker)
    stored, wrong = read_clock(broker.directory)
    assert (stored.state.last.wall_ms, wrong) == (NEW_YEAR_MS - 8 * DAY_MS, [])
    broker.call(lambda: broker.clock.leap(8 * DAY_MS))
    assert broker.node.clock_watch.deletion_ms() == NEW_YEAR_MS - 8 * DAY_MS
    produce(broker)  # whoever stamps something reads the clock, and the logs are not corrected yet
    assert broker.node.clock_watch.deletion_ms() == NEW_YEAR_MS - 8 * DAY_MS


def test_nobody_uses_the_time_of_a_step_while_it_is_being_stored(broker, monkeypatch):
    stored, used = [], []

    def use():
        broker.clock.now_ms()
        used.append(len(stored))

    def store(*given, **more):
        other.start()
        other.join(0.2)  # it waits for what is stored here
        write_clock(*given, **more)
        stored.append(given)

    other = threading.Thread(target=use)
    broker.call(lambda: broker.clock.leap(-8 * DAY_MS))
    monkeypatch.setattr(clock_watch, "write_clock", store)
    broker.call(broker.clock.now_ms)
    other.join(60)
    monkeypatch.undo()
    assert used == [1]


def test_append_times_that_others_have_go_on_while_the_clock_is_back(broker, partition):
    """Else what comes now would be as old as the last record before. The window is around the clock."""
    produce(broker)
    partition.state.await_role()
    broker.call(lambda: broker.clock.step(9 * DAY_MS))
    broker.run(broker.node.clock_watch.observe())
    broker.call(lambda: broker.clock.leap(-20 * DAY_MS))
    with broker.connect() as connection:
        window = ("message.timestamp.before.max.ms", 0, str(DAY_MS))
        assert asking.alter(connection, asking.TOPIC, "t", window)[0] == 0
    now_ms = NEW_YEAR_MS + 9 * DAY_MS
    assert produce(broker, now_ms - 20 * DAY_MS) == 0
    broker.call(lambda: broker.clock.step(60_000))
    assert produce(broker, now_ms - 20 * DAY_MS) == 0
    assert produce(broker, now_ms - 22 * DAY_MS) == 32
    broker.call(lambda: broker.clock.step(2 * 3_600_000))  # by then it may be right
    assert produce(broker, now_ms - 20 * DAY_MS) == 0
    times = [partition.reader.append_time_of(offset) for offset in range(4)]
    assert times == [NEW_YEAR_MS, now_ms, now_ms + 60_000, now_ms + 60_000]


@pytest.mark.parametrize("is_right_before_the_append", [False, True])
def test_an_offset_does_not_expire_whose_commit_waits_while_the_clock_is_set_right(
    broker, partition, tmp_path, monkeypatch, is_right_before_the_append
):
    append = InternalTopic.append

    async def slowly(*given):
        stored = None if is_right_before_the_append else await append(*given)
        broker.clock.leap(8 * DAY_MS)
        await broker.node.clock_watch.observe()
        return stored or await append(*given)

    with broker.connect() as connection:
        assert commit(connection, "g", "t", 1) == 0
        broker.call(lambda: broker.clock.leap(-8 * DAY_MS))
        with monkeypatch.context() as patch:
            patch.setattr(InternalTopic, "log_to_append", lambda *_: None)  # so that commits wait
            patch.setattr(InternalTopic, "append", slowly)
            assert commit(connection, "g", "t", 7) == 0
        groups = broker.node.coordinator
        asyncio.run_coroutine_threadsafe(groups.cleanup.expire(), broker._loop).result(60)
        assert fetched(connection, "g", "t")[0] == 7
    log = broker.node.partitions.get(*groups.partition_of("g"))
    stored = groups.read(log, log.high_watermark, lambda: True)
    (committed,) = stored._entries["g"].offsets.values()
    assert committed.commit_ms == NEW_YEAR_MS

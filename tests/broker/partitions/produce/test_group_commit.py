"""flush.ms by timers: the settings may change while one runs, and no topic pays for what it did not ask."""

import asyncio
import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
import uvloop

from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.partitions.produce import group_commit
from tidelog.broker.partitions.produce.group_commit import GroupCommit
from tidelog.broker.partitions.purgatory import Purgatory
from tidelog.broker.pools import Pool, SyncPools
from tidelog.config.setting import LONG_MAX
from tidelog.protocol.errors import KafkaStorageError, NotLeaderOrFollower
from tidelog.storage.log.high_watermark import AT_ONCE


class Log:
    """Stands for a partition that is made durable at once; `committed` is set then."""

    is_deleted = False
    offline = None
    log_end_offset = high_watermark = 1
    durable_offset = 0
    state = SimpleNamespace(policy=AT_ONCE)

    def __init__(self, flush_ms):
        self.config = SimpleNamespace(flush_ms=flush_ms)
        self.committed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def commit(self):
        self.durable_offset = 1
        self._loop.call_soon_threadsafe(self.committed.set)
        return 1


async def committed_after(*flush_ms):
    """Appends once under each of these settings; returns when the log is durable and forgotten."""
    pool = Pool("sync", 1)
    syncs = GroupCommit(lambda _: pool, Purgatory(None), {}, Metrics())
    log = Log(flush_ms[0])
    for each in flush_ms:
        log.config.flush_ms = each
        syncs.request_later(log)
    async with asyncio.timeout(60):
        await log.committed.wait()
    pool.stop()
    log, forgotten = None, weakref.ref(log)
    async with asyncio.timeout(60):
        while forgotten() is not None:
            await asyncio.sleep(0.01)
            gc.collect()


async def test_a_shorter_flush_ms_holds_at_once():
    await committed_after(3_600_000, 5)


async def test_a_longer_one_does_not_put_off_what_is_under_way():
    await committed_after(5, 3_600_000)


def test_flush_ms_of_nothing_holds_for_each_append():
    """The loop of uvloop has no timer for what is due at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(committed_after(0, 0, 5))


async def test_flush_ms_that_is_set_later_holds():
    await committed_after(LONG_MAX, 5)


def durable(syncs, waiting, log):
    """Return the future of an append to a log that is done when it is durable."""
    answer = asyncio.get_running_loop().create_future()
    waiting.add_acknowledgement(log, SimpleNamespace(last_offset=0), answer)
    syncs.request(log, 1)
    return answer


async def test_a_dead_disk_stops_the_commits_of_no_other(tmp_path):
    """More logs wait for it than it has threads."""
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    answers = threading.Event()
    threads = SyncPools([dead, alive])
    waiting = Purgatory(None)
    syncs = GroupCommit(threads.of, waiting, {}, Metrics())
    try:
        logs = [Log(1) for _ in range(50)]
        for each in logs:
            each.directory = dead / "t-0"
            each.durable_offset = 1  # once the disk answers
            each.commit = lambda: answers.wait(200) and 1
        held = [durable(syncs, waiting, each) for each in logs]
        other = Log(1)
        other.directory = alive / "t-0"
        async with asyncio.timeout(60):
            await durable(syncs, waiting, other)
        assert not any(each.done() for each in held)
        answers.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*held)
    finally:
        answers.set()
        threads.stop()


async def test_a_sync_that_can_never_be_tried_takes_the_log_offline_and_answers(monkeypatch):
    monkeypatch.setattr(group_commit, "_RETRY_S", 0)
    pool, waiting = Pool("sync", 1), Purgatory(None)
    syncs = GroupCommit(lambda _: pool, waiting, {}, Metrics())
    log, tries, offline = Log(1), [], []

    def commit():
        tries.append(None)
        raise KafkaStorageError("the directory cannot be opened")

    log.commit = commit
    log.go_offline = offline.append
    for number in (1, 2):  # nothing is left of the first
        with pytest.raises(KafkaStorageError, match="cannot be opened"):
            await asyncio.wait_for(durable(syncs, waiting, log), 60)
        assert len(tries) == number * group_commit._MOST_TRIES
        assert len(offline) == number
    pool.stop()


async def test_a_log_that_is_cut_during_a_sync_is_synced_no_further_than_it_ends():
    pool = Pool("sync", 1)
    syncs = GroupCommit(lambda _: pool, Purgatory(None), {}, Metrics())
    log, commits = Log(1), []

    def commit():
        commits.append(None)
        return 1  # where it ends now

    log.commit = commit
    syncs.request(log, 3)
    log, forgotten = None, weakref.ref(log)
    async with asyncio.timeout(60):
        while forgotten() is not None:
            await asyncio.sleep(0.01)
            gc.collect()
    assert len(commits) == 1
    pool.stop()


async def test_who_waits_for_a_sync_that_a_stopping_broker_cannot_begin_may_ask_again():
    pool, waiting = Pool("sync", 1), Purgatory(None)
    syncs = GroupCommit(lambda _: pool, waiting, {}, Metrics())
    pool.stop()
    log = Log(1)
    for _ in range(2):
        with pytest.raises(NotLeaderOrFollower, match="the broker stops"):
            await durable(syncs, waiting, log)

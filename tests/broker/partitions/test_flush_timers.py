"""flush.ms by timers: the settings may change while one runs, and no topic pays for what it did not ask."""

import asyncio
import threading
from types import SimpleNamespace

from broker.metrics.counters import Metrics
from broker.partitions.commits import Commits
from broker.pools import Pool, SyncPools
from config.setting import LONG_MAX


class Log:
    """Stands for a partition that is made durable at once; `committed` is set then."""

    is_deleted = False
    log_end_offset = 1

    def __init__(self, flush_ms):
        self.config = SimpleNamespace(flush_ms=flush_ms)
        self.committed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def commit(self):
        self._loop.call_soon_threadsafe(self.committed.set)
        return 1


async def committed_after(*flush_ms):
    """Append once under each of these settings; the log must become durable in the end."""
    pool = Pool("sync", 1)
    commits = Commits(lambda _: pool, Metrics())
    log = Log(flush_ms[0])
    for each in flush_ms:
        log.config.flush_ms = each
        commits.later(log)
    async with asyncio.timeout(60):
        await log.committed.wait()
    pool.stop()
    return len(commits._timers)


async def test_a_shorter_flush_ms_holds_at_once():
    assert await committed_after(3_600_000, 5) == 0


async def test_a_longer_one_does_not_put_off_what_is_under_way():
    assert await committed_after(5, 3_600_000) == 0


async def test_flush_ms_that_is_set_later_holds():
    assert await committed_after(LONG_MAX, 5) == 0


async def test_a_dead_disk_stops_the_commits_of_no_other(tmp_path):
    """More logs wait for it than it has threads."""
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    answers = threading.Event()
    threads = SyncPools([dead, alive])
    commits = Commits(threads.of, Metrics())
    try:
        logs = [Log(1) for _ in range(50)]
        for each in logs:
            each.directory = dead / "t-0"
            each.commit = lambda: answers.wait(200) and 1
        waiting = [commits.up_to(each, 1) for each in logs]
        other = Log(1)
        other.directory = alive / "t-0"
        async with asyncio.timeout(60):
            await commits.up_to(other, 1)
        assert not any(each.done() for each in waiting)
        answers.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*waiting)
    finally:
        answers.set()
        threads.stop()

"""The process in which a log is compacted: where it writes, and what becomes of one that gets nowhere."""

import asyncio
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import uuid
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.broker import asking
from tests.broker.logs.maintenance.test_compaction_rounds import children, long_log
from tests.broker.subject import eventually
from tidelog.broker.clock import SystemClock
from tidelog.broker.logs.maintenance.compaction_process import Throttle
from tidelog.broker.logs.maintenance.compaction_rounds import (
    CleaningError,
    CompactionRound,
    CompactionRounds,
    DirtyLog,
    Worker,
)
from tidelog.broker.metrics.counters import Metrics
from tidelog.config import load
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.compaction.cleaner import Cleaner, Progress
from tidelog.storage.directory.store import LogStore

_nothing = contextlib.nullcontext
CONFIG = TopicConfig(segment_bytes=2_000, cleanup_policy=("compact",))
NOW = 9_000
PATIENCE_MS = 15_000  # longer than a process takes to begin on a machine that stands still
HELD, FREE = str(10**15), "0"
NO_LIMIT = sys.float_info.max


def unlimited():
    return NO_LIMIT


@pytest.fixture
def job(tmp_path):
    """A log that waits to be cleaned: its directory, and what a process is told."""
    store = LogStore([tmp_path / "log"], default_config=CONFIG)
    store.open(NOW)
    partition = store.create_partition("t", uuid.UUID(int=7), 0, CONFIG, NOW)
    for number in range(200):
        sent = [Record(0, number, b"k%d" % (number % 7), b"v")]
        partition.append(build(sent), now_ms=NOW, produce_version=9)
    partition.flush()
    told = partition.compactor.begin_cleaning(NOW, asked=True)
    yield partition.directory, told
    store.close()


@contextlib.asynccontextmanager
async def started():
    """A process, which ends in order."""
    worker = await Worker.start(unlimited)
    try:
        yield worker
    finally:
        assert await worker.stop()


async def test_nothing_is_written_into_what_has_the_directorys_name_since(job):
    """A topic is deleted, and one of its name made, while the old one's log is cleaned."""
    directory, told = job
    gone = directory.with_name("t-0.gone")

    async with started() as worker:
        answer = await worker.request({"directory": str(directory), "job": told.packed()}, 60)
        assert answer["groups"] > 1
        os.rename(directory, gone)
        directory.mkdir()
        for group in range(answer["groups"]):
            await worker.request({"group": group}, 60)
    assert os.listdir(directory) == []
    assert [name for name in os.listdir(gone) if name.endswith(".log.cleaned")]
    directory.rmdir()
    os.rename(gone, directory)


@pytest.mark.parametrize("late", [1, 9, 10])
def test_a_directory_goes_with_what_is_put_into_it_meanwhile(tmp_path, monkeypatch, late):
    def rmtree(path):
        nonlocal put
        if put < late:
            put += 1
            (path / f"{put}.index.cleaned").touch()
            os.rmdir(path)
        removed(path)

    put, removed = 0, shutil.rmtree
    directory = tmp_path / "t-0.x-delete"
    directory.mkdir()
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with _nothing() if late < 10 else pytest.raises(OSError, match="not empty"):
        files.System().remove_directory(directory)
    assert directory.exists() is (late == 10)


def test_a_cleaning_says_how_far_it_is(job):
    directory, told = job
    progress, seen = Progress(), [0]
    cleaner = Cleaner(directory, told, progress)
    for group in cleaner.groups():
        seen.append(progress.steps)
        cleaner.clean(group)
    assert seen == sorted(set(seen)), "each step is some progress"
    assert progress.steps >= 2 * 150, "every batch was met twice"


class Counted(Progress):
    """What a cleaning says that it has read and written."""

    size = 0

    def count(self, size):
        super().count(size)
        self.size += size


def test_a_cleaning_counts_all_that_it_reads_and_writes(job):
    directory, told = job
    counted, size = Counted(), sum(each.size for each in told.sources)
    cleaner = Cleaner(directory, told, counted)
    assert counted.size == size, "the keys"
    written = sum(cleaner.clean(group).size for group in cleaner.groups())
    assert 0 < written < size
    assert counted.size == 2 * size + written


class Waits:
    """A clock that only waiting moves."""

    def __init__(self):
        self.now_s, self.during = 100.0, lambda: None
        self.throttle = Throttle(lambda: self.now_s, self.sleep)

    def sleep(self, span_s):
        assert 0 < span_s <= 1, "a change of the rate is seen soon"
        self.now_s += span_s
        self.during()

    def passed_by(self, *sizes):
        before_s = self.now_s
        for size in sizes:
            self.throttle.count(size)
        return self.now_s - before_s


class TestThrottle:
    @pytest.mark.parametrize("no_limit", [NO_LIMIT, math.inf])
    def test_nothing_waits_until_there_is_a_limit(self, no_limit):
        waits = Waits()
        waits.throttle.bytes_per_second = no_limit
        assert waits.passed_by(*[10**9] * 100) == 0
        waits.now_s += 0.001
        assert waits.passed_by(0) == 0
        waits.throttle.bytes_per_second = 1_000
        assert waits.passed_by(5_000) == pytest.approx(5, abs=0.1)

    def test_the_average_is_the_rate(self):
        waits = Waits()
        waits.throttle.bytes_per_second = 1_000
        assert waits.passed_by(*[7] * 10_000) == pytest.approx(70, abs=0.1)
        assert waits.passed_by(30_000) == pytest.approx(30, abs=0.1)

    def test_time_in_which_nothing_was_read_is_not_saved_up(self):
        waits = Waits()
        waits.throttle.bytes_per_second = 1_000
        waits.now_s += 3_600
        assert waits.passed_by(*[1_000] * 20) == pytest.approx(20, abs=0.1)

    def test_a_new_rate_holds_for_what_waits_already(self):
        waits = Waits()
        waits.throttle.bytes_per_second = 1
        waits.during = lambda: setattr(waits.throttle, "bytes_per_second", NO_LIMIT)
        assert waits.passed_by(10**6) <= 1

    def test_who_waits_is_not_stuck(self):
        waits = Waits()
        waits.throttle.bytes_per_second = 10
        before = waits.throttle.steps
        assert waits.passed_by(1_000) == pytest.approx(100, abs=0.1)
        assert waits.throttle.steps - before >= 100


async def test_a_process_keeps_to_the_rate_until_a_higher_one_holds(job):
    """At a byte a second the log takes hours, so that it ends only by the change."""
    directory, told = job
    asked = []

    def rate():
        asked.append(1)  # once for the request, and again with each report of progress
        return 1 if len(asked) < 5 else NO_LIMIT

    worker = await Worker.start(rate)
    try:
        answer = await worker.request({"directory": str(directory), "job": told.packed()}, 60)
    finally:
        assert await worker.stop()
    assert answer["groups"] > 1
    assert len(asked) >= 5


async def test_the_processes_of_a_round_share_the_rate_that_holds(monkeypatch):
    rates = []

    def config(rate):
        return load(None, {}, {"log.cleaner.io.max.bytes.per.second": rate})

    async def start(rate):
        rates.append(rate)
        raise OSError("there is no process")

    monkeypatch.setattr(Worker, "start", start)
    services = SimpleNamespace(
        config=config("300"), ready=True, metrics=Metrics(), clock=SystemClock()
    )
    found = iter([DirtyLog(SimpleNamespace(topic="t", index=0), None)])
    done = CompactionRound([], [])
    await CompactionRounds(services)._clean_some(found, done, 3, asked=True)
    assert [failed.reason for failed in done.failed] == ["there is no process"]
    assert rates[0]() == 100
    services.config = config("9e3")
    assert rates[0]() == 3_000


async def test_one_that_makes_no_progress_is_given_up(job):
    directory, told = job

    async with started() as worker:
        await worker.request(
            {"directory": str(directory), "job": told.packed()}, 60
        )  # it has to begin
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(CleaningError, match=r"has made no progress for 2 s") as caught:
            await worker.request({"group": 0}, 2)
    assert caught.value.held_by == "stuck"


class Slow:
    """A process that says a number every 50 s of its loop's clock, and answers after the last.

    That clock is its own: however long the machine stands still meanwhile, nothing passes on it.
    """

    pid = 1

    def __init__(self, loop, numbers):
        self.stdin = self.stdout = self
        self.now_s, self.numbers = loop.time(), iter(numbers)
        loop.time = lambda: self.now_s

    def write(self, line):
        pass

    async def drain(self):
        pass

    async def readline(self):
        self.now_s += 50
        for _ in range(3):
            await asyncio.sleep(0)
        number = next(self.numbers, None)
        told = {"groups": 1} if number is None else {"progress": number}
        return json.dumps(told).encode() + b"\n"


@pytest.mark.parametrize(("numbers", "is_stuck"), [(range(12), False), ([5] * 12, True)])
async def test_one_that_is_slow_goes_on_as_long_as_it_gets_anywhere(numbers, is_stuck):
    worker = Worker(Slow(asyncio.get_running_loop(), numbers), unlimited)
    with pytest.raises(CleaningError, match="no progress") if is_stuck else _nothing():
        assert await worker.request({"group": 0}, 60) == {"groups": 1}


@pytest.mark.slow
def test_a_log_on_which_a_process_hangs_is_left_alone_and_the_others_cleaned(start):
    subject = start(
        {
            "control.listener": "127.0.0.1:0",
            "log.cleaner.backoff.ms": 300,
            "log.cleaner.progress.timeout.ms": PATIENCE_MS,
        }
    )
    names = {"stuck", "other"}
    with subject.connect() as connection:
        for name in names:
            asking.create(
                connection,
                name,
                cleanup_policy="compact",
                segment_bytes="1000000",
                file_delete_delay_ms="0",
                min_compaction_lag_ms=HELD,
            )
            long_log(connection, name)
        stopped, line = hang_one(subject, connection)
        done = cleanings(subject)
        (stuck,) = (name for name in names if f"{name}-0" in line)
        assert subject.metric("kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
        explained = json.loads(subject.page(f"/v1/topics/{stuck}/explain"))["partitions"][0]
        assert explained["compaction"]["held_by"] == "stuck"
        assert f"process {stopped}" in json.dumps(explained)
        (other,) = names - {stuck}
        let(connection, other, FREE)
        eventually(lambda: cleanings(subject) > done, 60)
        assert other in subject.lines("log compacted")[-1]
        assert not os.path.exists(f"/proc/{stopped}")
        assert [t["topic"] for t in subject.compact(stuck)] == [stuck], "somebody asks for it"
        assert subject.metric("kafka_log_logcleanermanager_uncleanable_partitions_count") == 0


def let(connection, name, lag_ms):
    """Let the rounds have a log, or hold it back from them."""
    change = ("min.compaction.lag.ms", 0, lag_ms)
    assert asking.alter(connection, asking.TOPIC, name, change) == (0, None)


def hang_one(subject, connection):
    """Stop a process in the middle of a cleaning; its number, and what is said of it in the end.

    One too quick is begun again, and only one at a time: what is written is held back until all is there.
    """
    for _ in range(20):
        before = cleanings(subject)
        let(connection, "stuck", FREE)
        found = eventually(lambda at=before: cleaners(subject.pid) or cleanings(subject) > at)
        if found is not True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], signal.SIGSTOP)
            told = partial(subject.lines, "made no progress", f"process {found[0]},")
            eventually(lambda at=before, told=told: told() or cleanings(subject) > at)
            if told():
                return found[0], told()[0]
        let(connection, "stuck", HELD)
        long_log(connection, "stuck")
    raise AssertionError("every cleaning was over too soon")


def cleanings(subject):
    return len(subject.lines("log compacted"))


def cleaners(pid):
    """Those that have begun: a broker waits for one that has not."""
    return [each for each in children(pid) if "compaction_process" in said_of(each)]


def said_of(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    return ""

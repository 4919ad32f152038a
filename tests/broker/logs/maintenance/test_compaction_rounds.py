"""Compaction by a running broker: rounds, the process that does the work, what happens to one that dies."""

import asyncio
import contextlib
import json
import os
import signal
import threading

import pytest
import uvloop

from tests.broker import asking
from tests.broker.conftest import healthy
from tests.broker.members import commit, fetched, state_of
from tests.broker.subject import eventually
from tests.oracle.recordset import Rec, batch
from tidelog.broker.logs.maintenance.compaction_worker import CleaningError, Worker
from tidelog.process import BrokerFailed
from tidelog.protocol.records.batch import records, scan

NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS = 60_000
NEVER_MS = 86_400_000  # as long as any test lives


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    with healthy(directory, {"clock": "manual", "log.cleaner.backoff.ms": MINUTE_MS}) as subject:
        yield subject


@pytest.fixture
def connection(manual):
    manual.clock.freeze(NEW_YEAR_MS)
    with manual.connect() as connection:
        yield connection


def compacted(connection, **more):
    name = asking.new_name()
    asking.create(
        connection,
        name,
        **{
            "cleanup_policy": "compact",
            "segment_bytes": "300",
            "file_delete_delay_ms": "0",
            **more,
        },
    )
    return name


def fill(connection, name, count, keys=4, first=0, at=1_000):
    for number in range(first, first + count):
        record = Rec(at + number, b"v%d" % number, b"k%d" % (number % keys))
        assert asking.produce(connection, name, batch([record]))["error_code"] == 0


def survivors(connection, name):
    """(offset, time, key, value) of all there is, read as a consumer reads."""
    found, offset = [], 0
    while True:
        got = asking.fetch(connection, name, offset)
        assert got["error_code"] == 0, got
        batches = scan(got["records"] or b"")
        if not batches:
            return found
        found += [(r.offset, r.timestamp, r.key, r.value) for r in records(got["records"])]
        offset = batches[-1].last_offset + 1


def expected(count, sealed, keys=4):
    """What is left of `fill` when it was cleaned up to an offset."""
    last = {number % keys: number for number in range(sealed)}
    left = [*sorted(last.values()), *range(sealed, count)]
    return [(n, 1_000 + n, b"k%d" % (n % keys), b"v%d" % n) for n in left]


def leftovers(broker, name):
    names = os.listdir(broker.log_dir / f"{name}-0")
    return [each for each in names if each.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]


def test_the_last_record_of_each_key_stays(manual, connection):
    name = compacted(connection)
    fill(connection, name, 40)
    (told,) = manual.compact(name)
    assert (told["topic"], told["partition"], told["asked"]) == (name, 0, True)
    sealed = told["first_dirty_offset"]
    assert 30 < sealed < 40
    assert survivors(connection, name) == expected(40, sealed)
    assert told["bytes_written"] < told["bytes_read"]
    assert asking.list_offset(connection, name, 1_002)["offset"] == sealed - 4
    manual.sweep()
    assert leftovers(manual, name) == []
    fill(connection, name, 40, first=40)
    (told,) = manual.compact(name)
    assert survivors(connection, name) == expected(80, told["first_dirty_offset"])


def test_rounds_follow_the_clock(manual, connection):
    name = compacted(connection)
    fill(connection, name, 40)
    manual.clock.step(MINUTE_MS + 1)
    assert len(survivors(connection, name)) < 10
    assert manual.compact(name) == []


def test_settings_decide_when(manual, connection):
    """Neither the ratio nor the lags let a round begin before its time."""
    name = compacted(connection, min_cleanable_dirty_ratio="0.5", min_compaction_lag_ms="600000")
    fill(connection, name, 40, at=NEW_YEAR_MS)
    manual.clock.step(MINUTE_MS + 1)
    assert len(survivors(connection, name)) == 40, "too young"
    assert manual.compact(name) == [], "asked for or not"
    explained = json.loads(manual.page(f"/v1/topics/{name}/explain"))["partitions"][0]
    assert {each["compaction"] for each in explained["segments"]} == {"held", "active"}
    manual.clock.step(600_000)
    left = survivors(connection, name)
    assert len(left) < 10
    fill(connection, name, 6, first=40, keys=1)
    manual.clock.step(MINUTE_MS + 1)
    few = len(left) + 6
    assert len(survivors(connection, name)) < few, "more than half of it was dirty"
    asking.alter(connection, asking.TOPIC, name, ("min.cleanable.dirty.ratio", 0, "1"))
    fill(connection, name, 30, first=50, keys=1)
    before = len(survivors(connection, name))
    manual.clock.step(MINUTE_MS + 1)
    assert len(survivors(connection, name)) == before, "no more than all of it can be dirty"
    explained = json.loads(manual.page(f"/v1/topics/{name}/explain"))["partitions"][0]
    assert explained["compaction"]["held_by"] == "min.cleanable.dirty.ratio"
    percent = f"it is {100 * explained['compaction']['ratio']:.0f} percent"
    assert percent in explained["segments"][-2]["sentence"]
    assert explained["compaction"]["last"]["bytes_written"] > 0
    assert manual.compact(name), "asked for"
    assert len(survivors(connection, name)) < before


def test_a_tombstone_goes_when_its_time_has_come(manual, connection):
    name = compacted(connection, delete_retention_ms="1000")
    fill(connection, name, 4)
    tombstone = batch([Rec(2_000, None, b"k1")])
    assert asking.produce(connection, name, tombstone)["error_code"] == 0
    fill(connection, name, 8, first=100, keys=1)
    manual.compact(name)
    assert (4, 2_000, b"k1", None) in survivors(connection, name)
    manual.clock.step(1_001)
    fill(connection, name, 8, first=200, keys=1)
    manual.compact(name)
    left = survivors(connection, name)
    assert not [row for row in left if row[2] == b"k1"]
    assert [row for row in left if row[2] == b"k2"]


def test_the_newest_by_time_stays_where_that_is_asked_for(manual, connection):
    name = compacted(connection, compaction_strategy="timestamp")
    for number, at in enumerate((50, 90, 10, 90, 40)):
        record = Rec(at, b"v%d" % number, b"k")
        assert asking.produce(connection, name, batch([record]))["error_code"] == 0
    fill(connection, name, 8, first=100)
    manual.compact(name)
    assert [row for row in survivors(connection, name) if row[2] == b"k"] == [(3, 90, b"k", b"v3")]
    late = batch([Rec(60, b"late", b"k")])
    assert asking.produce(connection, name, late)["error_code"] == 0
    fill(connection, name, 8, first=200)
    manual.compact(name)
    assert [row for row in survivors(connection, name) if row[2] == b"k"] == [(3, 90, b"k", b"v3")]


def test_a_record_without_a_key_is_refused(connection):
    name = compacted(connection)
    told = asking.produce(connection, name, batch([Rec(1, b"a", b"k"), Rec(2, b"b"), Rec(3, b"c")]))
    assert told["error_code"] == 87
    assert [each["batch_index"] for each in told["record_errors"]] == [1, 2]
    assert "needs a key" in told["record_errors"][0]["batch_index_error_message"]


@pytest.mark.slow
def test_offsets_of_groups_outlive_compaction(start):
    """Of 300 commits the last of each group are left, and groups that were deleted stay so."""
    subject = start(
        {
            "control.listener": "127.0.0.1:0",
            "log.cleaner.backoff.ms": NEVER_MS,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.segment.bytes": 2_000,
        }
    )
    with subject.connect() as connection:
        topic = asking.new_topic(connection, partitions=2)
        for number in range(150):
            for partition in range(2):
                group = f"group-{number % 7}"
                assert commit(connection, group, topic, number, partition=partition) == 0
        gone = connection.ask("DeleteGroups", 2, groups_names=["group-3"])
        assert gone["results"][0]["error_code"] == 0
        for _ in range(10):  # so that what says so is compacted as well
            assert commit(connection, "group-0", topic, 999) == 0
        (told,) = subject.compact("__consumer_offsets")
        assert told["bytes_written"] < told["bytes_read"] / 4
        assert len(survivors(connection, "__consumer_offsets")) < 60
        subject.restart()
    with subject.connect() as connection:
        eventually(lambda: fetched(connection, "group-1", topic)[3] == 0)
        for group in range(7):
            last = [-1] * 2 if group == 3 else [max(range(group, 150, 7))] * 2
            if not group:
                last[0] = 999
            name = f"group-{group}"
            assert [fetched(connection, name, topic, partition=p)[0] for p in (0, 1)] == last
        assert state_of(connection, "group-3") in ("", "Dead")


def assert_hindered(subject, name, held_by, reason):
    """No segment is said to go with a next round that will not take it."""
    explained = json.loads(subject.page(f"/v1/topics/{name}/explain"))["partitions"][0]
    assert explained["compaction"]["held_by"] == held_by
    assert {each["compaction"] for each in explained["segments"]} == {"held", "active"}
    assert all(reason in each["sentence"] for each in explained["segments"])


def test_a_log_that_cannot_be_read_is_left_until_it_is_made_anew(manual, connection):
    name, good = compacted(connection), compacted(connection)
    fill(connection, name, 40)
    fill(connection, good, 40)
    path = manual.log_dir / f"{name}-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(BrokerFailed, match="fails its CRC"):
        manual.compact()
    assert len(survivors(connection, good)) < 10, "the others are compacted"
    assert manual.metric("kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
    assert manual.metric("kafka_log_logcleanermanager_uncleanable_bytes") > 1_000
    assert leftovers(manual, name) == []
    assert len(asking.fetch(connection, name, 2)["records"]) > 0
    assert_hindered(manual, name, "unreadable", "fails its CRC")
    gone = connection.ask("DeleteTopics", 1, topic_names=[name], timeout_ms=5_000)
    assert gone["responses"][0]["error_code"] == 0
    asking.create(connection, name, cleanup_policy="compact", segment_bytes="300")
    fill(connection, name, 40)
    manual.clock.step(MINUTE_MS + 1)
    assert len(survivors(connection, name)) < 10
    assert manual.metric("kafka_log_logcleanermanager_uncleanable_partitions_count") == 0


def test_what_settings_of_the_broker_mean_for_a_log(start):
    """A cleaner that is switched off promises nothing; and of commits the last counts, whatever is set.

    Otherwise, after a clock is set back, groups would begin again where they were before.
    """
    subject = start(
        {
            "log.cleaner.enable": "false",
            "log.cleaner.compaction.strategy": "timestamp",
            "control.listener": "127.0.0.1:0",
        }
    )
    with subject.connect() as connection:
        name = compacted(connection)
        fill(connection, name, 40)
        assert_hindered(subject, name, "log.cleaner.enable", "no round compacts it")
        assert commit(connection, "group", name, 5) == 0
        for topic, strategy in ((name, "timestamp"), ("__consumer_offsets", "offset")):
            explained = json.loads(subject.page(f"/v1/topics/{topic}/explain"))["partitions"][0]
            assert explained["compaction"]["strategy"] == strategy


def long_log(connection, name, batches=60, keys=400):
    """Some megabytes, so that a cleaning takes a while."""
    for number in range(batches):
        sent = [
            Rec(1_000 + number, b"%d.%d" % (number, i) + b"x" * 300, b"key-%d" % (i * 7 % keys))
            for i in range(400)
        ]
        assert asking.produce(connection, name, batch(sent))["error_code"] == 0


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(each) for each in file.read().split()]


def is_gone(pid):
    """Nobody may be there to reap what is nobody's child any more."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def last_of_each(rows):
    return {key: (offset, at, value) for offset, at, key, value in rows}


def at_work(subject, name, is_over):
    """Wait for a cleaning to have written something, or for its end; the processes that clean then."""
    eventually(lambda: any(cleaned_files(subject, name) for _ in range(50)) or is_over())
    return children(subject.pid)


def strike(subject, child, victim):
    if victim != "broker":
        with contextlib.suppress(ProcessLookupError):
            # Paused, it does not notice by itself that its input has ended.
            os.kill(child, signal.SIGKILL if victim == "cleaner" else signal.SIGSTOP)
    if victim != "cleaner":
        subject.kill()


def interrupted(subject, name, victim):
    """Kill in the middle of a cleaning; what is to be there. One that is over too soon is begun again."""
    for _ in range(10):
        with subject.connect() as connection:
            long_log(connection, name)
            wanted = last_of_each(survivors(connection, name))
        failed = []
        asked = threading.Thread(target=ask_and_note, args=(subject, name, failed))
        asked.start()
        found = at_work(subject, name, lambda asked=asked: not asked.is_alive())
        for child in found:
            strike(subject, child, victim)
        asked.join(60)
        assert not asked.is_alive()
        if not subject.is_running:
            eventually(lambda found=found: all(map(is_gone, found)))
            subject.restart()
        if failed:
            return wanted
    raise AssertionError("every cleaning was over too soon")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["cleaner", "broker", "paused cleaner"])
def test_killed_in_the_middle(start, victim):
    subject = start({"control.listener": "127.0.0.1:0", "log.cleaner.backoff.ms": NEVER_MS})
    with subject.connect() as connection:
        name = compacted(connection, segment_bytes="1000000")
    wanted = interrupted(subject, name, victim)
    if victim == "cleaner":
        assert leftovers(subject, name) == []
    with subject.connect() as connection:
        assert not [n for n in leftovers(subject, name) if not n.endswith(".deleted")]
        assert last_of_each(survivors(connection, name)) == wanted
        subject.compact(name)
        rows = survivors(connection, name)
        assert last_of_each(rows) == wanted
        assert len(rows) < 10_000


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])  # the two differ in how a pipe breaks
def test_asking_a_process_that_is_gone_is_an_error_of_the_cleaning(run):
    async def ask():
        worker = await Worker.start(lambda: 1e9)
        os.kill(worker.pid, signal.SIGKILL)
        while not is_gone(worker.pid):  # noqa: ASYNC110 - it looks at another process
            await asyncio.sleep(0.01)
        for _ in range(2):  # the first may find the pipe still open
            with pytest.raises(CleaningError, match="the cleaning process"):
                await worker.request({"group": 0}, 60)
        await worker.stop()

    run(ask())


def cleaning_by_itself(subject, name, lag_ms):
    """Let a round take the log, or none."""
    with subject.connect() as connection:
        asking.alter(connection, asking.TOPIC, name, ("min.compaction.lag.ms", 0, str(lag_ms)))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, False])
def test_a_stop_waits_for_no_cleaning(start, asked):
    backoff_ms = NEVER_MS if asked else 200
    subject = start({"control.listener": "127.0.0.1:0", "log.cleaner.backoff.ms": backoff_ms})
    with subject.connect() as connection:
        name = compacted(connection, segment_bytes="1000000")
    askers = []
    for _ in range(10):
        cleaning_by_itself(subject, name, 10**15)
        with subject.connect() as connection:
            long_log(connection, name)
            wanted = last_of_each(survivors(connection, name))
        before = subject.metric("tidelog_compactions_total")
        cleaning_by_itself(subject, name, 0)
        if asked:
            askers.append(threading.Thread(target=ask_and_note, args=(subject, name, [])))
            askers[-1].start()
        is_over = lambda at=before: subject.metric("tidelog_compactions_total") > at
        if at_work(subject, name, is_over):
            break
    else:
        raise AssertionError("every cleaning was over too soon")
    assert subject.stop() == 0
    for asker in askers:
        asker.join(60)
        assert not asker.is_alive()
    assert not [n for n in leftovers(subject, name) if not n.endswith(".deleted")]
    subject.restart({"log.cleaner.enable": False})
    with subject.connect() as connection:
        assert last_of_each(survivors(connection, name)) == wanted


def ask_and_note(subject, name, failed):
    try:
        subject.compact(name)
    except Exception as error:
        failed.append(error)


def cleaned_files(subject, name):
    return [n for n in leftovers(subject, name) if n.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.slow
def test_fetches_and_lookups_go_on_meanwhile(start):
    """Readers and a producer at work see every key's last record, whatever is cleaned under them."""
    subject = start({"control.listener": "127.0.0.1:0", "log.cleaner.backoff.ms": NEVER_MS})
    with subject.connect() as connection:
        name = compacted(connection, segment_bytes="200000", file_delete_delay_ms="0")
        long_log(connection, name, batches=20)
        stop, wrong = threading.Event(), []

        def read():
            with subject.connect() as own:
                while not stop.is_set():
                    rows = survivors(own, name)
                    if len(last_of_each(rows)) != 400 or rows != sorted(rows):
                        wrong.append(len(rows))
                    found = asking.list_offset(own, name, 1_001)
                    if found["error_code"] or not 1_001 <= found["timestamp"] <= 1_019:
                        wrong.append(found)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(4):
                long_log(connection, name, batches=5)
                assert subject.compact(name)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert wrong == []
        assert subject.unexpected_errors == 0

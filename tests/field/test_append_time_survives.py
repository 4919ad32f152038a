"""R4: the time of writing, lost with an index.

What users see: records are kept for the full retention again after an index was rebuilt or a topic was
copied, or nothing says any more when they were written (redpanda#12991, redpanda#27383: one broker kept its
own time in the segment's index alone, lost it with every rebuild, and gave retention by it up).

Kafka: it has no time of writing for a record that carries the producer's. Where a record has no time it takes
the file's last modification, which any copy changes.

Here: `.appendtimes` is data, written before the batch it describes; indexes can be lost without it.
"""

import os
import shutil
import uuid

import pytest

from tests.field.complaints import DAY_MS, HOUR_MS, NEW_YEAR_MS, create, start_of, write
from tidelog.config import BrokerConfig, topic_config
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

APPENDED = [NEW_YEAR_MS + hours * HOUR_MS for hours in (0, 0, 1, 2, 30, 30, 31)]
SETTINGS = {
    "segment.bytes": "300",
    "retention.ms": str(DAY_MS),
    "retention.time.basis": "append",
}
CONFIG = topic_config(BrokerConfig(), SETTINGS)
INDEXES = ("*.index", "*.timeindex")


def opened(path, boot="boot 1", now_ms=NEW_YEAR_MS):
    store = LogStore([path], default_config=CONFIG, boot_id=boot)
    store.open(now_ms, {"t": CONFIG})
    return store


@pytest.fixture
def written(tmp_path):
    """A log directory, closed in order, of records from 1970 that were appended at APPENDED."""
    store = opened(tmp_path / "data")
    partition = store.create_partition("t", uuid.uuid4(), 0, CONFIG, NEW_YEAR_MS)
    for number, now_ms in enumerate(APPENDED):
        data = build([Record(0, number, None, b"v" * 150, ())])
        partition.append(data, now_ms=now_ms, produce_version=9)
    assert len(partition.segments) > 2
    store.close()
    return tmp_path / "data"


def check(path, boot="boot 1"):
    """All append times are there, and retention goes by them, to the millisecond."""
    store = opened(path, boot, now_ms=APPENDED[-1])
    partition = store.partition("t", 0)
    try:
        assert [partition.reader.append_time_of(offset) for offset in range(7)] == APPENDED
        ends = [segment.tail.end_offset for segment in partition.segments]
        for start, now_ms in ((0, APPENDED[0] + DAY_MS), (7, APPENDED[-1] + DAY_MS + 1)):
            partition.retainer.apply_retention(now_ms)
            assert partition.log_start_offset == start
        assert ends[-1] == 7
    finally:
        store.close()


def remove(path, *patterns):
    for pattern in patterns:
        found = list((path / "t-0").glob(pattern))
        assert found
        for one in found:
            one.unlink()


def test_a_restart(written):
    check(written)


@pytest.mark.parametrize("lost", [*INDEXES, "partition.times", "leader-epoch-checkpoint"])
def test_a_lost_file(written, lost):
    """The same boot, or another: what was closed in order is known."""
    remove(written, lost)
    check(written)


def test_all_indexes_lost_and_the_machine_started_anew(written):
    remove(written, *INDEXES)
    check(written, boot="boot 2")


def test_a_crash(tmp_path, written):
    store = opened(written)
    store._release()  # nothing is flushed, no mark of a clean end
    check(written)


def test_a_copy_whose_files_were_all_modified_today(tmp_path, written):
    copy = tmp_path / "copy"
    shutil.copytree(written, copy)
    for file in copy.rglob("*"):
        os.utime(file)
    shutil.rmtree(written)
    check(copy, boot="another machine")


def test_a_lost_append_times_file_is_told_and_not_guessed(written):
    """The check can fail: without the data the times are unknown, not the file's and not today's."""
    remove(written, "*.appendtimes")
    store = opened(written)
    try:
        partition = store.partition("t", 0)
        assert {partition.reader.append_time_of(offset) for offset in range(7)} == {None}
    finally:
        store.close()
    with pytest.raises(AssertionError):
        check(written)


def test_over_the_wire(broker, connection):
    """The indexes are removed while the broker is down: the day is not begun anew."""
    topic = create(connection, retention_ms=str(DAY_MS), retention_time_basis="append")
    write(connection, topic, [5] * 4)
    broker.clock.step(HOUR_MS)
    broker.stop()
    directory = broker.log_dir / f"{topic}-0"
    for pattern in INDEXES:
        for file in directory.glob(pattern):
            file.unlink()
    broker.restart()
    broker.clock.set(NEW_YEAR_MS + DAY_MS)
    with broker.connect() as again:
        assert broker.sweep(topic) == []
        broker.clock.step(1)
        assert {one["last_append_time_ms"] for one in broker.sweep(topic)} == {NEW_YEAR_MS}
        assert start_of(again, topic) == 4

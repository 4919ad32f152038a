"""Passes of scrubbing on a broker: what the disk has spoilt is told once, and known after a restart."""

from __future__ import annotations

import contextlib
import json
import shutil
import time

import pytest

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec
from tests.protocol.records import framings
from tidelog.storage.directory.scrub_file import ScrubProgress, read_progress, write_progress
from tidelog.storage.filenames import SCRUB_CHECKPOINT

INTERVAL_MS = 60_000
BAD = "tidelog_scrub_bad_batches"
READ = "tidelog_scrub_bytes_total"
ENDED = "tidelog_scrub_last_pass_ms"
SETTINGS = {
    "log.scrub.interval.ms": str(INTERVAL_MS),
    "log.retention.check.interval.ms": "86400000",
}


@contextlib.contextmanager
def scrubbing(data, **settings):
    with Subject(data, SETTINGS | settings, clock="manual") as broker:
        yield broker
        assert broker.unexpected_errors == 0, broker.log()[-8000:]
        assert broker.stop() == 0
        assert "Traceback" not in broker.log(), broker.log()[-8000:]


def fill(broker, topic, segments):
    """A topic of so many closed segments with one batch each, and an active one."""
    with broker.connect() as connection:
        asking.create(connection, topic, **{"segment.bytes": "1000", "retention.ms": "-1"})
        for _ in range(segments + 1):
            batch = asking.recordset.batch(
                asking.values("x" * 900, timestamp=broker.clock.now_ms())
            )
            assert asking.produce(connection, topic, batch)["error_code"] == 0
    return sorted((broker.log_dir / f"{topic}-0").glob("*.log"))


def spoil(path, position=-1):
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    with path.open("r+b") as file:
        file.write(data)


def one_pass(broker):
    """Let a pass begin, and wait for its end."""
    before = broker.metric(ENDED)
    broker.clock.step(INTERVAL_MS)
    eventually(lambda: broker.metric(ENDED) > before, what="the end of a pass")


def findings(broker, *topic):
    query = f"?topic={topic[0]}" if topic else ""
    return [
        each for each in json.loads(broker.page(f"/v1/doctor{query}"))["findings"] if each["topic"]
    ]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A directory with two topics of three closed segments; tests copy it."""
    data = tmp_path_factory.mktemp("filled") / "data"
    with Subject(data, {}, clock="manual") as broker:
        fill(broker, "moon", 3)
        fill(broker, "sun", 3)
        broker.stop()
    return data


@pytest.fixture
def data(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "data")


def closed(data, topic):
    return sorted((data / f"{topic}-0").glob("*.log"))[:-1]


def test_what_has_gone_bad_is_told_once_and_found_by_the_doctor(data):
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(ENDED), what="the first pass, which begins at the start")
        assert (broker.metric(BAD), findings(broker)) == (0, [])
        first = sum(
            path.stat().st_size for topic in ("moon", "sun") for path in closed(data, topic)
        )
        assert broker.metric(READ) == first
        spoil(closed(data, "sun")[1])
        for _ in range(2):
            one_pass(broker)
            assert broker.metric(BAD) == 1
        assert broker.metric(READ) == 3 * first
        (line,) = broker.lines("bad batch found")
        assert "sun-0" in line
        assert "fails its CRC" in line
        (found,) = findings(broker)
        assert (found["topic"], found["partition"], found["finding"]) == ("sun", 0, "bad batches")
        assert (
            "begins at offset 1 has bad batches; the first, at byte 0, fails its CRC"
            in found["sentence"]
        )
        assert found["command"] == f"tidelog scrub --log-dirs {data} --topic sun"
        assert findings(broker, "moon") == []


@pytest.mark.slow
def test_a_restart_knows_what_was_found_and_forgets_what_is_good_or_gone(data):
    for topic in ("moon", "sun"):
        spoil(closed(data, topic)[0])
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(ENDED), what="the first pass")
        assert broker.metric(BAD) == 2
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(BAD) == 2, what="what was found before the start")
        assert broker.metric(READ) == 0
        spoil(closed(data, "moon")[0])  # back to what it was
        with broker.connect() as connection:
            connection.ask("DeleteTopics", 5, topic_names=["sun"], timeout_ms=60_000)
        one_pass(broker)
        assert (broker.metric(BAD), findings(broker)) == (0, [])
        assert len(broker.lines("bad batch found")) == 2, "each once, before the restart"


@pytest.mark.slow
def test_a_pass_goes_on_where_the_broker_has_stopped(data):
    moon, sun = closed(data, "moon"), closed(data, "sun")
    spoil(moon[0])
    write_progress(data, ScrubProgress(at=("moon", 0, 2)))
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(ENDED), what="the end of the pass")
        assert broker.metric(READ) == sum(path.stat().st_size for path in (moon[2], *sun))
        assert broker.metric(BAD) == 0, "the first segment was read before"
        one_pass(broker)
        assert broker.metric(BAD) == 1
    assert read_progress(data).at is None


@pytest.mark.slow
def test_the_next_pass_is_due_an_interval_after_the_end_that_is_shown(data):
    """However long the disk takes to store that end."""
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(ENDED), what="the first pass")
        with broker.faults.add(storage="write", delay="300ms", log_dir=str(data)):
            for _ in range(2):
                one_pass(broker)


@pytest.mark.slow
def test_how_far_it_had_come_may_be_lost(data):
    (data / SCRUB_CHECKPOINT).write_text("1\n00000000\n{}\n")
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(ENDED), what="a pass over everything")
        assert broker.metric(READ) == sum(
            path.stat().st_size for topic in ("moon", "sun") for path in closed(data, topic)
        )
        (line,) = broker.lines("scrub progress lost")
        assert "its checksum is wrong" in line


@pytest.mark.slow
def test_it_reads_no_faster_than_it_may(data):
    size = sum(path.stat().st_size for topic in ("moon", "sun") for path in closed(data, topic))
    begun_s = time.monotonic()
    with scrubbing(data, **{"log.scrub.io.max.bytes.per.second": str(2 * size)}) as broker:
        eventually(lambda: broker.metric(ENDED), what="the first pass")
        assert time.monotonic() - begun_s > 0.5


def test_there_is_none_unless_it_is_asked_for(data):
    spoil(closed(data, "moon")[0])
    with scrubbing(data, **{"log.scrub.interval.ms": "-1"}) as broker:
        broker.clock.step(10 * INTERVAL_MS)
        assert (broker.metric(READ), broker.metric(BAD)) == (0, 0)
    assert not (data / SCRUB_CHECKPOINT).exists()


def test_a_set_that_java_clients_refuse_is_told_and_is_nothing_that_the_disk_has_spoilt(data):
    path = closed(data, "sun")[1]
    recs = [Rec(5, b"x" * 900)]
    packed = framings.frame(framings.block(recordset.record(recs[0], 5, 0)), flags=0x40)
    path.write_bytes(recordset.batch(recs, codecs.LZ4, base_offset=1, payload=packed))
    with scrubbing(data) as broker:
        eventually(lambda: broker.metric(ENDED), what="the first pass, which begins at the start")
        one_pass(broker)
        assert broker.metric(BAD) == 0
        assert broker.lines("bad batch found") == []
        (line,) = broker.lines("Java clients cannot read a compressed batch")
        assert "sun-0" in line
        (found,) = findings(broker)
        assert (found["topic"], found["finding"]) == ("sun", "Java clients stop")
        assert (
            "the batch at offset 1 has a compressed set that Java clients refuse"
            in found["sentence"]
        )


@pytest.mark.slow
def test_many_bad_batches_of_a_segment_are_a_few_lines(tmp_path):
    with scrubbing(tmp_path / "data") as broker:
        with broker.connect() as connection:
            asking.create(connection, "moon", **{"segment.bytes": "20000", "retention.ms": "-1"})
            batch = asking.recordset.batch(
                asking.values("x" * 900, timestamp=broker.clock.now_ms())
            )
            for _ in range(22):
                assert asking.produce(connection, "moon", batch)["error_code"] == 0
        path = min((broker.log_dir / "moon-0").glob("*.log"))
        size = len(batch)
        count = path.stat().st_size // size
        for number in range(count):
            spoil(path, number * size + size - 1)
        one_pass(broker)
        assert broker.metric(BAD) == count
        assert (
            len(broker.lines('"bad batch found"')) + len(broker.lines("more bad batches found"))
            == 6
        )
        (line,) = broker.lines("more bad batches found")
        assert str(count - 5) in line

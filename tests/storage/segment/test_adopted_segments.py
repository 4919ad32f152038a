"""The last segment of a log that another program wrote: it is read once, and takes no appends."""

import struct
import threading
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.oracle.codecs import LZ4
from tests.oracle.recordset import Rec, batch, message, plain_set, record
from tests.protocol.records.framings import block, frame
from tests.storage.cleaning import clean
from tests.storage.conftest import records_of
from tidelog.protocol.errors import NotLeaderOrFollower
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import filenames
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom
from tidelog.storage.segment import survey

_OURS = ("partition.times", "*.appendtimes", "*.negativetimes")
_COUNT = 400
_MOST_BYTES = 40_000  # of a lookup with an index, in a log that is four times as large
_LEADER = LeaderState(0, 0, None, None)

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


@pytest.fixture
def adopted(make_log):
    """A log of one segment, as another broker leaves it: times are 1000, 1010, 1020 and so on."""
    log = make_log(segment_bytes=1 << 20).create()
    for i in range(_COUNT):
        log.append([1000 + 10 * i], now=1, values=[b"x" * 300])
    log.close()
    forget_what_is_ours(log)
    return log.open(now=2)


def forget_what_is_ours(log):
    for pattern in _OURS:
        for path in log.directory.glob(pattern):
            path.unlink()


def look_up(log, target):
    found = log.partition.reader.find_by_time(target, upper_offset=log.partition.log_end_offset)
    return None if found is None else tuple(found)


def expect(log, reads, *, most=_MOST_BYTES, count=_COUNT):
    """Look up some times; every lookup reads less than `most` bytes of the log."""
    for i in (0, 7, count // 2, count - 1):
        reads.bytes = 0
        assert look_up(log, 995 + 10 * i) == (i, 1000 + 10 * i)
        assert reads.bytes < most
    assert look_up(log, 1000 + 10 * count) is None


def lie(path):
    """Change the largest time in the header of the first batch, as some clients' headers are."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack_from(">i", data, 8)
    data[35:43] = struct.pack(">q", 5)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21 : 12 + size])))
    path.write_bytes(data)


def log_file(log, base=0):
    return log.directory / filenames.segment_file(base, filenames.LOG_SUFFIX)


def test_only_the_first_lookup_reads_the_active_segment(adopted, reads):
    assert look_up(adopted, 1500) == (50, 1500)
    assert reads.bytes > adopted.partition.size
    expect(adopted, reads)
    adopted.close()
    adopted.open()
    assert adopted.partition.state.active.indexes.is_true
    expect(adopted, reads)


def test_it_is_not_verified_again_where_headers_do_not_tell_the_times(adopted, reads):
    adopted.close()
    lie(log_file(adopted))
    forget_what_is_ours(adopted)
    adopted.open()
    assert look_up(adopted, 1500) == (50, 1500)
    assert not adopted.partition.state.active.indexes.is_true
    expect(adopted, reads)
    adopted.append([9], now=5)
    expect(adopted, reads)


def test_the_first_append_begins_a_segment_and_nothing_before_it(adopted, reads):
    partition = adopted.partition
    look_up(adopted, 1500)
    (only,) = partition.retainer.explain(77).segments
    assert (only.rolls_ms, only.rolls_by) == (77, "adopted")
    assert (
        " It is active; the next append begins a new segment"
        " (it is not known that this broker wrote all of it)." in only.sentence
    )
    assert partition.reader.offsets_before_v0(1500, 9) == [50, 0]
    assert [s.base_offset for s in partition.segments] == [0]
    adopted.append([7], now=5)
    adopted.append([8], now=6)
    assert [s.base_offset for s in partition.segments] == [0, _COUNT]
    first, active = partition.retainer.explain(77).segments
    assert (first.rolls_by, active.rolls_by) == (None, "segment.ms")
    expect(adopted, reads)
    adopted.close()
    adopted.open()
    adopted.append([9], now=7)
    assert [s.base_offset for s in adopted.partition.segments] == [0, _COUNT]


def test_our_own_segment_goes_on_after_a_stop_and_after_a_crash(make_log):
    log = make_log().create()
    for stop in (log.close, log.crash, log.crash):
        log.append([1000], now=1)
        stop()
        log.open()
    log.append([1000], now=1)
    assert len(log.partition.segments) == 1


@pytest.mark.parametrize("what", ["append", "follow", "cut"])
def test_what_comes_while_it_is_read_for_the_first_time(adopted, reads, what, monkeypatch):
    """The reader is in the middle of the segment when an append ends it, or a truncation cuts it."""
    partition, is_reading, may_go_on = adopted.partition, threading.Event(), threading.Event()
    note = survey._note

    def wait(known, found, *rest):
        if threading.current_thread() is looking and found.batch.base_offset == _COUNT // 2:
            is_reading.set()
            assert may_go_on.wait(30)
        return note(known, found, *rest)

    def look():
        try:
            answers.append(look_up(adopted, 1500))
        except NotLeaderOrFollower as error:
            answers.append(type(error))

    answers: list[object] = []
    partition.state.active.known.learn()
    monkeypatch.setattr(survey, "_note", wait)
    looking = threading.Thread(target=look)
    looking.start()
    assert is_reading.wait(30)
    count = _COUNT
    if what == "append":
        adopted.append([9], now=5)
    elif what == "follow":
        data = build([Record(_COUNT, 9, b"k", b"v")])
        partition.replica.append_as_follower(data, [AppendedFrom(_COUNT, 5)], (), _LEADER, now_ms=5)
    else:
        count = _COUNT // 4
        partition.truncater.truncate_to(count, below_high_watermark=True)
    may_go_on.set()
    looking.join()
    monkeypatch.undo()
    assert answers == [NotLeaderOrFollower if what == "cut" else (50, 1500)]
    if what != "follow":
        adopted.append([9], now=6)
    look_up(adopted, 1500)
    expect(adopted, reads, count=count)
    adopted.close()
    entries = {path.name: path.stat().st_size for path in adopted.directory.glob("*.index")}
    adopted.open()
    look_up(adopted, 1500)
    expect(adopted, reads, count=count)
    for segment in adopted.partition.segments:
        last = segment.index.last()
        assert last is None or last.offset < segment.tail.end_offset
        assert entries[segment.path.with_suffix(".index").name] == 8 * len(segment.index)


def test_a_followers_segment_with_such_headers_grows_and_is_found_by_its_records(make_log, reads):
    """The leader sends what it has: batches of another program, with headers that do not agree."""
    log = make_log(segment_bytes=1 << 20).create()
    path = log.directory / "batch"
    for i in range(_COUNT):
        path.write_bytes(build([Record(i, 1000 + 10 * i, b"k", b"x" * 300)]))
        lie(path)
        log.partition.replica.append_as_follower(
            path.read_bytes(), [AppendedFrom(i, 5)], (), _LEADER, now_ms=5
        )
    path.unlink()
    (active,) = log.partition.segments
    assert active.log.takes_appends
    assert not active.indexes.is_true
    expect(log, reads)
    log.partition.truncater.truncate_to(100)
    log.partition.state.become_only_replica()
    log.append([1990], now=6)
    assert len(log.partition.segments) == 1
    expect(log, reads, count=100)


FOUND = "Java clients cannot read a compressed batch"


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def refused(make_log, request):
    """A log of another broker: three records of ours, and two sets at 3 and 5 that Java refuses."""
    log = make_log(segment_bytes=1 << 20, cleanup_policy=("compact",)).create()
    for i in range(3):
        log.append([1000 + i], now=1)
    log.close()
    with log_file(log).open("ab") as file:
        file.write(linked_set(request.param, 3, b"ab") + linked_set(request.param, 5, b"cd"))
    forget_what_is_ours(log)
    return log.open(now=2)


def linked_set(magic, first_offset, keys):
    """A record for each key, in an lz4 frame of linked blocks."""
    recs = [Rec(1500, b"value" * 20, bytes([key])) for key in keys]
    if magic == 2:
        payload = b"".join(record(rec, 1500, i) for i, rec in enumerate(recs))
        packed = frame(block(payload), flags=0x40)
        return batch(recs, LZ4, base_offset=first_offset, payload=packed)
    packed = frame(block(plain_set(1, recs)), flags=0x40)
    return message(1, Rec(1500, packed), offset=first_offset + len(recs) - 1, attributes=LZ4)


def unreadable(log, most_bytes=1 << 20):
    """What is known of each segment once so many bytes may be read for it."""
    segments = log.partition.retainer.facts(most_bytes).segments
    return [each.times.unreadable_offset for each in segments]


def test_the_first_batch_that_java_refuses_is_found_once_and_stays_known(refused, reads, caplog):
    log = refused
    assert unreadable(log, most_bytes=0) == [None]  # nobody has read it
    assert unreadable(log) == [3]
    assert [each.message for each in caplog.records].count(FOUND) == 1
    log.close()
    log.open(now=3)
    reads.bytes = 0
    assert unreadable(log) == [3]
    assert not reads.bytes


def test_scrubbing_names_every_batch_that_java_refuses(refused):
    refused.append([9], now=4)  # begins a segment
    scrubber = refused.partition.scrubber
    bad = scrubber.slice(scrubber.first(0), 1 << 20).bad
    assert [each.offset for each in bad] == [3, 5]
    assert bad[0].reason == "has a compressed set that Java clients refuse, up to offset 4"


def test_compaction_writes_again_what_java_refuses(refused):
    assert unreadable(refused) == [3]
    refused.append([9], now=4)
    before = records_of(refused.partition)
    assert clean(refused.partition, 5)
    assert unreadable(refused) == [None, None]
    scrubber = refused.partition.scrubber
    assert scrubber.slice(scrubber.first(0), 1 << 20).bad == ()
    assert records_of(refused.partition) == before[2:]  # the first three have one key

"""Compaction where the log changes under it, memory is short, or transactions end."""

import os
import shutil
import struct
import threading
from dataclasses import replace

import pytest

from tests.storage.cleaning import clean, clean_directory
from tests.storage.conftest import read_max_event_time
from tidelog.protocol.errors import BrokerError, CorruptMessage
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.storage import files
from tidelog.storage.compaction import cleaner, job
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.log import lookup, slices
from tidelog.storage.log.compactor import Compactor
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.state import LogState
from tidelog.storage.log.version import Ends
from tidelog.storage.segment import transaction_index
from tidelog.storage.segment.appended.layout import Layout
from tidelog.storage.time.corrections import Correction

KEEP_MS = 1_000


@pytest.fixture
def make(make_log):
    def make_one(**settings):
        settings = {"segment_bytes": 400, "delete_retention_ms": KEEP_MS, **settings}
        return make_log(**{"cleanup_policy": ("compact",), **settings}).create()

    return make_one


def put(log, key, value, now=100, time=5, **more):
    data, guard = build([Record(0, time, key, value)], **more), None
    if more.get("is_transactional"):
        guard = log.partition.verification(
            more["producer_id"], more["producer_epoch"], more.get("base_sequence", -1)
        )
    return log.partition.append(
        data, now_ms=now, produce_version=9, internal=True, guard=guard
    ).base_offset


def fill(log, count, keys=5, first=0, now=100):
    for number in range(first, first + count):
        put(log, b"k%d" % (number % keys), b"v%d" % number, now)


def rows(log):
    found = []
    for segment in log.partition.segments:
        data = segment.path.read_bytes()
        found += [(r.offset, r.key, r.value) for batch in scan(data) for r in records(data, batch)]
    return found


def test_the_active_segment_is_never_touched(make):
    log = make()
    fill(log, 4, keys=1)
    assert len(log.partition.segments) == 1
    assert clean(log.partition, 200) is None
    fill(log, 40, keys=1)
    active = log.partition.segments[-1]
    before = active.path.read_bytes()
    assert clean(log.partition, 200)
    assert log.partition.segments[-1] is active
    assert active.path.read_bytes() == before


def test_nothing_above_the_high_watermark_is_touched(make):
    log = make()
    fill(log, 60)
    log.partition.flush()
    log.partition.state.ends = Ends(60, 20, 20)
    done = clean(log.partition, 200)
    assert 15 < done.first_dirty_offset <= 20
    assert [o for o, _, _ in rows(log) if o >= 20] == list(range(20, 60))


def test_only_with_the_policy(make):
    log = make(cleanup_policy=("delete",))
    fill(log, 60)
    assert clean(log.partition, 200) is None
    assert log.partition.retainer.explain(200).compacting is None


def test_memory_for_a_part_of_the_keys_cleans_a_part(make):
    """Several cleanings come to where one would have come."""
    log = make(segment_bytes=20_000)
    for number in range(900):
        sent = [
            Record(i, 5, b"key-%d" % ((number * 3 + i) % 2_600), b"%d" % number) for i in range(3)
        ]
        log.partition.append(build(sent), now_ms=1, produce_version=9)
    stops = []
    while (done := clean(log.partition, 2, dedupe_bytes=0)) is not None:
        stops.append(done.first_dirty_offset)
    assert len(stops) > 1
    assert stops == sorted(set(stops))
    sealed = log.partition.segments[-1].base_offset
    assert stops[-1] == sealed
    found = rows(log)
    kept = [key for offset, key, _ in found if offset < sealed]
    assert len(kept) == len(set(kept))
    last = {}
    for number in range(900):
        last |= {b"key-%d" % ((number * 3 + i) % 2_600): b"%d" % number for i in range(3)}
    assert {key: value for _, key, value in found} == last


FUTURE = 20 * 365 * 86_400_000


def test_of_a_record_with_an_unknown_append_time_the_adoption_counts(make):
    log = make(compaction_strategy="timestamp", event_time_ahead_max_ms=1_000)
    put(log, b"k", b"future", now=5_000, time=FUTURE)
    fill(log, 20)
    log.close()
    for path in log.directory.glob("*.appendtimes"):
        path.unlink()
    (log.directory / "partition.times").unlink()
    log.open(60_000)
    put(log, b"k", b"before the adoption", now=61_000, time=60_999)
    fill(log, 20, now=61_000)
    clean(log.partition, 61_000)
    assert dict(row[1:] for row in rows(log))[b"k"] == b"future"
    put(log, b"k", b"after it", now=62_000, time=61_000)
    fill(log, 20, now=62_000)
    clean(log.partition, 62_000)
    assert dict(row[1:] for row in rows(log))[b"k"] == b"after it"


def test_a_tombstone_stays_until_all_that_came_late_has_been_weighed(make, monkeypatch):
    """Memory ends before a record that is older than the tombstone: it must not outlive that."""
    monkeypatch.setattr(job, "_LEAST_KEYS", 4)
    log = make(compaction_strategy="timestamp")
    put(log, b"k", None, now=100, time=90)
    fill(log, 10, keys=2)
    clean(log.partition, 200)
    put(log, b"k", None, now=200, time=95)  # its horizon is the later one
    fill(log, 10, keys=2)
    clean(log.partition, 300)
    assert [value for _, key, value in rows(log) if key == b"k"] == [None]
    fill(log, 20, keys=8)
    late = put(log, b"k", b"late", now=200, time=50)
    fill(log, 10, keys=2)
    stops = []
    while (done := clean(log.partition, 300 + KEEP_MS, dedupe_bytes=0)) is not None:
        stops.append(done.first_dirty_offset)
    assert stops[0] <= late < stops[-1]
    assert [value for _, key, value in rows(log) if key == b"k"] == [None]
    fill(log, 10, keys=2)
    clean(log.partition, 301 + KEEP_MS)
    assert b"k" not in {key for _, key, _ in rows(log)}


def test_a_correction_of_the_last_append_time_of_a_segment_ages_its_old_tombstones(make):
    log = make(message_format_version="0.10.2")
    gone = build([Record(0, 5, b"gone", None)], magic=1)
    log.partition.append(gone, now_ms=10_000, produce_version=2)
    fill(log, 40, keys=40, now=10_000)
    clean(log.partition, 10_000)
    fill(log, 20, now=10_000)
    log.partition.flush()
    planned = log.partition.compactor.begin_cleaning(10_000, asked=True)
    corrected = Correction(0, planned.sources[0].end_offset, 0, 10_000, 0, to_ms=5_000)
    for corrections, kept in (((), True), ((corrected,), False)):
        cleaner = Cleaner(log.directory, planned._replace(corrections=corrections))
        cleaner.clean(cleaner.groups()[0])
        (written,) = log.directory.glob("*.log.cleaned")
        assert (b"gone" in written.read_bytes()) == kept


def test_many_small_segments_are_joined_some_at_a_time(make, monkeypatch):
    monkeypatch.setattr(cleaner, "_MOST_SEGMENTS", 10)
    log = make(segment_bytes=100)
    for number in range(46):
        put(log, b"k%d" % number, b"v")
    assert len(log.partition.segments) == 46
    log.partition.config = log.config = type(log.config)(cleanup_policy=("compact",))
    assert clean(log.partition, 200).segments == 5
    assert len(rows(log)) == 46
    put(log, b"more", b"v", time=10**12)
    roll(log.partition.state)
    assert clean(log.partition, 300).segments == 1, "what is left is joined by the next one"


def test_segments_deleted_meanwhile_are_not_brought_back(make):
    log = make(cleanup_policy=("compact", "delete"), retention_ms=1_000)
    fill(log, 60)
    partition = log.partition
    partition.flush()
    job = partition.compactor.begin_cleaning(200)
    cleaner = Cleaner(partition.directory, job)
    cleaned = cleaner.clean(cleaner.groups()[0])
    assert partition.compactor.begin_cleaning(200) is None, "one at a time"
    partition.retainer.apply_retention(5_000)
    assert not partition.compactor.take_in(cleaned, 5_000)
    partition.compactor.end_cleaning(None)
    assert not [n for n in os.listdir(partition.directory) if n.endswith((".cleaned", ".swap"))]
    assert partition.segments[0].base_offset == partition.log_start_offset > 0


def test_what_was_appended_since_is_there(make):
    log = make()
    fill(log, 60)
    partition = log.partition
    partition.flush()
    cleaner = Cleaner(partition.directory, partition.compactor.begin_cleaning(200))
    fill(log, 10, first=60)
    for group in cleaner.groups():
        assert partition.compactor.take_in(cleaner.clean(group), 200)
        fill(log, 5, first=70)
    partition.compactor.end_cleaning(cleaner.end_offset)
    before = rows(log)
    assert {key for _, key, _ in before} == {b"k%d" % i for i in range(5)}
    log.crash()
    log.open(300)
    assert rows(log) == before


class Held(files.System):
    """A slow disk: while a sync of the one thread lasts, others do something, and are to come to its end."""

    def __init__(self, meanwhile):
        self.thread, self.meanwhile = threading.get_ident(), meanwhile
        self.syncs, self.waited = 0, []

    def sync(self, number):
        if threading.get_ident() != self.thread or self.waited:
            return
        other = threading.Thread(target=self.meanwhile, daemon=True)
        other.start()
        other.join(60)
        if other.is_alive():
            self.waited.append(self.syncs)
        self.syncs += 1

    def sync_data(self, number):
        pass


def test_no_append_read_or_lookup_waits_for_a_sync_of_a_cleaning(make):
    """The old segments serve until the disk has taken that they go, whatever it takes."""
    log = make(segment_bytes=100)
    for number in range(12):
        put(log, b"k%d" % (number % 5), b"v%d" % number, time=number)
    partition = log.partition
    partition.config = log.config = type(log.config)(cleanup_policy=("compact",))
    partition.flush()
    seen = []

    def meanwhile():
        offset = put(log, b"k%d" % (len(seen) % 5), b"more", now=300, time=10_000 + len(seen))
        got = partition.read(offset, 500, upper_offset=10**9, minimum_one=True)
        first = partition.read(0, 500, upper_offset=10**9, minimum_one=True)
        found = partition.reader.find_by_time(11, upper_offset=10**9)
        later = partition.reader.find_by_time(10_000 + len(seen), upper_offset=10**9)
        seen.append((got.size > 0, first.size > 0, found, later[0] == offset))

    disk = Held(meanwhile)
    before = files.use(disk)
    try:
        assert clean(partition, 200).segments == 1
    finally:
        files.use(before)
    assert disk.waited == []
    assert len(seen) == disk.syncs > 8, "the sync between the names is one of them"
    assert set(seen) == {(True, True, (11, 11), True)}


@pytest.mark.parametrize("injected", [False, True])
def test_who_was_overtaken_reads_what_it_holds(make, monkeypatch, injected):
    """A read, and a lookup, begin with the old segments, which are replaced before they open a file.

    Injected: their files are removed although they are held.
    """
    if injected:
        monkeypatch.setattr(LogState, "oldest_held", lambda _: None)
    for look in ("read",) if injected else ("read", "find_time"):
        log = make(name=f"{look}-{injected}", file_delete_delay_ms=0)
        fill(log, 60)
        partition, module = log.partition, {"read": slices, "find_time": lookup}[look]
        partition.flush()
        held, whole = rows(log), getattr(module, look)

        def overtaken(segments, *args, partition=partition, whole=whole, **more):
            if partition.cleaned_offset is None:
                clean(partition, 200)
            return whole(segments, *args, **more)

        monkeypatch.setattr(module, look, overtaken)
        try:
            right = is_right(log, look, held)
        except BrokerError:
            right = False
        assert right is not injected


def is_right(log, look, held):
    """Whether what is read, or found by time, is what the version held: the log as it was before."""
    if look == "find_time":
        found = log.partition.reader.find_by_time(0, upper_offset=60)
        return found == (held[0][0], 5)
    fetched = log.partition.read(0, 10**6, upper_offset=60, minimum_one=True)
    return [(r.offset, r.key, r.value) for r in records(b"".join(fetched.buffers))] == held


def test_an_event_time_that_was_compacted_away_is_still_known(make):
    log = make()
    put(log, b"k0", b"largest", now=100, time=90)
    fill(log, 40)
    assert log.partition.max_event_time == 90
    clean(log.partition, 200)
    assert log.partition.reader.find_by_time(90, upper_offset=99) is None
    assert log.partition.max_event_time == 90
    log.close()
    log.open(300)
    assert log.partition.max_event_time == 90


@pytest.mark.parametrize("crashes", [False, True])
def test_event_times_count_as_before_although_their_limit_was_raised(make, monkeypatch, crashes):
    """So does a start that completes the replacement of segments: it reads all of them again."""
    log = make(event_time_ahead_max_ms=50)
    put(log, b"k0", b"gone", now=100, time=10**12)
    put(log, b"stays", b"v", now=99, time=10**12)
    fill(log, 20)
    log.partition.config = log.config = replace(log.config, event_time_ahead_max_ms=10**9)
    if crashes:
        log.partition.flush()
        cleaner = Cleaner(log.directory, log.partition.compactor.begin_cleaning(200, asked=True))
        cleaned = cleaner.clean(cleaner.groups()[0])
        monkeypatch.setattr(Compactor, "_swap", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            log.partition.compactor.take_in(cleaned, 200)
        log.crash()
        log.open(200)
        assert len(rows(log)) < 22
    else:
        clean(log.partition, 200)
        log.close()
        log.open(200)
    assert read_max_event_time(log.partition) == 150
    put(log, b"k1", b"v", now=100, time=10**12)
    assert read_max_event_time(log.partition) == 100 + 10**9


def test_append_times_that_an_operator_let_go_back_are_not_joined(make):
    log = make(segment_bytes=1 << 20)
    put(log, b"a", b"1", now=9_000)
    assert log.partition.append_clock.reset(100).last_append_time == 9_000
    put(log, b"b", b"2", now=100)
    roll(log.partition.state)
    put(log, b"c", b"3", now=101)
    done = clean(log.partition, 200)
    assert done.segments == 2
    assert [log.partition.reader.times_of(o).append_time for o in range(3)] == [9_000, 100, 101]


@pytest.mark.parametrize("entries", [1, 2])
def test_append_times_that_were_cut_short_are_not_filled_in(make, entries):
    """Who reads the file alone takes the last time it has for that of all that follows."""
    log = make()
    for number in range(40):
        put(log, b"k%d" % number, b"v", now=100 + number)
    sealed = log.partition.segments[1]
    path = sealed.path.with_suffix(".appendtimes")
    log.close()
    entry_size = Layout(sealed.base_offset).entry_size
    os.truncate(path, path.stat().st_size - (entries + 1) * entry_size)  # and the END entry
    log.open(500)
    assert clean(log.partition, 600)
    for offset, _, _ in rows(log):
        is_lost = sealed.tail.end_offset - entries <= offset < sealed.tail.end_offset
        found = log.partition.reader.times_of(offset).append_time
        assert found == (None if is_lost else 100 + offset)


def test_a_policy_taken_back_cuts_nothing_after_a_crash(make):
    log = make()
    fill(log, 60)
    log.store.checkpoint()
    clean(log.partition, 200)
    log.store.checkpoint()
    before = rows(log)
    for lost in ("recovery-point-offset-checkpoint", None):
        log.crash()
        if lost is not None:
            (log.path / lost).unlink()
        log.config = type(log.config)(cleanup_policy=("delete",), retention_ms=-1)
        log.open(300)
        assert rows(log) == before
        assert log.partition.log_end_offset == 60


def test_a_damaged_batch_ends_the_cleaning_and_changes_nothing(make):
    log = make()
    fill(log, 60)
    log.partition.flush()
    segment = log.partition.segments[2]
    data = bytearray(segment.path.read_bytes())
    data[-2] ^= 1
    segment.path.write_bytes(data)
    with pytest.raises(CorruptMessage, match="CRC"):
        clean(log.partition, 200)
    assert log.partition.cleaned_offset is None
    assert log.partition.compactor.last_compaction.error
    assert len(rows(log)) == 60
    assert not [n for n in os.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]


def test_a_directory_is_cleaned_without_a_broker(make, tmp_path):
    log = make()
    fill(log, 60)
    log.close()
    shutil.copytree(log.directory, tmp_path / "copy" / "t-0")
    done = clean_directory(tmp_path / "copy" / "t-0", log.config, 300)
    assert done.bytes_written < done.bytes_read
    log.open()
    clean(log.partition, 300)
    names = [n for n in os.listdir(tmp_path / "copy" / "t-0") if n.endswith(".log")]
    for name in names:
        copy = (tmp_path / "copy" / "t-0" / name).read_bytes()
        assert copy == (log.directory / name).read_bytes()


# --- producers and transactions ------------------------------------------------------------------


def test_a_producer_that_is_forgotten_leaves_nothing(make):
    log = make()
    put(log, b"k0", b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    fill(log, 40)
    day = 86_400_000
    clean(log.partition, 200)
    assert empties(log) == [7]
    fill(log, 40, now=100 + day)
    clean(log.partition, 200 + day)
    assert empties(log) == []


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_that_stays_for_its_producer_keeps_its_record(make, commit):
    """kafka-python 3.0 and aiokafka 0.14 wait for ever at a control batch without a record."""
    log = make()
    marker = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    fenced = {"producer_id": 9, "producer_epoch": 1, "is_transactional": True, "is_control": True}
    stays = put(log, *marker, **fenced)  # nothing else of this epoch
    fill(log, 40)
    for now in (200, 300, 300 + KEEP_MS, 300 + 2 * KEEP_MS):
        clean(log.partition, now)
        assert stays in {offset for offset, _, _ in rows(log)}
        assert empties(log) == []
        fill(log, 20)


def empties(log):
    """The producers of batches without records; the last of what was cleaned has none here."""
    found = []
    for segment in log.partition.segments:
        found += [b.producer_id for b in scan(segment.path.read_bytes()) if not b.count]
    return found


def transaction(log, key, *, commit, now=100):
    common = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    known = log.partition.state.read_producers().get(9)
    sequence = 0 if known is None else known.next_sequence
    first = put(log, key, b"t", now, base_sequence=sequence, **common)
    marker = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    last = put(log, *marker, now, is_control=True, **common)
    return first, last


def named(log):
    """The markers of aborted transactions that the indexes name."""
    paths = sorted(log.directory.glob("*.txnindex"))
    return [
        each.last_offset for path in paths for each in transaction_index.parse(path.read_bytes())
    ]


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_goes_after_its_data(make, commit):
    log = make()
    first, last = transaction(log, b"k0", commit=commit)
    transaction(log, b"other", commit=True)  # so that the producer's last batch is another
    fill(log, 40)
    clean(log.partition, 200)
    there = {offset for offset, _, _ in rows(log)}
    assert first not in there
    assert last in there
    assert named(log) == ([] if commit else [last])
    fill(log, 20)
    clean(log.partition, 300)  # nothing of it is left: from now on it may go
    assert last in {offset for offset, _, _ in rows(log)}
    assert named(log) == []
    fill(log, 20)
    clean(log.partition, 300 + KEEP_MS - 1)
    assert last in {offset for offset, _, _ in rows(log)}
    fill(log, 20)
    clean(log.partition, 300 + KEEP_MS)
    assert last not in {offset for offset, _, _ in rows(log)}

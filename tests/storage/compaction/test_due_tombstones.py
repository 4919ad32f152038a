"""compaction.strategy=timestamp: when a tombstone goes whose horizon has come.

Records older than the tombstone are written after it. As long as one is in the log, the tombstone has
to stay, wherever that one waits and whatever happens in between: a key that was deleted stays so.
"""

from dataclasses import replace

import pytest

from tests.storage.cleaning import clean
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.version import Ends

KEEP_MS = 1_000
DUE_MS = 200 + KEEP_MS
LATE_MS = 50  # the time of a late record; that of the tombstone is 90


@pytest.fixture
def make(make_log):
    def make_one(**settings):
        log = make_log(
            cleanup_policy=("compact",),
            compaction_strategy="timestamp",
            segment_bytes=400,
            delete_retention_ms=KEEP_MS,
            file_delete_delay_ms=0,
            **settings,
        ).create()
        put(log, b"k", None, now=100, time=90)
        fill(log, 100)
        assert clean(log.partition, 200)
        log.store.checkpoint()
        assert values(log) == [None]
        return log

    return make_one


def put(log, key, value, now, time=5):
    data = build([Record(0, time, key, value)])
    return log.partition.append(data, now_ms=now, produce_version=9).base_offset


def fill(log, now, count=10):
    """Appends records of other keys, of which all but the last few are in sealed segments."""
    for number in range(count):
        put(log, b"other%d" % (number % 2), b"v%d" % number, now)
    roll(log.partition.state)


def values(log):
    """The values of the key, oldest first."""
    found = []
    for segment in log.partition.segments:
        data = segment.path.read_bytes()
        found += [r.value for batch in scan(data) for r in records(data, batch) if r.key == b"k"]
    return found


def in_the_active_segment(log):
    put(log, b"k", b"late", DUE_MS, LATE_MS)


def under_the_lag(log):
    """A record is as old as its own time: those of `fill` are old enough."""
    lag_ms = DUE_MS - 10
    log.partition.config = log.config = replace(log.config, min_compaction_lag_ms=lag_ms)
    in_the_active_segment(log)
    fill(log, DUE_MS)


def above_the_high_watermark(log):
    in_the_active_segment(log)
    fill(log, DUE_MS)
    log.partition.flush()
    end, sealed = log.partition.log_end_offset, log.partition.segments[-4].base_offset
    log.partition.state.ends = Ends(end, sealed, sealed)


WAITS = [in_the_active_segment, under_the_lag, above_the_high_watermark]


@pytest.mark.parametrize("wait", WAITS)
def test_a_tombstone_stays_while_an_older_record_waits(make, wait):
    log = make()
    fill(log, DUE_MS)
    wait(log)
    assert clean(log.partition, DUE_MS)
    assert values(log) == [None, b"late"]


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_deleted_key_stays_deleted(make, stop):
    """The late record goes first, and the tombstone with the next cleaning."""
    log = make()
    fill(log, DUE_MS)
    in_the_active_segment(log)
    log.partition.flush()
    getattr(log, stop)()
    log.open(DUE_MS)
    left = []
    for number in range(1, 4):
        assert clean(log.partition, DUE_MS + number)
        left.append(values(log))
        fill(log, DUE_MS + number)
    assert left == [[None, b"late"], [None], []]


def test_a_cleaning_that_ends_half_way_leaves_the_tombstone(make):
    """Its segment was replaced, that of the older record was not."""
    log = make()
    fill(log, DUE_MS)
    in_the_active_segment(log)
    fill(log, DUE_MS)
    log.partition.flush()
    cleaner = Cleaner(log.directory, log.partition.compactor.begin_cleaning(DUE_MS, asked=True))
    groups = cleaner.groups()
    assert len(groups) > 1
    assert log.partition.compactor.take_in(cleaner.clean(groups[0]), DUE_MS)
    log.crash()
    log.open(DUE_MS)
    for number in range(1, 4):
        clean(log.partition, DUE_MS + number)
        assert b"late" not in values(log)
        fill(log, DUE_MS + number)


def test_a_tombstone_goes_if_only_others_wait(make):
    log = make()
    fill(log, DUE_MS)
    put(log, b"other", b"v", DUE_MS, LATE_MS)
    assert clean(log.partition, DUE_MS)
    assert values(log) == []


def test_a_tombstone_stays_if_much_more_waits_than_is_cleaned(make):
    """Then what waits is not read for it."""
    log = make()
    fill(log, DUE_MS)
    under_the_lag(log)
    fill(log, DUE_MS, count=40)
    put(log, b"other", b"v", DUE_MS, LATE_MS)
    roll(log.partition.state)
    log.partition.flush()
    job = log.partition.compactor.begin_cleaning(DUE_MS, asked=True)
    log.partition.compactor.end_cleaning(None)
    assert sum(each.size for each in job.waiting) > sum(each.size for each in job.sources) + 400
    assert clean(log.partition, DUE_MS)
    assert None in values(log)


def test_what_waits_may_be_cut_meanwhile(make):
    """The tombstone stays, and the cleaning goes on."""
    log = make()
    fill(log, DUE_MS)
    put(log, b"other", b"v", DUE_MS, LATE_MS)
    log.partition.flush()
    job = log.partition.compactor.begin_cleaning(DUE_MS, asked=True)
    active = log.partition.segments[-1]
    active.path.write_bytes(active.path.read_bytes()[:-5])
    cleaner = Cleaner(log.directory, job)
    for group in cleaner.groups():
        assert log.partition.compactor.take_in(cleaner.clean(group), DUE_MS)
    log.partition.compactor.end_cleaning(cleaner.end_offset)
    assert values(log) == [None]

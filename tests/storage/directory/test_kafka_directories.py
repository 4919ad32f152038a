"""Directories in the states that a real Kafka leaves them in: each opens, serves and goes on.

The bytes are those of a Kafka 0.10.2.2 (see tests/vectors): a log of three segments, 200 records. What
must be found is worked out from the files themselves, message by message, without the store.
"""

import shutil
import struct
from pathlib import Path

import pytest

from tests.storage.conftest import kill, records_of
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, scan
from tidelog.storage import filenames
from tidelog.storage.directory.store import LogDirectoryError, LogStore
from tidelog.storage.log.recovery import leftovers
from tidelog.storage.log.recovery.leftovers import tidy

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
PLAIN = "f-0.10.2-CreateTime-none-c0102-0"
BASES = (0, 63, 127)
CLEAN = ".kafka_cleanshutdown"
PREALLOCATED = 10 << 20
START_MS = 1500000000000


class Brought:
    """A copy of Kafka's directory, and what it should hold."""

    def __init__(self, path):
        self.path = path
        self.directory = path / "t-0"
        shutil.copytree(VECTORS / PLAIN, self.directory)
        self.offsets = list(range(200))
        self.store = None

    def file(self, base, suffix):
        return self.directory / filenames.segment_file(base, suffix)

    def messages(self, *bases):
        """The messages of some segments, each with its bytes: {offset: bytes}."""
        found = {}
        for base in bases:
            data = self.file(base, ".log").read_bytes()
            found |= {b.last_offset: data[b.position : b.position + b.size] for b in scan(data)}
        return found

    def compacted(self, *bases, keep=3):
        """What compaction would make of some segments: the bytes, and the offsets left."""
        left = {o: data for o, data in self.messages(*bases).items() if o % keep == 0}
        return b"".join(left.values()), list(left)

    def open(self, **settings):
        self.store = LogStore(
            [self.path], default_config=TopicConfig(retention_ms=-1, **settings), boot_id="b"
        )
        self.store.open(0)
        return self.store.partition("t", 0)

    def contents(self, partition):
        return [(each.offset, each.timestamp, each.value) for each in records_of(partition)]

    def check(self, partition):
        """Contents, lookups and ends are those that were worked out."""
        expected = [
            (o, START_MS + 1000 * o, b"value-%d-" % o + b"abcdefghij" * (o % 30))
            for o in self.offsets
        ]
        assert self.contents(partition) == expected
        assert partition.log_end_offset == (self.offsets[-1] + 1 if self.offsets else 0)
        end = partition.log_end_offset
        for number in (0, 1, 5, 62, 63, 64, 126, 127, 128, 150, 199):
            for wanted in (START_MS + 1000 * number, START_MS + 1000 * number - 1):
                naive = next(((o, t) for o, t, _ in expected if t >= wanted), None)
                assert partition.reader.find_by_time(wanted, upper_offset=end) == naive
        largest = (expected[-1][0], expected[-1][1]) if expected else None
        assert partition.reader.find_largest_time(upper_offset=end) == largest

    def check_goes_on(self, partition):
        """One more record, a stop, and all of it is there again."""
        end = partition.log_end_offset
        data = build([Record(0, START_MS + 10**9, b"k", b"new", ())], magic=1)
        assert partition.append(data, now_ms=5, produce_version=2).base_offset == end
        self.store.close()
        again = self.open(message_format_version="0.10.2")
        assert [o for o, *_ in self.contents(again)] == [*self.offsets, end]
        self.store.close()


@pytest.fixture
def brought(tmp_path):
    made = Brought(tmp_path / "data")
    yield made
    if made.store is not None:
        kill(made.store)


def logs_of(brought):
    return {path.name: path.read_bytes() for path in brought.directory.glob("*.log")}


# --- states in which nothing of the log is lost --------------------------------------------------


def as_copied(brought):
    """No mark of a clean stop, no checkpoints."""


def preallocated_indexes(brought):
    for base in BASES:
        for suffix in (".index", ".timeindex"):
            with brought.file(base, suffix).open("r+b") as file:
                file.truncate(PREALLOCATED)


def zeros_behind_the_log(brought):
    with brought.file(127, ".log").open("ab") as file:
        file.truncate(1 << 20)


def no_indexes(brought):
    for base in BASES:
        brought.file(base, ".index").unlink()
        brought.file(base, ".timeindex").unlink()


def indexes_of_another_log(brought):
    """Longer than the log, and pointing into the middle of batches."""
    for base in BASES:
        entries = [struct.pack(">ii", 2 * i + 2, 700 * i + 333) for i in range(500)]
        brought.file(base, ".index").write_bytes(b"".join(entries))
        entries = [struct.pack(">qi", START_MS + 10**7 + i, i + 1) for i in range(500)]
        brought.file(base, ".timeindex").write_bytes(b"".join(entries))


def torn_indexes(brought):
    for base in BASES:
        for suffix in (".index", ".timeindex"):
            path = brought.file(base, suffix)
            path.write_bytes(path.read_bytes()[:-3])


def deleted_segments(brought):
    for suffix in (".log", ".index", ".timeindex"):
        path = brought.file(63, suffix)
        (brought.directory / (filenames.segment_file(5, suffix) + ".deleted")).write_bytes(
            path.read_bytes()
        )


def half_cleaned(brought):
    data, _ = brought.compacted(0, 63)
    brought.file(0, ".log.cleaned").write_bytes(data[:700])
    brought.file(0, ".index.cleaned").write_bytes(bytes(64))


def half_split(brought):
    """Kafka was splitting the first segment: a part has got .swap, another is .cleaned still."""
    data, _ = brought.compacted(0)
    brought.file(0, ".log.cleaned").write_bytes(data[:700])
    brought.file(30, ".log.swap").write_bytes(data[700:])


def half_a_swap(brought):
    """The copy got only a part of the .swap file, and what it was to replace."""
    data, _ = brought.compacted(0, 63)
    brought.file(0, ".log.swap").write_bytes(data[:-5])


def an_index_without_its_log(brought):
    for suffix in (".index", ".timeindex"):
        shutil.copy(brought.file(63, suffix), brought.file(200, suffix))


def checkpoints_ahead(brought):
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (brought.path / name).write_text("0\n1\nt 0 5000\n")


def clean_mark_of_an_older_log(brought):
    (brought.path / CLEAN).write_bytes(b"")
    (brought.path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 130\n")


def stopped(brought):
    (brought.path / CLEAN).write_bytes(b"")
    (brought.path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 200\n")


def epochs(brought):
    """Also one that begins behind the log's end."""
    (brought.directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n4 100\n9 700\n")


def unreadable_companions(brought):
    (brought.directory / "leader-epoch-checkpoint").write_text("junk")
    (brought.path / "log-start-offset-checkpoint").write_text("0\n7\n")
    brought.file(127, ".snapshot").write_bytes(b"\0\x01junk")
    brought.file(127, ".txnindex").write_bytes(b"")
    (brought.directory / "partition.metadata").write_text("?")


WHOLE = [
    as_copied,
    preallocated_indexes,
    zeros_behind_the_log,
    no_indexes,
    indexes_of_another_log,
    torn_indexes,
    deleted_segments,
    half_cleaned,
    half_split,
    half_a_swap,
    an_index_without_its_log,
    checkpoints_ahead,
    clean_mark_of_an_older_log,
    stopped,
    epochs,
    unreadable_companions,
]


@pytest.mark.parametrize("state", WHOLE, ids=lambda state: state.__name__)
@pytest.mark.parametrize("clean", [False, True])
def test_nothing_of_the_log_is_lost(state, clean, brought):
    before = logs_of(brought)
    state(brought)
    if clean:
        (brought.path / CLEAN).write_bytes(b"")
    partition = brought.open(message_format_version="0.10.2")
    brought.check(partition)
    assert logs_of(brought) == before
    for suffix in (".cleaned", ".swap", ".deleted"):
        assert not list(brought.directory.glob(f"*{suffix}"))
    brought.check_goes_on(partition)


def test_half_a_swap_is_set_aside(brought):
    half_a_swap(brought)
    part = brought.file(0, ".log.swap").read_bytes()
    brought.open()
    assert brought.file(0, ".log.swap.stray").read_bytes() == part


# --- compacted segments that had not got their names ---------------------------------------------


@pytest.mark.parametrize("gone", [(), (63,), (0, 63)], ids=str)
@pytest.mark.parametrize("indexes", ["swapped", "missing", "of the old segment"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_swap_is_completed(brought, gone, indexes, clean):
    """The old segments may be there still, or only some, or none."""
    data, left = brought.compacted(0, 63)
    brought.file(0, ".log.swap").write_bytes(data)
    for suffix in (".index", ".timeindex"):
        if indexes == "swapped":
            brought.file(0, f"{suffix}.swap").write_bytes(b"")
        if indexes != "of the old segment":
            brought.file(0, suffix).unlink()
    for base in gone:
        for suffix in (".log", ".index", ".timeindex"):
            brought.file(base, suffix).unlink(missing_ok=True)
    if clean:
        stopped(brought)
    brought.offsets = [*left, *range(127, 200)]
    partition = brought.open(message_format_version="0.10.2")
    assert [segment.base_offset for segment in partition.segments] == [0, 127]
    assert brought.file(0, ".log").read_bytes() == data
    brought.check(partition)
    brought.check_goes_on(partition)


def test_a_swap_that_was_cut_off_after_its_originals_went_keeps_what_is_whole(brought):
    data, left = brought.compacted(0, 63)
    brought.file(0, ".log.swap").write_bytes(data[:-5])
    for base in (0, 63):
        brought.file(base, ".log").unlink()
    brought.offsets = [*left[:-1], *range(127, 200)]
    brought.check(brought.open())


def test_an_interrupted_swap_goes_on(brought, monkeypatch):
    """A crash at any change of a file name leaves something that the next start finishes."""
    data, left = brought.compacted(0, 63)
    for suffix in (".log", ".index", ".timeindex"):
        brought.file(0, f"{suffix}.swap").write_bytes(data if suffix == ".log" else b"")
    saved = brought.path.with_name("saved")
    shutil.copytree(brought.path, saved)
    steps = 0
    while True:
        shutil.rmtree(brought.path)
        shutil.copytree(saved, brought.path)
        budget = [steps]

        def limited(real, budget=budget):
            def call(*arguments):
                if not budget[0]:
                    raise KeyboardInterrupt
                budget[0] -= 1
                real(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name in ("rename", "unlink"):
                patch.setattr(leftovers.files, name, limited(getattr(leftovers.files, name)))
            try:
                tidy(brought.directory)
                done = True
            except KeyboardInterrupt:
                done = False
        brought.offsets = [*left, *range(127, 200)]
        brought.check(brought.open())
        kill(brought.store)
        if done:
            break
        steps += 1
    assert steps >= 8


# --- states in which something is lost ------------------------------------------------------------


def test_a_torn_tail_is_cut(brought):
    path = brought.file(127, ".log")
    path.write_bytes(path.read_bytes()[:-5])
    brought.offsets = list(range(199))
    partition = brought.open(message_format_version="0.10.2")
    brought.check(partition)
    brought.check_goes_on(partition)


def test_segments_behind_a_tear_are_set_aside_not_removed(brought):
    """A copy that was made while Kafka wrote may have the beginning of a segment, and later ones."""
    path = brought.file(63, ".log")
    path.write_bytes(path.read_bytes()[:-5])
    last = brought.file(127, ".log").read_bytes()
    brought.offsets = list(range(126))
    partition = brought.open(message_format_version="0.10.2")
    brought.check(partition)
    assert brought.file(127, ".log-cut").read_bytes() == last
    brought.check_goes_on(partition)
    assert brought.file(127, ".log-cut").read_bytes() == last


def test_a_compacted_log_has_holes(brought):
    for base in BASES:
        data, _ = brought.compacted(base)
        brought.file(base, ".log").write_bytes(data)
        brought.file(base, ".index").unlink()
    brought.offsets = [o for o in range(200) if o % 3 == 0]
    partition = brought.open(message_format_version="0.10.2")
    brought.check(partition)
    brought.check_goes_on(partition)


def test_the_start_of_a_trimmed_log(brought):
    (brought.path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 70\n")
    for suffix in (".log", ".index", ".timeindex"):
        brought.file(0, suffix).unlink()
    brought.offsets = list(range(70, 200))
    brought.check(brought.open())


def test_a_start_behind_the_end_loses_nothing(brought):
    """Kafka deletes every segment here; we only serve none of it."""
    before = logs_of(brought)
    (brought.path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 900\n")
    partition = brought.open()
    assert (partition.log_start_offset, partition.log_end_offset) == (200, 200)
    assert logs_of(brought) == before


def test_a_log_that_somebody_has_written_anew_is_not_known_by_its_old_times(brought):
    """Ours, then Kafka's again, which compacted it and stopped in order."""
    brought.open(message_format_version="0.10.2").retainer.apply_retention(0)
    brought.store.close()
    whole = brought.messages(0, 63)
    left = [offset for offset in whole if offset % 4 != 1]
    size = brought.file(0, ".log").stat().st_size
    brought.file(0, ".log").write_bytes(b"".join(whole[offset] for offset in left))
    assert brought.file(0, ".log").stat().st_size > size
    for suffix in (".log", ".index", ".timeindex"):
        brought.file(63, suffix).unlink()
    brought.offsets = [*left, *range(127, 200)]
    brought.check(brought.open(message_format_version="0.10.2"))


# --- log directories ---------------------------------------------------------------------------------


def test_what_kafka_deletes_goes_and_all_else_stays(brought):
    unique = "0123456789abcdef" * 2
    for name in (f"u-0.{unique}-delete", f"u-1.{unique}-stray", f"u-2.{unique}-future"):
        shutil.copytree(VECTORS / PLAIN, brought.path / name)
    shutil.copytree(VECTORS / PLAIN, brought.path / "__cluster_metadata-0")
    (brought.path / "meta.properties").write_text("version=1\nnode.id=1\n")
    (brought.path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    brought.open()
    assert brought.store.names() == [("t", 0)]
    brought.store.close()
    assert sorted(path.name for path in brought.path.iterdir() if path.is_dir()) == [
        "__cluster_metadata-0",
        "t-0",
        f"u-1.{unique}-stray",
        f"u-2.{unique}-future",
    ]
    assert (brought.path / "meta.properties").read_text() == "version=1\nnode.id=1\n"
    assert (brought.path / "cleaner-offset-checkpoint").exists()


def test_a_partition_in_two_directories_is_refused_and_both_stay(brought, tmp_path):
    other = Brought(tmp_path / "other")
    before = logs_of(other)
    store = LogStore([brought.path, other.path], default_config=TopicConfig())
    with pytest.raises(LogDirectoryError, match="t-0 is in"):
        store.open(0)
    assert logs_of(brought) == logs_of(other) == before


# --- the tests would notice ---------------------------------------------------------------------------


def test_a_part_of_a_swap_among_whole_ones_leaves_what_it_was_to_replace(make_log):
    log = make_log(segment_bytes=100).create()
    for now in range(4):
        log.append([now], now=now)
    log.close()
    for base in (0, 1, 3):
        path = log.directory / f"{base:020}.log"
        swap = path.with_name(path.name + ".swap")
        swap.write_bytes(path.read_bytes()[: -5 if base == 1 else None])
    log.open()
    assert [time for _, time, _ in log.contents()] == [0, 1, 2, 3]
    assert (log.directory / f"{1:020}.log.swap.stray").exists()


@pytest.mark.parametrize("suffix", [filenames.STRAY_SUFFIX, filenames.CUT_SUFFIX])
def test_what_was_set_aside_before_stays(tmp_path, suffix):
    name = f"{1:020}.log"
    for content in (b"first", b"second", b"third"):
        (tmp_path / name).write_bytes(content)
        away = leftovers.set_aside(tmp_path / name, suffix)
        assert away.read_bytes() == content
        assert not filenames.is_leftover(away.name)
        assert filenames.parse_segment_file(away.name) is None
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [
        b"first",
        b"second",
        b"third",
    ]

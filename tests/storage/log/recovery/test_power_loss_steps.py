"""Single power losses, step by step: what is on the disk then, and what opening makes of it.

`tests/storage/log_model` comes to such states by chance; here each is made by hand.
"""

import shutil
import struct
import uuid

import pytest

from tests.simulation.power_loss import Disk, PowerLoss
from tidelog.config.topic import TopicConfig
from tidelog.storage import filenames, files
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.layout import END, UNKNOWN, Layout
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.sparse_index import flush_both
from tidelog.storage.segment.time_index import TimeIndex


def path_of(log, base, suffix):
    return log.directory / filenames.segment_file(base, suffix)


def segments_of(make_log, count, **settings):
    """A log of as many segments, two records each, at 10 ms of append time per segment."""
    log = make_log(segment_bytes=100, **settings).create()
    for number in range(count):
        log.append([1000 + number, 2000 + number], now=10 * number)
    assert [s.base_offset for s in log.partition.segments] == list(range(0, 2 * count, 2))
    return log


def offsets(log):
    return [offset for offset, _, _ in log.contents()]


@pytest.fixture(params=[1, 2])
def version(request):
    return request.param


def entries(version, *pairs, base=100):
    """A file of append times; of version 1 as an older tidelog wrote it."""
    layout = Layout(base, version)
    packed = (layout.pack(n, time, offset % 2**32) for n, (time, offset) in enumerate(pairs))
    return layout.header + b"".join(packed)


def append_times(version, path, *pairs, base=100):
    path.write_bytes(entries(version, *pairs, base=base))
    times = AppendTimes(path, base)
    assert times.load()
    return times


class Calls(files.System):
    """Notes what is asked for."""

    def __init__(self):
        self.made = []
        self.names = {}

    def open(self, path, flags):
        number = super().open(path, flags)
        self.names[number] = path.name
        return number

    def sync(self, number):
        self.made.append(("sync", self.names[number]))

    def sync_data(self, number):
        self.made.append(("sync", self.names[number]))

    def write(self, number, buffers, position):
        self.made.append(("write", self.names[number]))
        return super().write(number, buffers, position)

    def rename(self, path, target):
        self.made.append(("rename", path.name))
        super().rename(path, target)

    def make_directory(self, path):
        self.made.append(("make", path.name))
        super().make_directory(path)


# --- names and bytes -----------------------------------------------------------------------------


def test_bytes_are_durable_before_they_get_a_name(tmp_path, use):
    calls = Calls()
    use(calls)
    files.replace(tmp_path / "a", b"data")
    temporary = [("write", "a.tmp"), ("sync", "a.tmp"), ("rename", "a.tmp")]
    assert calls.made == [*temporary, ("sync", tmp_path.name)]
    calls.made.clear()
    files.replace(tmp_path / "a", b"data", durable=False)
    assert calls.made == temporary
    calls.made.clear()
    files.replace(tmp_path / "a", b"data", losable=True)
    assert calls.made == [("write", "a.tmp"), ("rename", "a.tmp")]


def test_directories_made_are_durable_from_the_top(tmp_path, use):
    calls = Calls()
    use(calls)
    files.make_directories(tmp_path / "a" / "b")
    assert calls.made == [("make", "a"), ("sync", tmp_path.name), ("make", "b"), ("sync", "a")]


class Late(Calls):
    """Files of a process that another one is always just ahead of, which makes a directory or a file."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def make_directory(self, path):
        self.other(path)
        super().make_directory(path)


def test_two_processes_make_the_same_directories(tmp_path, use):
    calls = Late(lambda path: path.mkdir())
    use(calls)
    files.make_directories(tmp_path / "a" / "b")
    assert calls.made == [("make", "a"), ("sync", tmp_path.name), ("make", "b"), ("sync", "a")]
    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path, use):
    use(Late(lambda path: path.touch()))
    with pytest.raises(FileExistsError):
        files.make_directories(tmp_path / "a")


@pytest.mark.parametrize("counts", [False, True])
def test_no_power_loss_leaves_an_index_with_an_older_one_of_the_other(tmp_path, use, counts):
    """The indexes are made anew with twice the entries; the power goes in every call of it."""
    for fails_at in range(1, 40):
        root = tmp_path / f"{fails_at}-{counts}"
        root.mkdir()
        disk = Disk(root)
        use(disk)
        for number, interval in enumerate((2, 1)):
            index, time_index = OffsetIndex(root / "i", 0), TimeIndex(root / "t", 0)
            for offset in range(0, 8, interval):
                index.append(offset, 100 * offset)
                time_index.append(5000 + offset, offset)
            if number:
                disk.fails_at, disk.failing_call_counts = disk.calls + fails_at, counts
            try:
                flush_both(index, time_index)
                for path in (root / "i", root / "t", root):
                    files.sync(path)
            except PowerLoss:
                break
        top = disk._top
        for names in (top.now, top.durable, top.durable | top.now, top.now | top.durable):
            sizes = {len(names[n].now) // size for n, size in (("i", 8), ("t", 12)) if n in names}
            assert "i" not in names or "t" not in names or len(sizes) == 1, (fails_at, names)
        if not disk.is_off:
            return
    pytest.fail("the power never stayed on")


def test_what_recovery_cuts_off_does_not_come_back(make_log, tmp_path, use):
    log = make_log().create()
    log.append([1, 2], now=5)
    log.close()
    (log.path / filenames.CLEAN_SHUTDOWN_FILE).unlink()
    for suffix in (".log", ".appendtimes"):
        with path_of(log, 0, suffix).open("ab") as file:
            file.write(b"rubbish rubbish!")
    (log.directory / filenames.segment_file(7, ".snapshot")).write_bytes(b"")
    disk = Disk(log.path)
    use(disk)
    log.open()
    assert offsets(log) == [0, 1]
    node = disk._find(log.directory)
    for suffix in (".log", ".appendtimes"):
        file = node.now[filenames.segment_file(0, suffix)]
        assert not file.pending
        assert b"rubbish" not in file.durable
    assert filenames.segment_file(7, ".snapshot") not in node.durable


# --- where a log begins and ends -----------------------------------------------------------------


def lose(log, *names):
    for base, suffix in names:
        path_of(log, base, suffix).unlink()


def test_an_emptied_file_of_append_times_shows_that_a_segment_is_ours(make_log):
    """What comes behind the hole then is cut off, and no batch is taken for one at another offset."""
    log = segments_of(make_log, 3)
    log.crash()
    lose(log, (2, ".log"))
    path_of(log, 0, ".appendtimes").write_bytes(b"")
    path_of(log, 4, ".appendtimes").write_bytes(b"")
    (log.directory / partition_times.FILE_NAME).unlink()
    log.open()
    assert log.partition.log_end_offset == 2
    assert offsets(log) == [0, 1]


def test_a_segment_of_ours_begins_where_the_one_before_ends(make_log):
    log = segments_of(make_log, 3)
    log.crash()
    lose(log, (2, ".log"))
    path_of(log, 0, ".appendtimes").unlink()  # so the first one may be another program's
    (log.directory / partition_times.FILE_NAME).unlink()
    log.open()
    assert log.partition.log_end_offset == 2
    assert offsets(log) == [0, 1]


def test_a_log_that_holds_nothing_does_not_end_behind_a_hole(make_log):
    """Nobody reads from 0 to 18 when there is no batch."""
    log = make_log().create()
    log.crash()
    (log.directory / partition_times.FILE_NAME).unlink()
    path_of(log, 18, ".log").write_bytes(b"")
    log.open()
    assert (log.partition.log_start_offset, log.partition.log_end_offset) == (0, 0)
    assert not path_of(log, 18, ".log").exists()


def test_a_log_begins_with_the_first_segment_that_holds_something(make_log):
    log = segments_of(make_log, 2)
    log.crash()
    path_of(log, 0, ".log").write_bytes(b"")
    lose(log, (0, ".appendtimes"), (2, ".appendtimes"))
    (log.directory / partition_times.FILE_NAME).unlink()
    log.open()
    assert log.partition.log_start_offset == 2
    assert offsets(log) == [2, 3]


def test_a_batch_at_an_offset_beyond_its_segment_is_cut_off(make_log):
    """The base offset of format 2 is outside its checksum, and the segment may be another program's."""
    log = make_log(index_interval_bytes=0).create()
    for _ in range(2):
        log.append([1])
    log.crash()
    path = path_of(log, 0, ".log")
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, len(data) // 2, 2**40)
    path.write_bytes(data)
    lose(log, (0, ".appendtimes"))
    (log.directory / partition_times.FILE_NAME).unlink()
    log.open()
    assert offsets(log) == [0]


def deleted(make_log, tmp_path, *back, **settings):
    """A log whose first three segments retention has deleted, and some of them are back."""
    log = segments_of(make_log, 4, retention_bytes=1, retention_ms=-1, **settings)
    log.partition.flush()
    log.copy_to(tmp_path / "before")
    log.partition.config = log.config
    log.partition.retainer.apply_retention(1000)
    assert log.partition.log_start_offset == 6
    log.crash()
    for base in back:
        for path in (tmp_path / "before" / "t-0").glob(filenames.segment_file(base, ".*")):
            shutil.copy(path, log.directory)
    return log


def test_deleted_segments_that_are_back_cut_nothing_off(make_log, tmp_path):
    log = deleted(make_log, tmp_path, 0, 4)
    path = path_of(log, 4, ".log")
    path.write_bytes(path.read_bytes()[:-3])
    log.open()
    assert [s.base_offset for s in log.partition.segments] == [0, 4, 6]
    assert [s.tail.size for s in log.partition.segments][1] == 0
    assert (log.partition.log_start_offset, log.partition.log_end_offset) == (6, 8)
    assert offsets(log) == [6, 7]
    assert log.partition.retainer.apply_retention(2000)[1].base_offset == 4


def test_who_wrote_before_a_hole_is_not_known_by_an_old_sequence(make_log):
    log = make_log(segment_bytes=100, retention_bytes=1, retention_ms=-1).create()
    for sequence in range(4):
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        log.append([1], **(producer if sequence < 3 else {}))
    log.partition.flush()
    log.partition.retainer.delete_records_before(3)
    log.crash()
    lose(log, (2, ".log"), (1, ".snapshot"), (2, ".snapshot"), (3, ".snapshot"))
    log.open()
    assert log.partition.log_start_offset == 3
    assert log.partition.state.read_producers().get(5) is None


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_topics_checkpoint_hides_nothing_of_a_new_one(make_log, restarts):
    log = make_log().create()
    log.append([1, 2, 3])
    log.partition.retainer.delete_records_before(2)
    log.store.checkpoint()
    checkpoint = log.path / filenames.LOG_START_CHECKPOINT
    assert checkpoint.read_bytes() == b"0\n1\nt 0 2\n"
    log.store.delete_topic("t")
    if restarts:
        log.crash()
        log.store = LogStore([log.path], default_config=log.config)
        log.store.open(0)
        log.store.create_partition("u", uuid.UUID(int=8), 0, TopicConfig(), 0)
        log.store.checkpoint()  # which no longer speaks of it
    log.partition = log.store.create_partition("t", uuid.UUID(int=9), 0, log.config, 0)
    log.append([4, 5, 6])
    log.store.checkpoint()
    assert checkpoint.read_bytes() == b"0\n0\n"
    log.crash()
    log.open()
    assert log.partition.recovery_point == 3
    assert offsets(log) == [0, 1, 2]


# --- append times --------------------------------------------------------------------------------


class _AppendsBesideAFlush(Calls):
    """Lets a log append when a flush has synced its segments, and syncs the directory."""

    log = None

    def sync(self, number):
        super().sync(number)
        log = self.log
        if log is not None and self.names[number] == log.directory.name:
            self.log = None  # once
            log.append([3000, 4000], now=20)


def test_the_end_of_append_times_that_a_roll_writes_during_a_flush_is_synced_by_the_next(
    make_log, use
):
    calls = _AppendsBesideAFlush()
    use(calls)
    log = calls.log = segments_of(make_log, 1)
    log.partition.flush()
    assert [segment.base_offset for segment in log.partition.segments] == [0, 2]
    assert log.partition.recovery_point == 1
    calls.made.clear()
    assert log.partition.flush() == 4
    assert ("sync", path_of(log, 0, ".appendtimes").name) in calls.made
    assert log.partition.recovery_point == 4


def test_a_time_behind_the_end_is_one_too_many(version, tmp_path):
    times = append_times(version, tmp_path / "a", (5, 0), (7, 4), (9, 8))
    assert times.confirm(5, 7), "the batch at 108 has been lost, its time has not"
    assert [times.at(offset) for offset in (100, 104)] == [5, 7]


def test_a_segment_without_a_batch_confirms_no_append_times(make_log):
    log = make_log().create()
    log.append([1], now=5)
    log.partition.flush()
    log.crash()
    path_of(log, 0, ".log").write_bytes(b"")
    log.open()
    log.append([1], now=7)
    assert [log.partition.reader.append_time_of(0)] == [7]
    assert log.partition.unknown_append_bytes is None


def test_an_end_vouches_where_more_was_known_than_is_durable(version, tmp_path):
    path = tmp_path / "a"
    times = append_times(version, path, (5, 0), (7, 4), (END, 6))
    assert not times.confirm(5, 9), "partition.times knows of a batch at 9"
    assert [times.at(offset) for offset in (100, 105, 106)] == [5, 7, None]
    assert path.read_bytes() == entries(version, (5, 0), (7, 4), (UNKNOWN, 6), (END, 6))


def test_what_was_covered_stays_known_where_more_was_known_than_is_durable(version, tmp_path):
    times = append_times(version, tmp_path / "a", (5, 0))
    assert not times.confirm(5, 9, 106)
    assert [times.at(offset) for offset in (100, 105, 106)] == [5, 5, None]
    times = append_times(version, tmp_path / "b", (5, 0))
    assert not times.confirm(5, 9)
    assert [times.at(offset) for offset in (100, 101)] == [5, None]


def test_partition_times_says_up_to_where_append_times_are_covered(make_log):
    log = make_log().create()
    log.append([1, 2, 3], now=5)
    log.partition.flush()
    early = path_of(log, 0, ".appendtimes").read_bytes()
    log.append([4], now=9)
    log.partition.retainer.delete_records_before(
        1
    )  # partition.times tells of 9, .appendtimes is not synced
    log.crash()
    path_of(log, 0, ".appendtimes").write_bytes(early)
    log.open()
    assert [log.partition.reader.append_time_of(offset) for offset in (1, 2, 3)] == [5, 5, None]


@pytest.mark.parametrize(
    "rubbish", [((-9, 77),), ((-9, -5), (8, 4)), ((9, 2), (8, 3))], ids=["time", "back", "small"]
)
def test_rubbish_behind_what_was_durable_makes_nothing_of_it_unknown(version, tmp_path, rubbish):
    path = tmp_path / "a"
    times = append_times(version, path, (5, 0), (7, 3), *rubbish)
    assert not times.check(106)
    assert [times.at(offset) for offset in (100, 103, 105, 106)] == [5, 7, 7, None]
    assert path.read_bytes() == entries(version, (5, 0), (7, 3), (UNKNOWN, 6))


def test_an_end_in_the_middle_goes_on_vouching_once_it_has_been_found(version, tmp_path):
    path = tmp_path / "a"
    times = append_times(version, path, (5, 0), (7, 3), (END, 9), (-77, 123456))
    assert not times.check(100)
    again = AppendTimes(path, 100)
    assert again.load()
    assert again.end_offset == times.end_offset == 109
    assert [again.at(offset) for offset in (100, 108, 109)] == [5, 7, None]


@pytest.mark.parametrize("first", [UNKNOWN, 5])
def test_durable_append_times_stay_known_where_the_end_that_a_roll_writes_is_lost(
    make_log, tmp_path, use, first
):
    """Of a segment with unknown append times `partition.times` does not confirm the last one."""
    log = make_log().create()
    log.append([1], now=5)
    if first == UNKNOWN:
        log.crash()
        log.open(5, boot_id="another")
    log.append([2], now=7)
    log.append([3], now=7)
    log.store.checkpoint()
    log.crash()
    disk = Disk(log.path)
    use(disk)
    log.open(8, boot_id="another" if first == UNKNOWN else "")
    roll(log.partition.state)
    log.crash()
    use(files.System())
    lost = log.copy_to(tmp_path / "lost")
    times = path_of(lost, 0, filenames.APPEND_TIMES_SUFFIX)
    times.write_bytes(disk._find(path_of(log, 0, filenames.APPEND_TIMES_SUFFIX)).durable)
    lost.open(9, boot_id="after a power loss")
    assert [segment.base_offset for segment in lost.partition.segments] == [0, 3]
    read = lost.partition.reader.append_time_of
    assert [read(offset) for offset in range(3)] == [None if first == UNKNOWN else first, 7, 7]


def test_a_commit_makes_the_name_of_the_first_append_times_durable(make_log, use):
    """The segment's other files were made durable when it was still empty."""
    log = segments_of(make_log, 1, flush_messages=1)
    log.partition.config = TopicConfig(flush_messages=1, segment_bytes=100)
    roll(log.partition.state)
    disk = Disk(log.path)
    use(disk)
    log.partition.flush()
    log.append([1, 2], now=7)
    log.partition.commit()
    node = disk._find(log.directory)
    assert filenames.segment_file(2, ".appendtimes") in node.durable


def test_what_was_cut_off_leaves_no_mark_of_unknown_times(make_log):
    log = make_log().create()
    log.append([1, 2], now=5)
    log.partition.flush()
    log.crash()
    with path_of(log, 0, ".appendtimes").open("ab") as file:
        file.write(struct.pack(">qi", -9, 77))
    log.open()
    assert log.partition.reader.append_time_of(1) == 5
    assert log.partition.unknown_append_bytes is None


# --- time indexes --------------------------------------------------------------------------------


def test_a_sealed_segments_time_index_without_the_largest_time_is_made_anew(make_log):
    log = segments_of(make_log, 2, index_interval_bytes=0)
    log.append([3000], now=50)
    log.close()
    path = path_of(log, 2, ".timeindex")
    assert path.read_bytes() == struct.pack(">qi", 2001, 1)
    path.write_bytes(b"")
    known = partition_times.read(log.directory)
    lines = [line._replace(time_index_entries=0) for line in known.segments]
    partition_times.write(
        log.directory,
        partition_times.pack(known._replace(segments=tuple(lines))),
        durable=False,
    )
    log.open()
    assert log.partition.reader.find_by_time(1001, upper_offset=5) == (1, 2000)
    assert log.partition.reader.find_by_time(2001, upper_offset=5) == (3, 2001)
    assert path.read_bytes() == struct.pack(">qi", 2001, 1)

"""Retention beside others, and on disks that fail: who waits for it, and what a restart finds."""

import errno
import sys
import threading
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from tests.simulation.disks import Disk
from tidelog.protocol.errors import KafkaStorageError, OffsetOutOfRange
from tidelog.protocol.records.batch import scan
from tidelog.storage import files
from tidelog.storage.log import reader, slices
from tidelog.storage.log.retention import retainer
from tidelog.storage.log.retention.retainer import Retainer
from tidelog.storage.log.times import partition_times

VALUE = [b"x" * 200]


class Erring(Disk):
    """A disk that answers an error where `refuses` says so, of what is asked and the path."""

    def __init__(self):
        super().__init__()
        self.refuses = lambda _what, _path: False
        self.reading = lambda: None  # is called before every read

    def _check(self, what, path):
        if self.refuses(what, path):
            raise OSError(errno.EIO, "Input/output error")

    def rename(self, path, target):
        self._check("rename", path)
        super().rename(path, target)

    def unlink(self, path):
        self._check("unlink", path)
        super().unlink(path)

    def read(self, number, size, position):
        self.reading()
        return super().read(number, size, position)


@pytest.fixture
def disk():
    disk = Erring()
    before = files.use(disk)
    yield disk
    files.use(before)


@pytest.fixture
def log(make_log, disk):
    """Three segments that are old and one that is not."""
    log = make_log(segment_bytes=300, retention_ms=100, file_delete_delay_ms=0).create()
    for now in (1, 2, 3, 500):
        log.append([now], now=now, values=VALUE)
    log.store.checkpoint()
    return log


def forget_times(log):
    """Have the times of all segments read from the log."""
    log.crash()
    (log.directory / partition_times.FILE_NAME).unlink()
    log.open()


# --- who waits ------------------------------------------------------------------------------------


def while_it_judges(log, disk, meanwhile):
    """Do something while retention reads a log whose times nobody knows; return what went."""
    forget_times(log)
    log.partition.appender.read_for_appends()
    reads, go_on = threading.Event(), threading.Event()

    def reading():
        if threading.current_thread() is thread:
            reads.set()
            assert go_on.wait(200)

    def run():
        try:
            outcome.append(log.partition.retainer.apply_retention(500))
        except KafkaStorageError as error:
            outcome.append(error)

    outcome = []
    thread = threading.Thread(target=run)
    disk.reading = reading
    thread.start()
    assert reads.wait(60), "retention read nothing"
    doing = threading.Thread(target=meanwhile)
    doing.start()
    doing.join(60)
    waited = doing.is_alive()
    go_on.set()
    thread.join(60)
    doing.join(60)
    assert not waited, "it waited for retention"
    return [deletion.base_offset for deletion in outcome[0]]


def test_a_commit_does_not_wait_for_what_retention_reads(log, disk):
    def commit():
        log.append([501], now=501, values=VALUE)
        assert log.partition.commit() == 5

    assert while_it_judges(log, disk, commit) == [0, 1, 2]
    assert log.partition.log_start_offset == 3


def test_settings_changed_meanwhile_hold(log, disk):
    def keep():
        log.partition.config = replace(log.config, retention_ms=-1)

    assert while_it_judges(log, disk, keep) == []
    assert log.partition.log_start_offset == 0


def test_what_others_deleted_meanwhile_is_deleted_once(log, monkeypatch):
    deleted = []

    partition, judge = log.partition, Retainer._judge

    def judge_and_lose(self, version, now_ms):
        judged = judge(self, version, now_ms)
        if not deleted:
            monkeypatch.setattr(Retainer, "_judge", judge)
            deleted.extend(d.base_offset for d in partition.retainer.apply_retention(now_ms))
        return judged

    monkeypatch.setattr(Retainer, "_judge", judge_and_lose)
    assert (partition.retainer.apply_retention(500), deleted) == ([], [0, 1, 2])
    assert [offset for offset, _, _ in log.contents()] == [3]


# --- who reads ------------------------------------------------------------------------------------


class AtLine:
    """Has something done when the n-th line of these modules is about to run, as another thread may do it."""

    def __init__(self, number, modules, action):
        self.number, self.action = number, action
        self.files = {module.__file__ for module in modules}
        self.lines = 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    @property
    def is_done(self):
        return self.lines >= self.number

    def _called(self, frame, _event, _argument):
        return self._passed if frame.f_code.co_filename in self.files else None

    def _passed(self, _frame, event, _argument):
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                self.action()
        return self._passed


def read_one(partition, upper_offset, told):
    """Read at offset 1: the offset that comes, "nothing", or that it is out of range."""
    try:
        fetched = partition.read(1, 1, upper_offset=upper_offset, minimum_one=True)
    except OffsetOutOfRange:
        told.append("out of range")
    else:
        found = [batch.base_offset for data in fetched.buffers for batch in scan(data)]
        told.append(found[0] if found else "nothing")


def told_in_between(make_log, upper_offset, is_retention_first):
    """What a read is told where retention comes between two of its lines, any two, or the other way round."""
    told = []
    for number in count(1):
        log = make_log(f"{number}", segment_bytes=300, retention_ms=100, file_delete_delay_ms=0)
        log.create()
        for now in (1, 2, 3, 500):
            log.append([now], now=now, values=VALUE)
        read = partial(read_one, log.partition, upper_offset, told)
        delete = partial(log.partition.retainer.apply_retention, 500)
        first, second = (delete, read) if is_retention_first else (read, delete)
        modules = [retainer] if is_retention_first else [reader, slices]
        with AtLine(number, modules, second) as between:
            first()
        log.close()
        if not between.is_done:
            break
    assert number > 10
    return told


@pytest.mark.parametrize("upper_offset", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_retention_first", [False, True])
def test_what_retention_takes_is_read_or_out_of_range(make_log, upper_offset, is_retention_first):
    """Never nothing, as if it were still to come, nor what lies behind it, as if it had not been."""
    told = told_in_between(make_log, upper_offset, is_retention_first)
    assert set(told) == {1, "out of range"}


# --- disks that fail ------------------------------------------------------------------------------


FAILURES = {
    "times": lambda what, path: what == "rename" and path.name.startswith("partition.times"),
    "the first": lambda what, path: what == "rename" and path.name == f"{0:020d}.log",
    "the second": lambda what, path: what == "rename" and path.name == f"{1:020d}.log",
    "an index": lambda what, path: what == "rename" and path.name == f"{1:020d}.index",
    "append times": lambda what, path: what == "rename" and path.suffix == ".appendtimes",
    "a snapshot": lambda what, path: what == "unlink" and path.suffix == ".snapshot",
}


@pytest.mark.parametrize("stop", ["close", "crash", "checkpoint and crash"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("again", [False, True])
def test_memory_and_disk_agree_where_a_deletion_fails(log, disk, failure, stop, again):
    disk.refuses = FAILURES[failure]
    fails = failure in ("times", "the first", "the second")
    if fails:
        with pytest.raises(KafkaStorageError, match="retention failed"):
            log.partition.retainer.apply_retention(500)
    else:
        assert [d.base_offset for d in log.partition.retainer.apply_retention(500)] == [0, 1, 2]
    disk.refuses = lambda _what, _path: False
    assert [offset for offset, _, _ in log.contents()] == [3]
    on_disk = sorted(int(path.stem) for path in log.directory.glob("*.log"))
    assert [segment.base_offset for segment in log.partition.segments] == on_disk
    if again:
        log.partition.retainer.apply_retention(500)
        assert [segment.base_offset for segment in log.partition.segments] == [3]
        log.partition.retainer.apply_retention(500)
        assert {path.name[:20] for path in log.directory.glob("0*.log*")} == {f"{3:020d}"}
    if stop.startswith("checkpoint"):
        log.store.checkpoint()
    log.crash() if stop.endswith("crash") else log.close()
    log.open()
    partition = log.partition
    if failure == "times" and stop == "crash" and not again:
        assert (
            partition.log_start_offset == 0
        )  # as if retention had not been: nothing told the disk
    else:
        assert partition.log_start_offset == 3
    log.append([502], now=502, values=VALUE)
    assert [offset for offset, _, _ in log.contents()] == list(range(partition.log_start_offset, 5))
    partition.retainer.apply_retention(500)
    assert [segment.base_offset for segment in partition.segments] == [3, 4]


def test_offline_is_noted_as_soon_as_the_disk_takes_it(log, disk):
    """Else a start on the same boot would trust append times that the disk may have lost."""
    times = log.directory / partition_times.FILE_NAME
    for ask in (log.store.checkpoint, log.close):
        log.append([501], now=501, values=VALUE)
        disk.refuses = FAILURES["times"]
        disk.failures = 1
        with pytest.raises(KafkaStorageError):
            log.partition.flush()
        assert log.partition.offline is not None
        assert partition_times.read(times.parent).boot_id == ""
        disk.refuses = lambda _what, _path: False
        if ask == log.close:
            with pytest.raises(KafkaStorageError, match="offline"):
                ask()
        else:
            ask()
            log.crash()
        assert partition_times.read(times.parent).boot_id == "offline"
        log.open()
        assert partition_times.read(times.parent).boot_id == ""

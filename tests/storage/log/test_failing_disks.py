"""A disk that fails: an append that fails leaves the log as it was, and what cannot be cut is cut later."""

import errno
import os

import pytest

from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import files


class Disk:
    """Writes fail from the `allowed`-th byte on."""

    def __init__(self, monkeypatch, code=errno.ENOSPC):
        self.allowed, self.code, self.pwritev = None, code, os.pwritev
        monkeypatch.setattr(files.os, "pwritev", self)

    def __call__(self, number, buffers, position):
        if self.allowed is None:
            return self.pwritev(number, buffers, position)
        if self.allowed == 0:
            raise OSError(self.code, os.strerror(self.code))
        data = b"".join(buffers)[: self.allowed]
        self.allowed -= len(data)
        return self.pwritev(number, [data], position)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_leaves_the_log_as_it_was(log, monkeypatch, code):
    log.append([1, 2], now=5)
    size = log.partition.size
    disk = Disk(monkeypatch, code)
    data = b"x" * 40
    # 12 bytes are the append time's entry, then the batch.
    for allowed in range(0, 119, 3):
        disk.allowed = allowed
        with pytest.raises(KafkaStorageError, match="t-0: the records were not stored: "):
            log.append([3], now=6, values=[data])
        assert log.partition.log_end_offset == 2
        assert log.partition.segments[0].path.stat().st_size == size
        assert log.partition.last_append_time == 5
        assert [r[1] for r in log.contents()] == [1, 2]
    disk.allowed = None
    assert log.append([3], now=7, values=[data]).base_offset == 2
    assert [r[1] for r in log.contents()] == [1, 2, 3]
    assert log.partition.reader.append_time_of(2) == 7
    log.crash()
    log.open()
    assert [r[1] for r in log.contents()] == [1, 2, 3]
    assert log.partition.reader.append_time_of(2) == 7


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failed_write_takes_a_log_offline_that_others_have_too(log, monkeypatch, code):
    log.append([1, 2])
    log.partition.roles.lead(1)
    disk = Disk(monkeypatch, code)
    disk.allowed = 20
    with pytest.raises(KafkaStorageError, match="the records were not stored: "):
        log.append([3])
    assert log.partition.offline == f"the records were not stored: {os.strerror(code)}"
    assert not log.partition.is_full
    disk.allowed = None
    with pytest.raises(KafkaStorageError, match=os.strerror(code)):
        log.append([3])


def test_a_short_write_is_carried_on(log, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(
        files.os,
        "pwritev",
        lambda number, buffers, position: real(number, [b"".join(buffers)[:7]], position),
    )
    log.append([1, 2])
    assert [r[1] for r in log.contents()] == [1, 2]


def test_a_roll_that_fails_refuses_the_append_and_is_tried_again(make_log, monkeypatch):
    log = make_log(segment_bytes=150).create()
    log.append([1], values=[b"x" * 30])
    real = files.Descriptor.__init__

    def full(descriptor, path, *, writable=False):
        descriptor.number = -1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files.Descriptor, "__init__", full)
    with pytest.raises(KafkaStorageError, match="No space left"):
        log.append([2], values=[b"x" * 30])
    monkeypatch.setattr(files.Descriptor, "__init__", real)
    assert log.append([3], values=[b"x" * 30]).base_offset == 1
    assert [r[1] for r in log.contents()] == [1, 3]
    log.crash()
    log.open()
    assert [r[1] for r in log.contents()] == [1, 3]


def test_an_unreadable_log_is_a_storage_error(log, monkeypatch):
    log.append([1])

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "read_at", broken)
    with pytest.raises(KafkaStorageError, match="t-0: the log cannot be read: Input/output error"):
        log.read(0)


def test_a_full_disk_is_logged_once(log, monkeypatch, caplog):
    Disk(monkeypatch).allowed = 0
    for _ in range(5):
        with pytest.raises(KafkaStorageError):
            log.append([1])
    assert [r.message for r in caplog.records] == ["storage error"]
    monkeypatch.undo()
    log.append([1])
    log.partition.flush()
    Disk(monkeypatch).allowed = 0
    with pytest.raises(KafkaStorageError):
        log.append([1])
    assert len(caplog.records) == 2


def test_a_log_that_cannot_be_cut_back_is_cut_before_the_next_append(make_log, monkeypatch):
    log = make_log(message_format_version="0.10.0").create()
    log.append([1], now=5, magic=1)
    disk = Disk(monkeypatch)

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    # An append time, two of three messages, and then nothing works.
    disk.allowed = 12 + 2 * 37 + 5
    monkeypatch.setattr(os, "truncate", broken)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="Input/output error"):
            log.append([2, 3, 4], now=6, magic=1)
    assert [r[1] for r in log.contents()] == [1]
    assert log.partition.segments[0].path.stat().st_size > log.partition.size
    monkeypatch.undo()
    log.append([5], now=9, magic=1)
    for _ in range(2):
        assert [r[1] for r in log.contents()] == [1, 5]
        assert [log.partition.reader.append_time_of(o) for o in (0, 1)] == [5, 9]
        log.crash()
        log.open()


def test_a_ragged_log_is_not_closed_as_a_clean_one(make_log, monkeypatch):
    log = make_log().create()
    log.append([1], now=5)
    disk = Disk(monkeypatch)

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    disk.allowed = 40
    monkeypatch.setattr(os, "truncate", broken)
    with pytest.raises(KafkaStorageError):
        log.append([2], now=6)
    disk.allowed = None
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        log.close()
    monkeypatch.undo()
    log.open()
    assert [r[1] for r in log.contents()] == [1]
    disk = Disk(monkeypatch)
    disk.allowed = 40
    monkeypatch.setattr(os, "truncate", broken)
    with pytest.raises(KafkaStorageError):
        log.append([2], now=6)
    monkeypatch.undo()
    log.close()  # the disk has recovered, and so has the log
    log.open()
    assert [r[1] for r in log.contents()] == [1]
    assert log.append([3], now=7).base_offset == 1


def test_a_roll_that_fails_half_way_leaves_no_segment_behind(make_log):
    """The next batch may go into the old segment, and recovery would cut it off at the new one."""

    class FewFiles(files.System):
        def open(self, path, flags):
            if path.name == f"{2:020}.appendtimes":
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, flags)

    log = make_log(segment_bytes=300).create()
    log.append([1], now=1)
    log.append([2], now=2)
    before = files.use(FewFiles())
    try:
        with pytest.raises(KafkaStorageError, match="Too many open files"):
            log.append([3], now=3, values=[bytes(120)])
    finally:
        files.use(before)
    log.append([3], now=3)
    assert len(log.partition.segments) == 1, "it was to fit"
    log.crash()
    log.open()
    assert [time for _, time, _ in log.contents()] == [1, 2, 3]

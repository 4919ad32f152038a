"""Reserves: made if there is room, given up for a write that finds none, and made again."""

import errno
import os

import pytest

from storage import files, reserves
from storage.files import System

SIZE = 1 << 16


class NoRoom(System):
    """A disk on which a write finds room only once the reserve is gone."""

    def __init__(self, reserve, number=errno.ENOSPC):
        self.reserve, self.number = reserve, number

    def write(self, number, buffers, position):
        if self.reserve.exists():
            raise OSError(self.number, "no room")
        return super().write(number, buffers, position)


@pytest.fixture
def free(monkeypatch):
    """How much is free, as the reserves see it."""
    found = {"bytes": 0}
    monkeypatch.setattr(reserves, "free_bytes", lambda _path: found["bytes"])
    return found


@pytest.fixture
def directory(tmp_path):
    reserves.begin(tmp_path, SIZE)
    yield tmp_path
    reserves.end(tmp_path)


@pytest.fixture
def use():
    before = files.use(System())
    yield files.use
    files.use(before)


def test_a_reserve_takes_room(directory):
    found = (directory / "reserve").stat()
    assert found.st_size == SIZE
    assert found.st_blocks * 512 >= SIZE, "a hole would be no reserve"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_is_tried_again(directory, free, use, number):
    use(NoRoom(directory / "reserve", number))
    (directory / "t-0").mkdir()
    files.replace(directory / "t-0" / "checkpoint", b"content")
    assert (directory / "t-0" / "checkpoint").read_bytes() == b"content"
    reserve = reserves.of(directory)
    assert reserve.is_given_up
    with pytest.raises(OSError, match="for deletions"):
        reserve.check()
    free["bytes"] = 2 * SIZE - 1
    reserve.make_again()
    assert reserve.is_given_up, "the disk would be full again"
    free["bytes"] = 2 * SIZE
    reserve.make_again()
    reserve.check()
    assert (directory / "reserve").stat().st_size == SIZE


@pytest.mark.parametrize(("number", "room"), [(errno.EIO, 0), (errno.ENOSPC, SIZE)])
def test_nothing_is_given_up_where_that_does_not_help(directory, free, use, number, room):
    free["bytes"] = room
    use(NoRoom(directory / "reserve", number))
    with pytest.raises(OSError, match="no room"):
        files.replace(directory / "checkpoint", b"content")
    assert (directory / "reserve").exists()
    assert not reserves.of(directory).is_given_up


def test_a_second_write_without_room_fails(directory, free, use):
    (directory / "reserve").unlink()
    use(NoRoom(directory))
    with pytest.raises(OSError, match="no room"):
        files.replace(directory / "checkpoint", b"content")


def test_a_stop_takes_it_away_and_a_start_takes_another_size(directory):
    reserves.end(directory)
    assert not (directory / "reserve").exists()
    reserves.begin(directory, 2 * SIZE)
    assert (directory / "reserve").stat().st_size == 2 * SIZE
    reserves.begin(directory, 0)
    assert not (directory / "reserve").exists()


def test_a_directory_without_a_reserve_refuses_nothing(tmp_path):
    reserve = reserves.of(tmp_path)
    reserve.check()
    reserve.make_again()
    assert list(tmp_path.iterdir()) == []


def test_a_start_takes_what_there_is(tmp_path, monkeypatch):
    def allocate(number, position, size):
        if size > SIZE // 3:
            raise OSError(errno.ENOSPC, "no room")
        os.ftruncate(number, position + size)

    monkeypatch.setattr(reserves.os, "posix_fallocate", allocate)
    reserves.begin(tmp_path, SIZE)
    assert (tmp_path / "reserve").stat().st_size == SIZE // 4
    reserves.begin(tmp_path, 16 * SIZE)
    assert not (tmp_path / "reserve").exists()
    assert not reserves.of(tmp_path).is_given_up, "appends may use what there is"
    reserves.end(tmp_path)

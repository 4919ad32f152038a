"""Reserves: made if there is room, given up for a write that finds none, and made again."""

import errno
import os
import threading

import pytest

from tidelog.storage import files, reserves
from tidelog.storage.files import System

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


def test_it_has_an_eighth_of_its_volume_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(reserves, "_volume_bytes", lambda _path: 4 * SIZE)
    reserves.begin(tmp_path, SIZE)
    assert (tmp_path / "reserve").stat().st_size == reserves.of(tmp_path).size == SIZE // 2
    reserves.end(tmp_path)


def test_it_is_given_up_while_it_is_made_again(directory, free, monkeypatch):
    """A write that finds no room meanwhile leaves no records accepted without a reserve."""
    allocate, reserve = os.posix_fallocate, reserves.of(directory)
    write = threading.Thread(target=reserves.give_up, args=(directory / "checkpoint",))

    def allocate_late(number, position, size):
        allocate(number, position, size)
        free["bytes"] = 0
        write.start()
        write.join(0.2)  # it waits, unless both may change the reserve at the same time

    assert reserves.give_up(directory / "checkpoint")
    free["bytes"] = 2 * SIZE
    monkeypatch.setattr(reserves.os, "posix_fallocate", allocate_late)
    reserve.make_again()
    write.join()
    assert reserve.is_given_up
    assert not (directory / "reserve").exists()


def test_two_writes_that_find_no_room_share_what_is_given_up(directory, free, use):
    """The second asks when the first has made room already: it is tried again, too."""

    class Overtaken(NoRoom):
        def write(self, number, buffers, position):
            try:
                return super().write(number, buffers, position)
            except OSError:
                assert reserves.give_up(directory / "other")
                free["bytes"] = SIZE
                raise

    use(Overtaken(directory / "reserve"))
    files.replace(directory / "checkpoint", b"content")
    assert (directory / "checkpoint").read_bytes() == b"content"


def test_it_is_not_made_again_after_a_stop(directory, free):
    reserve = reserves.of(directory)
    assert reserves.give_up(directory / "checkpoint")
    reserves.end(directory)
    free["bytes"] = 2 * SIZE
    reserve.make_again()
    assert not (directory / "reserve").exists()

"""Who starts on the directories of another broker waits only if that one is about to end."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from tidelog.broker.logs.log_dir_locks import lock_directories
from tidelog.config.topic import TopicConfig
from tidelog.storage.directory.log_directory import LogDirectoryError
from tidelog.storage.directory.store import LogStore
from tidelog.storage.lock_file import LockFile


class Moved:
    """A monotonic clock that stands still until it is moved."""

    now_s = 0.0

    def monotonic_s(self):
        return self.now_s


@pytest.fixture
def clock():
    return Moved()


@pytest.fixture
def other(tmp_path):
    """The lock of another broker."""
    lock = LockFile(tmp_path / ".lock", for_java=True)
    yield lock
    with contextlib.suppress(IndexError):  # it has been released
        lock.release()


@pytest.fixture
async def starting(tmp_path, other, clock):
    """The attempt of a broker to lock the directory of the other, which it has made already."""
    store, stop = LogStore([tmp_path], default_config=TopicConfig()), asyncio.Event()
    task = asyncio.ensure_future(lock_directories(store, stop, clock))
    task.stop = stop
    await asyncio.sleep(0)
    yield task
    store.close()


async def fails(task):
    with pytest.raises(LogDirectoryError, match=r"another broker holds \.lock"):
        await asyncio.wait_for(task, 60)


async def test_a_broker_that_serves_on_keeps_its_directories(starting, clock):
    await asyncio.sleep(0.2)
    assert not starting.done()
    clock.now_s = 1.0
    await fails(starting)


async def test_a_broker_that_stops_leaves_them(starting, other, clock, caplog):
    caplog.set_level("INFO")
    other.note_stopping()
    clock.now_s = 14.0
    await asyncio.sleep(0.2)
    assert not starting.done()
    other.release()
    await asyncio.wait_for(starting, 60)
    assert caplog.text.count("waiting for a stopping broker") == 1


async def test_one_that_has_stopped_is_waited_for_while_its_file_is_empty(starting, other, clock):
    other.note_stopping()
    clock.now_s = 14.0
    await asyncio.sleep(0.2)
    os.ftruncate(
        other.fileno(), 0
    )  # it lets go next, or the one after it has not written itself yet
    await asyncio.sleep(0.2)
    assert not starting.done()
    os.pwrite(other.fileno(), b"1\n", 0)  # another one serves on
    await fails(starting)


async def test_nobody_waits_for_ever_for_a_broker_that_stops(starting, other, clock):
    other.note_stopping()
    clock.now_s = 15.0
    await fails(starting)


async def test_who_is_to_stop_waits_for_nobody(starting, other):
    other.note_stopping()
    starting.stop.set()
    await fails(starting)

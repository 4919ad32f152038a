"""What a log does when its disk fails.

A sync that fails takes the log offline until the process ends, because the system reports lost data
only once and lets the next sync succeed. So does a write that a disk refuses to a log whose role
replication has assigned: another broker may lead instead. If it has one replica only, the log is
offline, too. Any other log can still be read. A full disk is no such failure.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import (
    BrokerError,
    CorruptMessage,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from tidelog.storage import files, reserves
from tidelog.storage.log.values import Truncation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.version import Version

_BROKEN = (errno.EIO, errno.EROFS)  # of a write: the disk, or its file system, has failed

_log = logging.getLogger("tidelog.storage")


def go_offline(state: LogState, why: str) -> None:
    """Serves nothing until the next start, which finds out what is on disk.

    The system has reported once that it lost data, and may have dropped it from memory: the
    next sync would succeed. Data that is still in memory would hide from recovery what is
    missing, so it is dropped; append times that are not known to be durable are not trusted.
    What no consumer may read yet was not acknowledged either, and its producers get an error:
    the next start cuts it off, so that it does not come back.
    """
    with state.append_lock:
        if state.stopped.offline is not None:
            return
        state.stop(state.stopped._replace(offline=why))
        segments = state.version.segments
        end_offset, high_watermark, _ = state.ends
        is_settled_later = state.leadership.is_assigned or state.truncation.pending
        if high_watermark < end_offset and not is_settled_later:
            state.truncation = Truncation((high_watermark, False), was_cut=True)
    _log.critical("log offline", extra=state.named(reason=why))
    state.saved_times.note_offline()
    for segment in segments:
        if segment.tail.end_offset > state.durability.recovery_point:
            with contextlib.suppress(OSError):
                segment.files.forget_cached()


def read_error(state: LogState, version: Version, error: OSError | CorruptMessage) -> BrokerError:
    """Returns the error for the client whose read of a version failed."""
    try:
        state.check_generation(version)
    except NotLeaderOrFollower as overtaken:
        return overtaken
    if isinstance(error, CorruptMessage):
        what = "the log is corrupt"
        if (what, error.message) not in state.logged_errors:  # consumers ask again and again
            state.logged_errors |= {(what, error.message)}
            _log.error(what, extra=state.named(reason=error.message))
        return error
    return storage_error(state, "the log cannot be read", error)


def storage_error(state: LogState, what: str, error: OSError) -> BrokerError:
    """Returns the error for the client; after a failed sync the log is offline."""
    if state.is_deleted:
        return UnknownTopicOrPartition(f"{state.topic}-{state.index} has been deleted")
    reason = error.strerror or str(error)
    if error.errno in reserves.FULL:
        reason = f"the disk is full ({reason})"
        state.is_full = True
    if isinstance(error, files.SyncError):
        go_offline(state, f"{what}: {reason}")
    if (what, reason) not in state.logged_errors:  # with a full disk every append fails
        state.logged_errors |= {(what, reason)}
        _log.error("storage error", extra=state.named(what=what, reason=reason))
    return KafkaStorageError(f"{state.topic}-{state.index}: {what}: {reason}")


@contextlib.contextmanager
def half_way(state: LogState, change: str) -> Iterator[None]:
    """Takes the log offline if a step of a change of its files fails: the next start completes it.

    Raises KafkaStorageError, whose sentence names the `change`.
    """
    try:
        yield
    except OSError as error:
        why = f"{change} was interrupted: {error.strerror or error}"
        go_offline(state, why)
        raise KafkaStorageError(f"{state.topic}-{state.index}: {why}") from error


def write_error(state: LogState, error: OSError) -> BrokerError:
    """Returns the error for the client whose records were not stored, or for the follower.

    A disk that is broken takes a log offline whose role was assigned, however many replicas it has.
    """
    what = "the records were not stored"
    if error.errno in _BROKEN and state.leadership.is_assigned and not state.is_deleted:
        go_offline(state, f"{what}: {error.strerror or error}")
    return storage_error(state, what, error)

"""Leader epochs and the offsets at which they begin (KIP-101, KIP-320).

They are stored in `leader-epoch-checkpoint`, which is replaced when an epoch begins, durably before
the first batch of that epoch is written, and truncated with the log. Epochs and their first offsets
both increase. A consumer or a follower asks where an epoch ended to find out whether its own log is
still part of this one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage import checkpoints, filenames, files
from tidelog.storage.checkpoints import EpochStart
from tidelog.storage.log.producers.producer_state import Producers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidelog.storage.log.state import LogState

NO_EPOCH = -1
NO_OFFSET = -1

_log = logging.getLogger("tidelog.storage")


def read_last_begun(directory: Path) -> int:
    """Returns the last epoch that began in a partition's directory, or NO_EPOCH. Raises OSError."""
    entries = _read(directory / filenames.LEADER_EPOCH_CHECKPOINT)
    return entries[-1].epoch if entries else NO_EPOCH


def _read(path: Path) -> list[EpochStart]:
    try:
        return checkpoints.read_epochs(path)
    except checkpoints.CheckpointError as error:
        _log.warning("leader epoch checkpoint discarded", extra={"reason": str(error)})
        return []


class LeaderEpochs:
    """The leader epochs of one partition."""

    def __init__(self, directory: Path, end_offset: int) -> None:
        """Reads the file; epochs that begin after the log's end are dropped. Raises OSError."""
        self._path = directory / filenames.LEADER_EPOCH_CHECKPOINT
        entries = _read(self._path)
        self._last_begun = entries[-1].epoch if entries else NO_EPOCH
        self._entries = [entry for entry in entries if entry.start_offset < end_offset]
        self._is_durable = True
        self._has_more_in_file = len(self._entries) < len(entries)  # of batches that were lost

    @property
    def latest(self) -> int:
        """The epoch of the last batch; NO_EPOCH if no batch has one."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    @property
    def last_begun(self) -> int:
        """The last epoch, even if no batch has it; NO_EPOCH if there is none."""
        return max(self._last_begun, self.latest)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """The epochs of the log's batches, oldest first."""
        return tuple(self._entries)

    def begin(self, epoch: int, start_offset: int) -> None:
        """Records durably that batches from `start_offset` on have `epoch`. Raises OSError.

        A known epoch is not written again.
        """
        if epoch > self.latest:
            self._write_durably(_with(self._entries, EpochStart(epoch, start_offset)))

    def adopt(self, entries: Iterable[EpochStart]) -> None:
        """Records durably the epochs that a leader sent; known ones are skipped.

        Raises OSError.
        """
        known = self._entries
        for entry in entries:
            if entry.epoch > (known[-1].epoch if known else NO_EPOCH):
                known = _with(known, entry)
        # Epochs of batches that a power loss took would be taken for those of the batches to come.
        if known != self._entries or self._has_more_in_file:
            self._write_durably(known)

    def truncate_to(self, end_offset: int) -> None:
        """Removes the epochs that begin at or after the end of a truncated log. Raises OSError.

        The last epoch that began here is then that of the log's last batch.
        """
        entries = [entry for entry in self._entries if entry.start_offset < end_offset]
        if entries != self._entries or self._last_begun > self.latest:
            self._write(entries)
            self._last_begun = self.latest

    def forget_all(self) -> None:
        """Removes every epoch, because the log has no batches any more. Raises OSError."""
        self._write([])
        self._last_begun = NO_EPOCH

    def _write_durably(self, entries: list[EpochStart]) -> None:
        """Replaces the file, and makes its name durable too.

        Formats 0 and 1 carry no epoch, so an epoch that a power loss took could not be read from
        its batches: they would be taken for batches of the epoch before.
        """
        self._write(entries)
        files.sync(self._path.parent)

    def _write(self, entries: list[EpochStart]) -> None:
        checkpoints.write_epochs(self._path, entries)
        self._entries = entries
        self._is_durable = False
        self._has_more_in_file = False

    def forget_before(self, start_offset: int) -> None:
        """Removes the epochs that ended before the log's start. Raises OSError."""
        if not self._entries:  # a log of Kafka before 0.11 has none
            return
        entries = [
            EpochStart(entry.epoch, max(entry.start_offset, start_offset))
            for entry, following in zip(self._entries, [*self._entries[1:], None], strict=True)
            if following is None or following.start_offset > start_offset
        ]
        if entries != self._entries:
            self._write(entries)

    def sync(self) -> None:
        """Makes the content of the file durable, but not its name. Raises OSError."""
        if not self._is_durable:
            self._is_durable = True
            files.sync(self._path)

    def within(self, first_offset: int, end_offset: int) -> tuple[EpochStart, ...]:
        """Returns the epochs of the batches from one offset to another, oldest first."""
        if end_offset <= first_offset:
            return ()
        entries = [entry for entry in self._entries if entry.start_offset < end_offset]
        begun = sum(entry.start_offset <= first_offset for entry in entries)
        return tuple(entries[max(begun - 1, 0) :])

    def epoch_of(self, offset: int) -> int:
        """Returns the epoch of the batch at an offset; NO_EPOCH if it is unknown."""
        for entry in reversed(self._entries):
            if entry.start_offset <= offset:
                return entry.epoch
        return NO_EPOCH

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (the largest epoch up to `epoch`, the offset at which it ended).

        The latest epoch ends at the log's end, and so does a later one without batches. For a
        future epoch the result is (NO_EPOCH, NO_OFFSET). An epoch before the first known one ended
        where that begins.
        """
        entries = self._entries
        if self.latest < epoch <= self._last_begun:
            has_begun = epoch == self._last_begun or not entries
            return epoch if has_begun else self.latest, log_end_offset
        if not entries or epoch > entries[-1].epoch or epoch < 0:
            return NO_EPOCH, NO_OFFSET
        end_offset, found = log_end_offset, epoch
        for entry in reversed(entries):
            if entry.epoch <= epoch:
                return entry.epoch, end_offset
            end_offset = entry.start_offset
        return found, end_offset


def _with(entries: list[EpochStart], entry: EpochStart) -> list[EpochStart]:
    """Returns entries with one more at the end; it replaces those that begin there or later."""
    return [*(known for known in entries if known.start_offset < entry.start_offset), entry]


def begin_first_epoch(state: LogState) -> None:
    """Begins the leader epoch of a new log durably, so that no append waits for the disk.

    Raises OSError.
    """
    with state.append_lock:
        state.epochs.begin(state.leadership.epoch, state.ends.log_end_offset)
        state.producers = Producers(state.producer_id_expiration_ms)
        state.is_read = True  # there is nothing to read


def begin_leader_epoch(state: LogState, epoch: int) -> None:
    """Sets the leader epoch, as leader or follower."""
    with state.append_lock:
        if epoch != state.leadership.epoch:
            state.leadership = state.leadership._replace(epoch=epoch)
            state.is_read = False  # the next append writes the epoch, and may block
            state.begin_generation()

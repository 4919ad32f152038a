"""A log that transactional producers append to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.protocol.records.batch import Record, build, scan

if TYPE_CHECKING:
    from tests.storage.conftest import Log


class Transactions:
    """Transactional appends to a log, with guards as a coordinator would allow them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.now = 1_000
        self._sequences: dict[tuple[int, int], int] = {}

    @property
    def partition(self):
        return self.log.partition

    @property
    def ends(self):
        """The log end, the high watermark and the last stable offset."""
        return tuple(self.partition.state.ends)

    @property
    def stable(self):
        self.partition.reader.learn()
        return self.partition.last_stable_offset

    def data(self, pid, count=1, *, epoch=0, sequence=None, transactional=True, offset=0):
        """A batch of a producer, with its next sequence."""
        if sequence is None:
            sequence = self._sequences.get((pid, epoch), 0)
            self._sequences[pid, epoch] = sequence + count
        return build(
            [Record(i, 500 + i, b"k", b"%d" % pid) for i in range(count)],
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )

    def put(self, data, *, guard=None, internal=False):
        self.now += 1
        self.log.now = self.now
        return self.partition.append(
            data, now_ms=self.now, produce_version=9, guard=guard, internal=internal
        )

    def send(self, pid, count=1, *, epoch=0, **batch):
        """Append transactional records; the coordinator agrees."""
        data = self.data(pid, count, epoch=epoch, **batch)
        guard = self.partition.verification(pid, epoch, scan(data)[0].base_sequence)
        return self.put(data, guard=guard)

    def plain(self, count=1):
        return self.put(build([Record(i, 500, b"k", b"v") for i in range(count)]))

    def end(self, pid, *, commit, epoch=0, coordinator_epoch=0):
        self.now += 1
        self.log.now = self.now
        return self.partition.append_marker(
            pid,
            epoch,
            is_commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self.now,
        ).base_offset

    def commit(self, pid, **marker):
        return self.end(pid, commit=True, **marker)

    def abort(self, pid, **marker):
        return self.end(pid, commit=False, **marker)


@pytest.fixture
def txn(log):
    return Transactions(log)

"""What was read for one follower, kept for the next one that asks the same.

Followers that keep up ask the same, one soon after the other. So an answer is kept until another
follower has got it, something changes, or newer answers of this broker need the room.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidelog.broker.partitions import replication_state

if TYPE_CHECKING:
    from tidelog.broker.partitions.replication.leader import Leader
    from tidelog.broker.partitions.replication_state import ReadForFollower
    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.fetch import FetchPartition
    from tidelog.storage.log.partition import Partition

_PAIR = 2  # replicas: there is no second follower
MOST_BYTES: Final = 4 << 20
"""The bytes of records that a broker keeps, of all partitions that it leads."""


class _Kept(NamedTuple):
    asked: object
    facts: object
    answer: ReadForFollower


class _PartitionLeader(Protocol):
    """The leader of a partition."""

    @property
    def leader(self) -> Leader: ...

    @property
    def partition(self) -> Partition: ...


class SharedReads:
    """The last answer of each partition, within MOST_BYTES; any thread may use it."""

    def __init__(self) -> None:
        self._kept: dict[object, _Kept] = {}  # the oldest first
        self._size = 0
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """The bytes of records that are kept."""
        return self._size

    def read(
        self,
        led: _PartitionLeader,
        wanted: FetchPartition,
        max_bytes: int,
        permit: Permit,
        *,
        minimum_one: bool,
        newest_magic: int,
    ) -> ReadForFollower:
        """Returns what a follower has asked for, as `replication_state.read_for_follower` reads it.

        The answer is kept if the partition has another follower. Raises what `read_for_follower` raises.
        """
        partition = led.partition
        state = partition.state
        asked = (
            wanted.fetch_offset,
            max_bytes,
            minimum_one,
            newest_magic,
            state.version,
            state.stored_offset,
        )
        facts = replication_state.facts(partition)
        kept = self.take(led, asked, facts)
        if kept is not None:
            return kept
        answer = replication_state.read_for_follower(
            partition,
            wanted,
            max_bytes,
            minimum_one=minimum_one,
            may_block=permit.may_block,
            newest_magic=newest_magic,
            check=permit.check,
        )
        if len(led.leader.record.replicas) > _PAIR:
            self.keep(led, asked, facts, answer)
        return answer

    def take(self, led: object, asked: object, facts: object) -> ReadForFollower | None:
        """Returns the answer to the same question at the same state of the log, and forgets it."""
        with self._lock:
            kept = self._drop(led)
        if kept is None or kept.asked != asked or kept.facts != facts:
            return None
        return kept.answer

    def keep(self, led: object, asked: object, facts: object, answer: ReadForFollower) -> None:
        """Keeps an answer with records, unless it is too large, or was converted."""
        if not 0 < answer.size <= MOST_BYTES or answer.converted:
            return
        with self._lock:
            self._drop(led)
            self._kept[led] = _Kept(asked, facts, answer)
            self._size += answer.size
            while self._size > MOST_BYTES:
                self._drop(next(iter(self._kept)))

    def forget(self, led: object) -> None:
        """Forgets the answer of a partition, which is not led here any more."""
        with self._lock:
            self._drop(led)

    def _drop(self, led: object) -> _Kept | None:
        """Removes the answer of a partition, under the lock; returns it if there was one."""
        kept = self._kept.pop(led, None)
        if kept is not None:
            self._size -= kept.answer.size
        return kept

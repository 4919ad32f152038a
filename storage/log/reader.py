"""Reading a log: slices, lookups by time, leader epochs.

Any thread may read, during an append, retention or compaction. A result comes from one version of
the log, which is held until the result is complete. If a new leader epoch or a truncation begins
meanwhile, NotLeaderOrFollower is raised. `slices` and `lookup` find the results; this module
chooses the version and turns errors into those that a client gets.

A caller on a thread that serves others passes `may_block=False`: if the result takes a long read,
WouldBlock is raised instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.protocol.errors import CorruptMessage, OffsetOutOfRange, UnpackedTooLarge
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage.log import lookup, slices
from tidelog.storage.log.failures import read_error
from tidelog.storage.log.producers.aborted import aborted_between
from tidelog.storage.time.lookup import LookupTarget, is_target
from tidelog.storage.would_block import NeedsMemory, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.records.layout import OffsetAndTimestamp
    from tidelog.storage.log.producers.aborted import AbortedFrom
    from tidelog.storage.log.replication.leader_state import ForFollower
    from tidelog.storage.log.slices import Fetched, SliceAppendTimes
    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.version import Ends, Version

_Answer = TypeVar("_Answer")

_SHORT_LOG_BYTES = 64 << 10  # a lookup by time in a smaller log never takes long


class Reader:
    """Reads one log."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def learn(self, *, may_block: bool = True) -> None:
        """Makes the last stable offset known; whoever shows committed data calls this first.

        Raises KafkaStorageError; without `may_block` WouldBlock, if the log has to be read.
        """
        state = self._state
        if state.producers is None:
            if not may_block:
                raise WouldBlock(f"{state.topic}-{state.index}: the producers have to be read")
            state.read_producers()

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        minimum_one: bool,
        may_block: bool = True,
    ) -> Fetched:
        """Reads from the batch that holds `offset`, at most `max_bytes`, below `upper_offset`.

        Returns whole slices of the log, unchanged: the first batch may begin before `offset`, the
        last may be truncated by `max_bytes`. With `minimum_one` the first batch is returned whole,
        whatever its size. Raises OffsetOutOfRange, NotLeaderOrFollower and KafkaStorageError;
        without `may_block` also WouldBlock, if finding the offset's position takes a long read.
        """
        state = self._state
        if state.stopped.offline is not None:
            state.check_online()
        version = state.hold()
        try:
            if not version.log_start_offset <= offset <= state.ends[0]:
                self._refuse(version, offset)
            fetched = slices.read(
                version.segments,
                offset,
                max_bytes,
                upper_offset=upper_offset,
                minimum_one=minimum_one,
                may_block=may_block,
            )
        except (OSError, CorruptMessage) as error:
            raise read_error(state, version, error) from error
        finally:
            version.release()
        if state.version.generation != version.generation:
            state.check_generation(version)
        return fetched

    def read_with_append_times(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        minimum_one: bool,
        may_block: bool = True,
    ) -> tuple[Fetched, list[SliceAppendTimes]]:
        """Reads as `read` does, and returns the append times of exactly these batches."""

        def look(version: Version, _: Ends) -> tuple[Fetched, list[SliceAppendTimes]]:
            if not version.log_start_offset <= offset <= self._state.ends.log_end_offset:
                self._refuse(version, offset)
            fetched = slices.read(
                version.segments,
                offset,
                max_bytes,
                upper_offset=upper_offset,
                minimum_one=minimum_one,
                may_block=may_block,
            )
            return fetched, slices.append_times_of(version.segments, fetched)

        return self._look(look)

    def read_for_follower(
        self, offset: int, max_bytes: int, *, minimum_one: bool, may_block: bool = True
    ) -> ForFollower:
        """Reads batches for a follower, with all that it copies beside them.

        A follower may have what others may not read yet: everything before `stored_offset`. Its
        facts about the leader's log are from the same version as the batches, and not older. Raises
        OffsetOutOfRange, NotLeaderOrFollower and KafkaStorageError; without `may_block` also
        WouldBlock.
        """
        from tidelog.storage.log.replication import (
            leader_state,  # an only replica has no followers
        )

        state = self._state

        def look(version: Version, ends: Ends) -> ForFollower:
            if not version.log_start_offset <= offset <= ends.log_end_offset:
                self._refuse(version, offset)
            fetched = slices.read(
                version.segments,
                offset,
                max_bytes,
                upper_offset=min(state.stored_offset, ends.log_end_offset),
                minimum_one=minimum_one,
                may_block=may_block,
            )
            return leader_state.ForFollower(
                fetched,
                slices.append_times_of(version.segments, fetched),
                state.epochs.within(offset, slices.end_of(fetched.buffers, offset)),
                leader_state.leader_state(state, version),
            )

        return self._look(look)

    def aborted_transactions(
        self, offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[AbortedFrom]:
        """Returns the aborted transactions among what was read; see `aborted_between`.

        Raises NotLeaderOrFollower and KafkaStorageError; without `may_block` also WouldBlock.
        """

        def look(version: Version, _: Ends) -> list[AbortedFrom]:
            if not (may_block or version.knows_aborting):
                raise WouldBlock(f"{self._state.topic}-{self._state.index}: indexes are to be read")
            return aborted_between(version, offset, end_offset)

        return self._look(look)

    def _refuse(self, version: Version, offset: int) -> None:
        state = self._state
        raise OffsetOutOfRange(
            f"{state.topic}-{state.index}: offset {offset} is not between "
            f"{version.log_start_offset} and {state.ends.log_end_offset}"
        )

    def _look(self, look: Callable[[Version, Ends], _Answer]) -> _Answer:
        """Computes a result in one version of the log."""
        state = self._state
        state.check_online()
        ends = state.ends  # read before the version, so that its segments reach the ends
        with state.hold() as version:
            try:
                answer = look(version, ends)
            except (OSError, CorruptMessage) as error:
                raise read_error(state, version, error) from error
        state.check_generation(version)
        return answer

    # --- times ------------------------------------------------------------------------------------

    def find_by_time(
        self,
        timestamp: int,
        *,
        upper_offset: int,
        may_block: bool = True,
        unpack_limit: int = STORED_LIMIT,
    ) -> OffsetAndTimestamp | None:
        """Returns (offset, time) of the first data record at or after a time, or None.

        Exact, in offset order, below `upper_offset`; any time is a real one here, -1 excepted.
        Raises NotLeaderOrFollower and KafkaStorageError; without `may_block` also WouldBlock, and
        NeedsMemory if a batch unpacks to more than `unpack_limit`.
        """
        find = partial(lookup.find_time, timestamp=timestamp, unpack_limit=unpack_limit)
        return self._find(find, timestamp, upper_offset, may_block, unpack_limit)

    def find_largest_time(
        self, *, upper_offset: int, may_block: bool = True, unpack_limit: int = STORED_LIMIT
    ) -> OffsetAndTimestamp | None:
        """Returns (offset, time) of the first record with the largest time, or None (KIP-734).

        Raises what `find_by_time` raises.
        """
        find = partial(lookup.find_largest, unpack_limit=unpack_limit)
        return self._find(find, LookupTarget.MAX_TIMESTAMP, upper_offset, may_block, unpack_limit)

    def _find(
        self,
        find: Callable[..., _Answer],
        target: int,
        upper_offset: int | None,
        may_block: bool,
        unpack_limit: int,
    ) -> _Answer:
        """Looks for a time, or MAX_TIMESTAMP, below an offset, by default the high watermark."""

        def look(version: Version, ends: Ends) -> _Answer:
            upper = ends.high_watermark if upper_offset is None else upper_offset
            if not may_block:
                self._check_cached(version, target, upper)
            start = version.log_start_offset
            try:
                return find(version.segments, start_offset=start, upper_offset=upper)
            except UnpackedTooLarge as error:
                if unpack_limit >= STORED_LIMIT:
                    raise
                raise NeedsMemory(error.message) from None

        return self._look(look)

    def _check_cached(self, version: Version, target: int, upper_offset: int) -> None:
        """Raises WouldBlock if looking up a time, or MAX_TIMESTAMP, would read for long."""
        state = self._state
        if state.size > _SHORT_LOG_BYTES and not lookup.is_cached(
            version.segments,
            target,
            start_offset=version.log_start_offset,
            upper_offset=upper_offset,
        ):
            raise WouldBlock(f"{state.topic}-{state.index}: the lookup would read for long")

    def find_by_append_time(
        self, append_time_ms: int, *, upper_offset: int
    ) -> lookup.AppendedSince:
        """Returns the first offset from the log's start on that was appended at or after a time.

        Searches below `upper_offset`; the result says if it is not exact. Raises
        NotLeaderOrFollower and KafkaStorageError.
        """
        return self._look(
            lambda version, _: lookup.find_append_time(
                version.segments,
                append_time_ms,
                start_offset=version.log_start_offset,
                upper_offset=upper_offset,
                back_offset=self._state.timing.back_offset,
            )
        )

    def find_by_capped_time(
        self, timestamp: int, *, upper_offset: int
    ) -> OffsetAndTimestamp | None:
        """Returns (offset, time) of the first data record at or after a time, or None.

        No record counts with a time later than its append time, as in retention: so the record was
        also appended at or after the time, or this is unknown. Raises NotLeaderOrFollower and
        KafkaStorageError.
        """

        def look(version: Version, _: Ends) -> OffsetAndTimestamp | None:
            since = lookup.find_append_time(
                version.segments,
                timestamp,
                start_offset=version.log_start_offset,
                upper_offset=upper_offset,
                back_offset=self._state.timing.back_offset,
            )
            first = since.offset if since.unknown_from is None else since.unknown_from
            if first is None:
                return None
            return lookup.find_time(
                version.segments, timestamp, start_offset=first, upper_offset=upper_offset
            )

        return self._look(look)

    def times_of(self, offset: int) -> lookup.OffsetTimes:
        """Returns both times of an offset: its record time and its append time.

        Raises OffsetOutOfRange, CorruptMessage, NotLeaderOrFollower and KafkaStorageError.
        """
        return self._look(
            lambda version, ends: lookup.times_of(
                version.segments,
                offset,
                start_offset=version.log_start_offset,
                upper_offset=ends.high_watermark,
            )
        )

    def append_time_of(self, offset: int) -> int | None:
        """Returns the append time of the batch with this offset, None if it is unknown.

        Raises NotLeaderOrFollower and KafkaStorageError.
        """

        def look(version: Version, ends: Ends) -> int | None:
            if not version.log_start_offset <= offset < ends.log_end_offset:
                return None
            return lookup.append_time_of(version.segments, offset)

        return self._look(look)

    # --- offsets ----------------------------------------------------------------------------------

    def first_record(self, offset: int) -> tuple[int, lookup.OffsetTimes] | None:
        """Returns the first data record from an offset on, and both its times.

        None if none is left.

        Raises CorruptMessage, NotLeaderOrFollower and KafkaStorageError.
        """
        return self._look(
            lambda version, ends: lookup.first_record(
                version.segments,
                offset,
                start_offset=version.log_start_offset,
                upper_offset=ends.high_watermark,
            )
        )

    def size_before(self, offset: int) -> int:
        """Returns the number of bytes of batches before an offset.

        Raises NotLeaderOrFollower and KafkaStorageError.
        """
        return self._look(
            lambda version, _: lookup.size_before(
                version.segments, offset, start_offset=version.log_start_offset
            )
        )

    def offsets_before_v0(
        self,
        timestamp: int,
        max_offsets: int,
        *,
        may_block: bool = True,
        unpack_limit: int = STORED_LIMIT,
    ) -> list[int]:
        """Returns the result of ListOffsets v0; see `lookup.offsets_before`.

        Raises UnsupportedVersion, and what `find_by_time` raises.
        """
        find = partial(
            lookup.offsets_before,
            timestamp=timestamp,
            max_offsets=max_offsets,
            unpack_limit=unpack_limit,
        )
        return self._find(find, timestamp, None, may_block or is_target(timestamp), unpack_limit)

    # --- leader epochs ----------------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (the largest epoch up to `epoch`, its end offset); (-1, -1) for a future epoch.

        The current epoch ends at the log's end, even if it has no batches yet.
        """
        state = self._state
        if epoch == state.leadership.epoch:
            return epoch, state.ends.log_end_offset
        return state.epochs.end_offset_of(epoch, state.ends.log_end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of the batch at an offset, -1 if it is unknown.

        At the log's end it is the epoch of the next append.
        """
        state = self._state
        if offset >= state.ends.log_end_offset:
            return state.leadership.epoch
        return state.epochs.epoch_of(offset)

"""The log of a partition in storage, as the checker sees it: read again when it has changed.

What was read is kept as it was when the process dies.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

from tests.simulation.replication.brokers.batches import stored
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.checking.log import NO_TIME, Log
from tests.storage.conftest import read_max_event_time
from tidelog.storage.log import lookup
from tidelog.storage.time.corrections import judged

if TYPE_CHECKING:
    from tests.simulation.replication.brokers.disk import Disk
    from tidelog.storage.log.partition import Partition

_BASE = attrgetter("base")


class StoredLog(Log):
    """One replica's log, on a disk, in one run of its broker."""

    def __init__(self, disk: Disk, partition: Partition) -> None:
        super().__init__()
        self._disk = disk
        self.partition = partition
        self.has_failed = False  # the checker has heard that it is offline
        self._seen = self._state()
        self._look(0)

    # --- looking ----------------------------------------------------------------------------------

    def _state(self) -> tuple[object, ...]:
        state = self.partition.state
        version, epochs = state.version, state.epochs.entries
        return (
            version.log_start_offset,
            state.ends,
            epochs[-1:],
            len(epochs),
            state.timing.mark,
            state.timing.back_offset,
            state.recovery.lost_offset,
            state.durability.durable_offset,
            version.segments[0].base_offset,
            state.rules.config.is_compacted and version.number,
        )

    def follow_changes(self) -> bool:
        """Looks at the log if it has changed; returns whether records were added."""
        now = self._state()
        if now == self._seen:
            return False
        if self.is_offline:  # its files cannot be read, but its leader may still commit what it has
            self._seen = now
            committed = min(self.partition.believed_high_watermark, self.end)
            self.high_watermark = max(self.high_watermark, committed)
            self.changed()
            return False
        before, was_compacted, self._seen = self.end, self._seen[-1], now
        end = self.partition.log_end_offset
        is_longer = end >= before and now[-2] <= self.start and now[-1] == was_compacted
        if not is_longer:
            self.cuts += 1
        self._look(before if is_longer else 0)
        return is_longer and end > before

    def _look(self, unchanged: int) -> None:
        """Reads again what may have changed: everything but the batches before an offset."""
        partition, state = self.partition, self.partition.state
        number = bisect_left(self.batches, unchanged, key=_BASE)
        del self.batches[number:]
        del self.times[number:]
        self.start, end = partition.log_start_offset, partition.log_end_offset
        gone = sum(batch.end <= self.start for batch in self.batches)
        del self.batches[:gone]
        del self.times[:gone]
        offset = max(self.start, self.batches[-1].end if self.batches else 0)
        if offset < end:
            with self._disk.undisturbed():  # files of a compaction are opened for it
                for batch, time in stored(partition, offset):
                    self.batches.append(batch)
                    self.times.append((batch.base, time))
        self.end = end
        is_whole = self.batches and self.batches[-1].end == end
        if self.batches and not is_whole and not partition.config.is_compacted:
            raise BrokenInvariantError(
                f"the log ends at {end}, its last batch is {self.batches[-1]}"
            )
        self.epochs = list(state.epochs.entries)
        self.mark, self.back = (
            (state.timing.mark.epoch, state.timing.mark.number),
            state.timing.back_offset,
        )
        self.synced = partition.durable_offset
        self.high_watermark = partition.believed_high_watermark
        if state.recovery.lost_offset is not None:  # what follows goes, unless this log leads
            number = self.number_at(state.recovery.lost_offset)
            # Compaction may have removed what was between the offset and this batch.
            lost = self.batches[number].base if number < len(self.batches) else end
            self.high_watermark = max(
                self.start, min(self.high_watermark, lost, state.recovery.lost_offset)
            )
        self.changed()

    # --- what the checker asks --------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        return self.partition.state.offline is not None

    @property
    def is_there(self) -> bool:
        return self.partition.directory.parent == self._disk.path

    @property
    def max_event(self) -> int:
        with self._disk.undisturbed():
            largest = read_max_event_time(self.partition)
        return NO_TIME if largest is None else largest

    @property
    def counted_event(self) -> int | None:
        state = self.partition.state
        if any(segment.known.size < segment.tail.size for segment in state.version.segments):
            return None  # the checker does not read what storage has not read
        return NO_TIME if state.max_event_time is None else state.max_event_time

    @property
    def last_append(self) -> int:
        last = self.partition.last_append_time
        return NO_TIME if last is None else last

    def judged_time(self, base: int) -> int:
        time = self.append_time(base)
        return (
            time if time == NO_TIME else judged(self.partition.state.timing.corrections, base, time)
        )

    def lookup(self, first: int, time: int, *, by_append: bool) -> int | None:
        with self._disk.undisturbed():
            if by_append:
                return self._appended_since(first, time)
            with self.partition.hold() as version:
                record = lookup.find_time(
                    version.segments, time, start_offset=first, upper_offset=self.high_watermark
                )
            return None if record is None else record[0]

    def _appended_since(self, first: int, time: int) -> int | None:
        """Asks as clients do, or from an offset on that other replicas have, too."""
        upper_offset = self.high_watermark
        if first <= self.partition.log_start_offset:
            found = self.partition.reader.find_by_append_time(time, upper_offset=upper_offset)
        else:
            with self.partition.hold() as version:
                found = lookup.find_append_time(
                    version.segments,
                    time,
                    start_offset=first,
                    upper_offset=upper_offset,
                    back_offset=self.partition.state.timing.back_offset,
                )
        return found.offset if found.unknown_from is None else -1

"""The virtual log of a replica, and the disk it lies on, which forgets what was not synced.

A batch here is what formats 0 to 2 carry in their bytes; formats 0 and 1 carry no leader epoch.
Append times, leader epochs and the state of producers lie beside the batches, as in the product's
files, so each of them can be cut, or forgotten, by itself. Offsets and times follow the rules of
KIP-32, KIP-101 and facts of `storage`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.replication.cluster.settings import due
from tidelog.storage.checkpoints import EpochStart

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.cluster.requests import Produce
    from tests.simulation.replication.cluster.settings import Settings

NO_EPOCH = -1
NO_TIME = -1
KEYS = 5
_BASE = attrgetter("base")
_FIRST = itemgetter(0)


class Batch(NamedTuple):
    """A batch of records with one value for all of them; `value` is in no other batch."""

    base: int
    count: int
    value: int
    epoch: int  # in the header; NO_EPOCH in formats 0 and 1
    record_time: int
    stamp: int | None  # the append time in the header of a LogAppendTime topic
    producer: int
    producer_epoch: int
    sequence: int
    checksum: int = 0  # of the stored bytes; 0: there are none

    @property
    def end(self) -> int:
        return self.base + self.count


def key_of(value: int) -> int:
    """Returns the key of the records with a value, in a topic that is compacted."""
    return value % KEYS


class Known(NamedTuple):
    """What a leader tells about its log beside the batches (tag 29802)."""

    start: int
    last_append: int
    max_event: int
    mark: tuple[int, int]
    back: int


class Slice(NamedTuple):
    """Batches with what travels beside them."""

    batches: tuple[Batch, ...]
    times: tuple[tuple[int, int], ...]
    epochs: tuple[EpochStart, ...]
    known: Known


class Log:
    """One replica's log."""

    is_offline = False  # until the process ends
    is_stored = False  # by the product
    is_there = True

    def __init__(self, start: int = 0) -> None:
        self.start = start  # the log start
        self.first = start  # where an empty log goes on
        self.batches: list[Batch] = []
        self.times: list[tuple[int, int]] = []  # (base offset, append time)
        self.epochs: list[EpochStart] = []
        self.producers: dict[int, tuple[int, int]] = {}  # producer epoch, last sequence
        self.snapshot: dict[int, tuple[int, int]] = {}  # the same, of batches that are deleted
        self.high_watermark = start
        self.max_event_told = NO_TIME
        self.last_append_told = NO_TIME
        self.mark = 0, 0  # leader epoch and number of the last reset by an operator
        self.back = 0  # where it let append times go back
        self.synced = start
        self.checkpoint = start  # the high watermark on disk, a hint
        self.has_failed = False  # a sync has; nothing is durable any more
        self.cuts = 0  # counts the changes after which the log may be another one
        self.changed: Callable[[], None] = lambda: None  # what the checker wants to hear
        self._event_number = 0  # batches of which the largest record time is known
        self._largest = NO_TIME

    def __repr__(self) -> str:
        return f"{self.start}..{self.high_watermark}..{self.end}"

    # --- what it is -------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.first

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch, or the one that begins at the end."""
        return self.epochs[-1].epoch if self.epochs else NO_EPOCH

    @property
    def last_append(self) -> int:
        """The last append time, below which no later one may be."""
        base, time = self.times[-1] if self.times else (0, NO_TIME)
        return max(time if base >= self.back else NO_TIME, self.last_append_told)

    @property
    def max_event(self) -> int:
        """The largest record time below the high watermark, of batches that are gone as well."""
        batches, number = self.batches, self._event_number
        while number < len(batches) and batches[number].base < self.high_watermark:
            self._largest = max(self._largest, batches[number].record_time)
            number += 1
        self._event_number = number
        return max(self._largest, self.max_event_told)

    @property
    def counted_event(self) -> int | None:
        """The largest event time, if it is known; None: batches would have to be read for it."""
        return self.max_event

    def number_at(self, offset: int) -> int:
        """Returns the number of the first batch that ends after an offset."""
        number = bisect_right(self.batches, offset, key=_BASE)
        if number and self.batches[number - 1].end > offset:
            return number - 1
        return number

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to `epoch`, and where it ended (OffsetForLeaderEpoch)."""
        entries = self.epochs
        if not entries or epoch > entries[-1].epoch or epoch < 0:
            return NO_EPOCH, -1
        end = self.end
        for entry in reversed(entries):
            if entry.epoch <= epoch:
                return entry.epoch, end
            end = entry.start_offset
        return epoch, end

    def append_time(self, base: int) -> int:
        """Returns the append time of the batch at a base offset, as a lookup finds it."""
        number = bisect_right(self.times, base, key=_FIRST) - 1
        return self.times[number][1] if number >= 0 else NO_TIME

    def judged_time(self, base: int) -> int:
        """Returns what the append time of the batch at a base offset counts as."""
        return self.append_time(base)

    def lookup(self, first: int, time: int, *, by_append: bool) -> int | None:
        """Returns the first base offset from `first` on with a time at or after one."""
        for batch in self.batches:
            found = self.append_time(batch.base) if by_append else batch.record_time
            if batch.base >= first and batch.end <= self.high_watermark and found >= time:
                return batch.base
        return None

    def read(self, offset: int, up_to: int, most: int) -> Slice:
        """Returns batches from the one with an offset on, and what travels with them."""
        number = self.number_at(offset)
        last = min(bisect_left(self.batches, up_to, key=_BASE), number + most)
        batches = tuple(self.batches[number:last])
        times = tuple((batch.base, self.append_time(batch.base)) for batch in batches)
        epochs: tuple[EpochStart, ...] = ()
        if batches:
            first = bisect_right(self.epochs, batches[0].base, key=attrgetter("start_offset")) - 1
            epochs = tuple(
                entry
                for entry in self.epochs[max(first, 0) :]
                if entry.start_offset < batches[-1].end
            )
        return Slice(batches, times, epochs, self.known())

    def read_for_consumer(self, offset: int, most: int) -> tuple[Batch, ...]:
        """Returns batches below the high watermark, from the one with an offset on."""
        return self.read(offset, self.high_watermark, most).batches

    def known(self) -> Known:
        """Returns what a leader tells about its log beside the batches."""
        return Known(self.start, self.last_append, self.max_event, self.mark, self.back)

    # --- what changes it --------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Records, durably, that what is appended from now on has an epoch."""
        if epoch > self.last_epoch:
            kept = [entry for entry in self.epochs if entry.start_offset < self.end]
            self.epochs = [*kept, EpochStart(epoch, self.end)]

    def follow(self, epoch: int) -> None:
        """Follows in an epoch from now on."""

    def resign(self) -> None:
        """Leads no more."""

    def advance(self, offset: int) -> None:
        """Sets the high watermark, as a machine says."""
        self.changed()
        self.high_watermark = offset

    def produce(self, request: Produce, settings: Settings, epoch: int, broker: Broker) -> Batch:
        """Appends a producer's batch, with the time that the broker gives it."""
        time = broker.append_time(self)
        batch = Batch(
            self.end,
            request.count,
            request.value,
            epoch if settings.format == 2 else NO_EPOCH,
            time if settings.is_stamped else request.record_time,
            time if settings.is_stamped else None,
            request.producer if settings.format == 2 else -1,
            request.producer_epoch,
            request.sequence,
        )
        self.append(batch, time)
        return batch

    def append(self, batch: Batch, time: int) -> None:
        """Appends a batch of the leader itself."""
        self.changed()
        self.batches.append(batch)
        self.times.append((batch.base, time))
        _note(self.producers, batch)

    def append_as_follower(self, told: Slice) -> None:
        """Appends what a leader sent, as it is."""
        self.changed()
        if told.batches and told.batches[0].base != self.end and not self.batches:
            self.restart_at(told.batches[0].base)  # a log start within a batch
        for entry in told.epochs:
            if entry.epoch > self.last_epoch:
                at = max(entry.start_offset, told.batches[0].base)
                kept = [known for known in self.epochs if known.start_offset < at]
                self.epochs = [*kept, EpochStart(entry.epoch, at)]
        for batch, time in zip(told.batches, told.times, strict=True):
            self.batches.append(batch)
            self.times.append(time)
            _note(self.producers, batch)
        if told.known.back <= self.end:
            self.take_mark(told.known)

    def take_mark(self, known: Known) -> None:
        """Takes an operator's mark; only a newer one lowers what is known of times."""
        is_newer = known.mark > self.mark
        is_behind = is_newer if known.back == self.back else known.back > self.back
        self.mark, self.back = known.mark, known.back
        if is_newer:
            self.max_event_told = known.max_event
            self._event_number, self._largest = self.number_at(known.start), NO_TIME
        if is_behind:  # the log has reached now where append times went back
            self.last_append_told = known.last_append
        self.last_append_told = max(self.last_append_told, known.last_append)
        self.max_event_told = max(self.max_event_told, known.max_event)

    def reset_clock(self, epoch: int, now_ms: int) -> bool:
        """Lets append times go back to the clock, if they are ahead; returns whether they were."""
        if self.last_append <= now_ms:
            return False
        self.changed()
        self.mark, self.back = (max(epoch, self.mark[0]), self.mark[1] + 1), self.end
        self.last_append_told = self.max_event_told = NO_TIME
        self._event_number, self._largest = self.number_at(self.start), NO_TIME
        return True

    def known_times(self) -> tuple[int, int]:
        """Returns the last append time and the largest event time, which only a mark lowers."""
        return self.last_append, self.max_event

    def truncate(self, offset: int, *, is_below_high_watermark: bool = False) -> None:
        """Removes all batches that end after an offset, durably, with all that belongs to them."""
        number = self.number_at(offset)
        self._keep_event(self.batches[number:])
        del self.batches[number:]
        if self.end > offset:
            self.first = offset
        self._cut_beside()

    def _cut_beside(self) -> None:
        self._count_cut()
        end = self.end
        self.times = [entry for entry in self.times if entry[0] < end]
        self.epochs = [entry for entry in self.epochs if entry.start_offset < end]
        self.rebuild_producers()
        self.high_watermark = min(self.high_watermark, end)
        self.checkpoint = min(self.checkpoint, end)
        self.start = min(self.start, end)
        self.back = self.back if self.back <= end else 0
        self.synced = end

    def _keep_event(self, gone: list[Batch]) -> None:
        below = [batch.record_time for batch in gone if batch.base < self.high_watermark]
        self.max_event_told = max(self.max_event_told, *below, NO_TIME)

    def restart_at(self, offset: int) -> None:
        """Drops everything; the empty log goes on at an offset."""
        self._count_cut()
        self.batches, self.times, self.epochs = [], [], []
        self.producers, self.snapshot = {}, {}
        self.start = self.first = self.synced = offset
        self.high_watermark = self.checkpoint = offset

    def retain(self, settings: Settings, trusted_ms: int) -> None:
        """Deletes what a leader's settings say by now."""
        offset = due(self, settings, trusted_ms)
        if offset > self.start:
            self.delete_before(offset)

    def tidy(self, now_ms: int) -> None:
        """Does what a follower does while leaders delete; `now_ms` is what its clock shows."""

    def delete_before(self, offset: int) -> None:
        """Raises the log start, and removes the batches that end there or before."""
        self.changed()
        self.start = max(self.start, offset)
        number = bisect_right(self.batches, self.start, key=attrgetter("end"))
        if number:
            self.first = self.batches[number - 1].end
            self.max_event_told = max(self.max_event, self.max_event_told)
            self.last_append_told = max(self.last_append_told, self.times[number - 1][1])
            for batch in self.batches[:number]:
                _note(self.snapshot, batch)
            del self.batches[:number]
            self._event_number, self._largest = 0, NO_TIME
            first = self.batches[0].base if self.batches else self.first
            self.times = [entry for entry in self.times if entry[0] >= first]
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        following = [*(entry.start_offset for entry in self.epochs[1:]), None]
        self.epochs = [
            EpochStart(entry.epoch, max(entry.start_offset, self.start))
            for entry, ends in zip(self.epochs, following, strict=True)
            if ends is None or ends > self.start
        ]

    def sync(self) -> None:
        """Makes all batches durable."""
        if not self.has_failed:
            self.synced = self.end

    def rebuild_producers(self) -> None:
        """Makes the state of producers from the snapshot and the batches."""
        self.producers = dict(self.snapshot)
        for batch in self.batches:
            _note(self.producers, batch)

    def _count_cut(self) -> None:
        self.cuts += 1
        self._event_number, self._largest = 0, NO_TIME
        self.changed()

    # --- faults -----------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process has died: what was in its memory is gone, the page cache is not."""
        self._count_cut()
        self.high_watermark = min(max(self.checkpoint, self.start), self.end)

    def lose_power(self, pick: random.Random) -> bool:
        """The machine has died: any tail that was not synced is gone. Returns whether one is."""
        self.kill()
        first = bisect_left(self.batches, self.synced, key=_BASE)
        kept = pick.randint(first, len(self.batches)) if first < len(self.batches) else first
        lost = kept < len(self.batches)
        if lost:
            del self.batches[kept:]
            self._cut_beside()
        self.synced = self.end
        return lost


def _note(producers: dict[int, tuple[int, int]], batch: Batch) -> None:
    """Notes a producer's last sequence."""
    if batch.producer >= 0:
        producers[batch.producer] = batch.producer_epoch, batch.sequence + batch.count - 1

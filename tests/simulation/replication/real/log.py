"""A replica's log in the product's storage, as the simulated broker and the checker see it.

What the broker asks of it is done by a `Partition` of `storage.log`. What the checker looks at is a
copy, read back through the partition's reader after each change: only what the change may have
touched. A change that storage refuses may be done in part. The copy stays as it was when the process
dies.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.cluster.log import NO_TIME, Batch, Log
from tests.simulation.replication.real.batches import parsed, produced, stored
from tests.storage.cleaning import clean
from tidelog.broker.partitions import replication_state
from tidelog.protocol.api.fetch import FetchPartition, PartitionData
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage.log import lookup
from tidelog.storage.time.corrections import judged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.cluster.requests import Produce
    from tests.simulation.replication.cluster.settings import Settings
    from tests.simulation.replication.real.disk import RealDisk
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.replication.leader_state import LeaderState
    from tidelog.storage.time.corrections import ForwardStep

COMPACTED = 0.2  # of the rounds compact, too
BATCH_BYTES = 110  # about as many as one has
_BASE = attrgetter("base")


class Told(NamedTuple):
    """An answer of a leader to a follower, as Fetch carries it."""

    data: PartitionData | None
    known: LeaderState


class RealLog(Log):
    """One replica's log, on a disk, in one life of its broker."""

    is_stored = True

    def __init__(self, disk: RealDisk, partition: Partition) -> None:
        super().__init__()
        self._disk = disk
        self.partition = partition
        self._look(0)

    @property
    def end(self) -> int:
        """Where the log ends; compaction may have removed its last batches."""
        return self.first

    @property
    def _now_ms(self) -> int:
        return self._disk.now_ms()

    # --- what the checker sees --------------------------------------------------------------------

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
        self.first = end
        is_whole = self.batches and self.batches[-1].end == end
        if self.batches and not is_whole and not partition.config.is_compacted:
            raise BrokenInvariantError(
                f"the log ends at {end}, its last batch is {self.batches[-1]}"
            )
        self.epochs = list(state.epochs.entries)
        self.mark, self.back = (state.mark.epoch, state.mark.number), state.back_offset
        self.synced = partition.durable_offset
        self.high_watermark = partition.believed_high_watermark
        if state.lost_offset is not None:  # what follows goes, unless this log leads
            number = self.number_at(state.lost_offset)
            lost = self.batches[number].base if number < len(self.batches) else end
            self.high_watermark = max(self.start, min(self.high_watermark, lost))
        self.changed()

    @contextlib.contextmanager
    def _changing(self, unchanged: int) -> Iterator[None]:
        """Reads again what a call has changed, also if storage has refused the rest of it.

        `unchanged`: the call changes no batch before this offset.
        """
        try:
            yield
        except KafkaStorageError:
            if not self.is_offline:  # one that is offline cannot be read
                self._look(unchanged)
            raise
        self._look(unchanged)

    def look_durable(self) -> None:
        """Sees how far the log is durable now."""
        self.synced = self.partition.durable_offset

    @property
    def is_offline(self) -> bool:
        return self.partition.offline is not None

    @property
    def is_there(self) -> bool:
        """Whether its files are: a disk that lost power has others, which the next life opens."""
        return self.partition.directory.parent == self._disk.path

    @property
    def last_epoch(self) -> int:
        return self.partition.state.epochs.latest

    @property
    def max_event(self) -> int:
        with self._disk.undisturbed():
            largest = self.partition.reader.read_max_event_time()
        return NO_TIME if largest is None else largest

    @property
    def counted_event(self) -> int | None:
        state = self.partition.state
        if any(segment.known_times[1] < segment.tail.size for segment in state.version.segments):
            return None  # the checker does not read what storage has not read
        return NO_TIME if state.max_event_time is None else state.max_event_time

    @property
    def last_append(self) -> int:
        last = self.partition.last_append_time
        return NO_TIME if last is None else last

    def known_times(self) -> tuple[int, int]:
        return self.last_append, NO_TIME  # the largest event time would have to be read

    def reset_clock(self, epoch: int, now_ms: int) -> bool:
        with self._changing(self.end):
            return self.partition.append_clock.reset(now_ms) is not None

    def note_step(self, step: ForwardStep, history: str, number: int) -> None:
        """Takes a trusted step of the broker's clock into account, if the log leads."""
        if not self.is_offline:
            with self._changing(self.end):
                self.partition.append_clock.note_step_forward(step, history, number)

    def judged_time(self, base: int) -> int:
        time = self.append_time(base)
        return time if time == NO_TIME else judged(self.partition.state.corrections, base, time)

    def end_of(self, epoch: int) -> tuple[int, int]:
        return self.partition.reader.end_offset_for_epoch(epoch)

    def lookup(self, first: int, time: int, *, by_append: bool) -> int | None:
        with self._disk.undisturbed():
            return self._lookup(first, time, by_append=by_append)

    def _lookup(self, first: int, time: int, *, by_append: bool) -> int | None:
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
                    back_offset=self.partition.state.back_offset,
                )
        return found.offset if found.unknown_from is None else -1

    # --- roles ------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        with self._changing(self.end):
            self.partition.roles.lead(epoch)

    def follow(self, epoch: int) -> None:
        """Follows in an epoch; batches without append times go, because the leader has them."""
        self.cuts += 1
        with self._changing(0):
            self.partition.roles.follow(epoch)

    def resign(self) -> None:
        self.partition.roles.resign()

    def advance(self, offset: int) -> None:
        state = self.partition.state
        with state.append_lock:
            state.advance_high_watermark(offset)
        self._look(self.end)

    # --- appends and reads ------------------------------------------------------------------------

    def produce(self, request: Produce, settings: Settings, epoch: int, broker: Broker) -> Batch:
        """Appends a producer's batch, or returns the one that was appended when it came first.

        Storage stamps it, and checks its sequence. Raises BrokerError.
        """
        data, version = produced(request, settings.format, has_key=settings.is_compacted)
        with self._changing(self.end):
            told = self.partition.append(data, now_ms=self._now_ms, produce_version=version)
        if told.duplicate:
            number = self.number_at(told.base_offset)
            if number < len(self.batches) and self.batches[number].base == told.base_offset:
                return self.batches[number]
            return Batch(told.base_offset, told.count, *request[1:2], epoch, -1, None, -1, -1, -1)
        return self.batches[-1]

    def read(self, offset: int, up_to: int, most: int) -> Told:
        """Reads for a follower. It is given what storage lets it have, `up_to` or not."""
        data, _, _ = replication_state.read_for_follower(
            self.partition,
            FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=0),
            most * BATCH_BYTES,
            minimum_one=True,
            may_block=True,
        )
        return Told(data, replication_state.received_state(data, data.replication_state))

    def read_for_consumer(self, offset: int, most: int) -> tuple[Batch, ...]:
        if offset == self.end:
            return ()
        fetched = self.partition.read(
            offset,
            most * BATCH_BYTES,
            upper_offset=self.partition.high_watermark,
            minimum_one=True,
        )
        return tuple(batch for data in fetched.buffers for batch in parsed(data))

    def known(self) -> LeaderState:
        return self.read(self.end, 0, 0).known

    def append_as_follower(self, told: Told) -> None:
        start, data = self.start, told.data
        with self._changing(self.end):
            self.partition.replica.append_as_follower(
                b"".join(data.records or ()),
                replication_state.received_append_times(data),
                replication_state.received_epochs(data.replication_state),
                told.known,
                now_ms=self._now_ms,
            )
        if self.partition.segments[0].base_offset < start:
            self.cuts += 1  # an empty log began with a batch in which the leader's log starts
            self._look(0)

    def take_mark(self, known: LeaderState) -> None:
        with self._changing(self.end):
            self.partition.replica.append_as_follower(b"", (), (), known, now_ms=self._now_ms)

    # --- what goes --------------------------------------------------------------------------------

    def truncate(self, offset: int, *, is_below_high_watermark: bool = False) -> None:
        self.cuts += 1
        with self._changing(0):
            self.partition.truncater.truncate_to(
                offset, below_high_watermark=is_below_high_watermark
            )

    def restart_at(self, offset: int) -> None:
        self.cuts += 1
        with self._changing(0):
            self.partition.truncater.start_at(offset)

    def delete_before(self, offset: int) -> None:
        with self._changing(self.end):
            self.partition.retainer.delete_records_before(offset)

    def retain(self, settings: Settings, trusted_ms: int) -> None:
        with self._changing(self.end):
            self.partition.retainer.apply_retention(trusted_ms)
        self._compact(trusted_ms)

    def tidy(self, now_ms: int) -> None:
        """Plays a round of retention, in which a follower deletes no more than its leader has."""
        if self.partition.retainer.apply_retention(now_ms):
            self._look(self.end)
        self._compact(now_ms)

    def _compact(self, now_ms: int) -> None:
        """Compacts what storage allows; what a full disk refuses is left to a later round."""
        if not self.partition.config.is_compacted or self._disk.pick.random() > COMPACTED:
            return
        self.cuts += 1
        with self._changing(0), contextlib.suppress(OSError):
            clean(self.partition, now_ms)

    def sync(self) -> None:
        self.partition.commit()
        self._look(self.end)

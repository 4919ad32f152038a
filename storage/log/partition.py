"""One partition of a topic: the state of its log, and the objects that work on it.

`appender` stores batches with their offsets and append times; `append_clock` corrects them after
the clock was wrong; `reader` reads and finds offsets; `flusher` makes durable; `retainer` deletes old
segments, and explains; `compactor` replaces segments by compacted ones; `scrubber` reads closed ones
again; `replica` follows a leader, `truncater` truncates the log for it, `roles` makes it lead or follow.
They share the `LogState` (`state.py`, with the locks). What is often used of them is also here.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Required, TypedDict, Unpack

from tidelog.protocol.errors import CorruptMessage, KafkaStorageError
from tidelog.protocol.records.markers import Marker
from tidelog.storage.log import failures
from tidelog.storage.log.appender import Appended, Appender
from tidelog.storage.log.compactor import Compactor
from tidelog.storage.log.epochs import begin_leader_epoch
from tidelog.storage.log.flusher import Flusher
from tidelog.storage.log.high_watermark import believed
from tidelog.storage.log.reader import Reader
from tidelog.storage.log.recovery.opening import open_log
from tidelog.storage.log.replication.truncater import Truncater
from tidelog.storage.log.retention.retainer import Retainer
from tidelog.storage.log.scrubber import Scrubber
from tidelog.storage.time.corrections import NO_HISTORY

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.log.producers.aborted import AbortedFrom
    from tidelog.storage.log.producers.verification import Guard
    from tidelog.storage.log.replication.replica import Replica
    from tidelog.storage.log.replication.roles import Roles
    from tidelog.storage.log.version import Version
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.arrivals import Arrivals
    from tidelog.storage.time.corrections import ClockHistory

__all__ = ["Appended", "Partition"]


class Left(TypedDict, total=False):
    """The state in which a log was left, and facts that its broker knows; see `open_log`."""

    now_ms: Required[int]
    recovery_point: int
    was_clean: bool
    log_start_offset: int
    high_watermark: int | None
    cleaned_offset: int | None
    producer_id_expiration_ms: int
    boot_id: str
    deletion_ms: int


class OpenTransaction(NamedTuple):
    """A transaction that has data in a partition and no marker yet."""

    producer_id: int
    epoch: int
    first_offset: int
    last_append_time_ms: int
    coordinator_epoch: int  # of the producer's last marker here; -1: it has none


class Partition:
    """The log of one partition of a topic."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        index: int,
        topic_id: uuid.UUID | None,
        config: TopicConfig,
        *,
        history: ClockHistory = NO_HISTORY,
        **left: Unpack[Left],
    ) -> None:
        """Opens the directory, and in flush mode makes its content durable. Raises OSError.

        `history` is how the clock has changed.
        """
        state = self.state = open_log(directory, topic, index, topic_id, config, **left)
        self.directory, self.topic, self.index = directory, topic, index
        self.appender = Appender(state)
        self.append_clock = self.appender.clock
        self.reader = Reader(state)
        self.flusher = Flusher(state)
        self.compactor = Compactor(state, self.flusher)
        self.retainer = Retainer(state, self.flusher, self.compactor)
        self.scrubber = Scrubber(state)
        self.truncater = Truncater(state, self.flusher, self.compactor)
        # Called for every request, so bound without another call in between.
        self.append = self.appender.append
        self.read = self.reader.read
        if (
            not state.policy.reads_at_once
            and state.durability.durable_offset < state.ends.log_end_offset
        ):
            with contextlib.suppress(KafkaStorageError):  # then the log is offline
                self.flush()  # consumers see what recovery found, so it must not be lost again
        if state.recovery.unindexed_offset is not None:
            # Before a flush moves the recovery point. If it fails, the next reader tries again.
            with contextlib.suppress(KafkaStorageError, CorruptMessage):
                state.read_producers()
        with contextlib.suppress(KafkaStorageError):  # logged; it is done again once it is served
            self.append_clock.begin(history, left["now_ms"])

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} at {self.log_end_offset}>"

    # --- replication: an only replica loads nothing of this ---------------------------------------

    @cached_property
    def replica(self) -> Replica:
        """The part that follows a leader."""
        from tidelog.storage.log.replication.replica import Replica

        return Replica(self.state, self.appender, self.retainer, self.truncater)

    @cached_property
    def roles(self) -> Roles:
        """The part that makes the log lead or follow."""
        from tidelog.storage.log.replication.roles import Roles

        return Roles(self.state, self.truncater)

    # --- settings ---------------------------------------------------------------------------------

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id; None if the directory has none."""
        return self.state.topic_id

    @topic_id.setter
    def topic_id(self, topic_id: uuid.UUID | None) -> None:
        self.state.topic_id = topic_id

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; a replacement applies from the next append on."""
        return self.state.rules.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.state.reconfigure(config)

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch: the last one that began in this directory."""
        return self.state.leadership.epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
        begin_leader_epoch(self.state, epoch)

    @property
    def has_flush_rules(self) -> bool:
        """Whether flush.messages or flush.ms is set."""
        return self.state.rules.has_flush_rules

    @property
    def must_commit(self) -> bool:
        """Whether flush.messages is reached: acknowledgements must wait for a `commit`."""
        return self.flusher.must_commit

    # --- offsets ----------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that may be read."""
        return self.state.version.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.state.ends.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which others may read."""
        return self.state.ends.high_watermark

    @property
    def believed_high_watermark(self) -> int:
        """The high watermark for a checkpoint; see `high_watermark.believed`."""
        return believed(self.state)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is complete.

        Equals the high watermark until the producers have been read; see `Reader.learn`.
        """
        return self.state.ends.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """The offset before which everything is durable, indexes too."""
        return self.state.durability.recovery_point

    @property
    def durable_offset(self) -> int:
        """The offset before which batches and append times are durable."""
        return self.state.durability.durable_offset

    @property
    def stored_offset(self) -> int:
        """The log end offset; with flush.messages=1 the durable offset if that is smaller.

        A leader sends no records from there on to followers.
        """
        return self.state.stored_offset

    @property
    def cleaned_offset(self) -> int | None:
        """The offset before which the log has been compacted; None if it never was."""
        return self.state.cleaning.cleaned_offset

    # --- what it holds ----------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments by base offset; the last one is active. `hold` them to read their files."""
        return self.state.version.segments

    def hold(self) -> Version:
        """Holds the current segments and log start for a `with` block; see `Version`."""
        return self.state.hold()

    @property
    def size(self) -> int:
        """The bytes of the `.log` files of all segments."""
        return self.state.size

    @property
    def max_event_time(self) -> int | None:
        """The largest event time ever below the high watermark, as far as it is known."""
        return self.state.max_event_time

    @property
    def last_append_time(self) -> int | None:
        """The append time of the last batch; None if it is unknown."""
        return self.state.last_append_time_ms

    @property
    def unknown_append_bytes(self) -> int | None:
        """The bytes of segments in which some append time is unknown; None if there are none.

        Nothing is read for it.
        """
        segments = (s for s in self.segments if s.known.times.has_unknown)
        return sum(segment.tail.size for segment in segments) or None

    @property
    def arrivals(self) -> Arrivals:
        """The counts of records that arrived with unusual times."""
        return self.state.arrivals

    @property
    def is_read(self) -> bool:
        """Whether the data that appends need is in memory; see `Appender.read_for_appends`."""
        return self.state.is_read

    # --- transactions -----------------------------------------------------------------------------

    def verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, raises_epoch: bool = False
    ) -> Guard | None:
        """Returns the guard of a transactional batch, None if its transaction is open here.

        With a guard the coordinator is to be asked, and then `append` is called with it.
        `raises_epoch` is for transaction.version 2, where each transaction has an epoch of its own.
        Reads the producers if they have not been read yet. Raises KafkaStorageError, and
        InvalidProducerEpoch for an epoch that is over: its producer hears of that first.
        """
        producers = self.state.read_producers()
        producers.check_epoch(producer_id, epoch)
        if producers.is_open(producer_id, epoch):
            return None
        return producers.guards.guard(producer_id, epoch, first_sequence, raises_epoch=raises_epoch)

    def aborted_transactions(
        self, offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[AbortedFrom]:
        """Returns the aborted transactions of a fetch; see `Reader.aborted_transactions`."""
        return self.reader.aborted_transactions(offset, end_offset, may_block=may_block)

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        may_block: bool = True,
        least_ms: int | None = None,
    ) -> Appended:
        """Ends a producer's transaction in this partition; see `Appender.append_marker`."""
        marker = Marker(is_commit, coordinator_epoch)
        return self.appender.append_marker(
            producer_id, epoch, marker, now_ms=now_ms, may_block=may_block, least_ms=least_ms
        )

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """Returns the coordinator epoch of a producer's last marker here; -1 if none is known.

        For a thread, because it may read. Raises KafkaStorageError.
        """
        return self.state.read_producers().coordinator_epoch(producer_id)

    def forget_coordinator_epoch(self, producer_id: int, *, above: int) -> bool:
        """Forgets the coordinator epoch of a producer's last marker if it is larger.

        Until the log is read again, older coordinators are not fenced by it. Returns whether it was.
        """
        state = self.state
        with state.append_lock:
            producers = state.producers
            return producers is not None and producers.forget_coordinator(producer_id, above)

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions, the oldest first; for a thread, because it may read.

        Raises KafkaStorageError.
        """
        return [
            OpenTransaction(
                known.producer_id,
                known.epoch,
                known.transaction_first_offset,
                known.last_append_time_ms,
                known.coordinator_epoch,
            )
            for known in self.state.read_producers().open_transactions()
        ]

    # --- the clock --------------------------------------------------------------------------------

    def begin_segment_at_next_append(self) -> None:
        """Lets the next append begin a segment, unless the active one is empty."""
        self.append_clock.begin_segment_at_next_append()

    # --- its life ---------------------------------------------------------------------------------

    @property
    def offline(self) -> str | None:
        """Why the log is offline, from a failed sync to the end of the process; None if online."""
        return self.state.offline

    @property
    def is_full(self) -> bool:
        """Whether the disk has had no room for the log, as far as is known since `note_room`."""
        return self.state.is_full

    def note_room(self) -> None:
        """Takes it that the disk has room again, until something finds none."""
        self.state.is_full = False

    @property
    def is_deleted(self) -> bool:
        """Whether the partition has been deleted."""
        return self.state.is_deleted

    def check_online(self) -> None:
        """Raises KafkaStorageError if the log is offline."""
        self.state.check_online()

    def go_offline(self, why: str) -> None:
        """Serves nothing until the next start; see `failures.go_offline`."""
        failures.go_offline(self.state, why)

    def commit(self) -> int:
        """Makes durable what acknowledgements wait for; see `Flusher.commit`."""
        return self.flusher.commit()

    def flush(self) -> int:
        """Makes all durable, indexes too; see `Flusher.flush`."""
        return self.flusher.flush()

    def close(self) -> None:
        """Stops cleanly; see `Flusher.close`."""
        self.flusher.close()

    def mark_deleted(self) -> None:
        """Accepts no more batches and touches no files: another log may get their names.

        Waits for threads that are writing.
        """
        state = self.state
        if state.is_deleted:
            return
        with state.commit_lock, state.flush_lock, state.append_lock:
            state.stop(state.stopped._replace(is_deleted=True))
            state.give_up_files()

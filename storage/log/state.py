"""The state of a partition's log: its segments, offsets, times and locks, in one place.

The objects that work on a partition (appender, reader, flusher, retainer, compactor, replica,
truncater) share one `LogState`. They read its attributes. They change attributes that belong
together through its methods: the version (segments and start), the ends, the high watermark.
`saved_times` writes `partition.times`.

Locks: `append_lock` protects the active segment and the list of segments, `flush_lock` excludes
flushing, retention and compaction from each other, `commit_lock` is for commits. A thread that
needs several takes them from the last to the first. A thread that writes files holds one of them,
and the deletion of the log takes all, so nothing is written after it. `sync_lock` is held for one
sync; under it no other lock than `append_lock` is taken. The lock of `saved_times` is held for one
file, and taken after all of them.
`version_lock` protects one assignment or one count; under it no lock is taken.

What a failing disk does to a log is in `failures.py`, what its append times count as in
`times/judging.py`.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING

from tidelog.protocol.errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from tidelog.storage import reserves
from tidelog.storage.log.high_watermark import Role, policy_of
from tidelog.storage.log.producers import stability
from tidelog.storage.log.producers.producer_state import Producers
from tidelog.storage.log.retention.pending_deletes import PendingDeletes
from tidelog.storage.log.settings import NEWEST_MAGIC, has_flush_rules, settings_of
from tidelog.storage.log.times import judging
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.log.times.saved_times import SavedTimes
from tidelog.storage.log.version import Ends, Version
from tidelog.storage.time.arrivals import Arrivals
from tidelog.storage.time.corrections import NO_MARK
from tidelog.storage.time.event_time import event_slack
from tidelog.storage.time.timestamp import MIN_TIMESTAMP

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.log.epochs import LeaderEpochs
    from tidelog.storage.log.high_watermark import HighWatermarkPolicy
    from tidelog.storage.log.producers.unstable import Unstable
    from tidelog.storage.log.settings import Settings
    from tidelog.storage.log.times.partition_times import ClockMark
    from tidelog.storage.reserves import Reserve
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.adoption import Adoptions
    from tidelog.storage.time.corrections import Correction, Mark, WrittenBehind
    from tidelog.storage.time.segment_times import SegmentTimes

_log = logging.getLogger("tidelog.storage")


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class LogState:
    """The state of one partition's log; it begins with what was found on disk.

    The log ends, and is readable, up to the end of its segments.
    """

    directory: Path
    topic: str
    index: int
    topic_id: uuid.UUID | None
    config: TopicConfig  # the topic's settings; see `configure`
    _: KW_ONLY

    segments: InitVar[tuple[Segment, ...]]
    log_start_offset: InitVar[int]
    version: Version = field(init=False)
    version_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _replaced: list[Version] = field(init=False, default_factory=list)  # held when replaced
    active: Segment = field(init=False)
    append_lock: threading.RLock = field(init=False, default_factory=threading.RLock)
    flush_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    commit_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    sync_lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    epochs: LeaderEpochs
    leader_epoch: int = field(init=False)  # the last one that began here
    role: Role = field(init=False, default=Role.ALONE)
    is_replicated: bool = False  # others have copies: append times go back by command alone
    epoch_start_offset: int = field(init=False, default=0)  # at which it began to lead
    leader_cleaned_offset: int | None = field(init=False, default=None)  # of a follower's leader
    policy: HighWatermarkPolicy = field(init=False)
    ends: Ends = field(init=False)
    recovery_point: int  # everything before it is durable, indexes too
    durable_offset: int = field(init=False)  # batches and append times before it are durable
    covered_offset: int  # append times before it survive a power loss
    cleaned_offset: int | None  # the log before it was compacted; None: never
    gaps_end_offset: int  # up to which it may have gaps; see recovery/gaps.py
    replacing: frozenset[int] = frozenset()  # segments that are being replaced
    pending_deletes: PendingDeletes = field(init=False, default_factory=PendingDeletes)
    cutting: tuple[int, bool] | tuple[()] = ()  # a truncation to be completed, see `Cut`
    was_cut: bool = False  # truncated since the last clean stop: checkpoints may be older

    last_append_time_ms: int | None  # None: unknown
    back_offset: int  # the last reset of the append clock; 0: none
    begins_segment: bool = field(init=False, default=False)  # the next append does, if not empty
    adoptions: Adoptions  # when batches with unknown append times were adopted
    corrections: tuple[Correction, ...]  # what append times count as; see `judging`
    mark: Mark = NO_MARK  # the last of them
    lost_offset: int | None = None  # append times from it on were lost with the power
    known_high_watermark: int | None = None  # of the checkpoint, until the log has a role
    is_counted: bool = True  # the largest event time has all below it; False after a kill
    # What leaders have appended whose clocks were behind that of this broker; None: nothing is known.
    written_behind: WrittenBehind | None = None
    # What this leader has appended while its own clock was behind append times; how far is not known yet.
    appended_behind: WrittenBehind | None = field(init=False, default=None)
    compared_epoch: int = field(init=False, default=-1)  # in which the clocks were compared
    clock: ClockMark  # the steps of the clock that the corrections have
    corrected_ms: int = MIN_TIMESTAMP  # what the clock showed when it was last set forward
    boot_id: str
    largest_event_time: InitVar[int | None]  # ever below the high watermark, as far as is known
    largest_event: LargestEvent = field(init=False)
    saved_times: SavedTimes = field(init=False)
    arrivals: Arrivals = field(init=False)
    deletion_ms: int  # the time by which may be deleted, as the last round of retention gave it
    producer_id_expiration_ms: int
    unindexed_offset: int | None = None  # aborts from it on may lack their entry in the index
    producers: Producers | None = field(init=False, default=None)  # see `read_producers`
    unstable: Unstable | None = field(init=False, default=None)  # what holds back the stable offset
    is_read: bool = field(init=False)  # whether the data that appends need is in memory

    has_flush_rules: bool = field(init=False)
    event_slack_ms: int = field(init=False)
    settings: Settings = field(init=False)
    internal_settings: Settings = field(init=False)

    is_deleted: bool = field(init=False, default=False)
    offline: str | None = field(init=False, default=None)  # why, until the process ends
    is_full: bool = field(init=False, default=False)  # the disk had no room; see `note_room`
    reserve: Reserve = field(init=False)  # of the log directory
    is_closed: bool = field(init=False, default=False)
    has_begun_to_follow: bool = field(init=False, default=False)  # in the present epoch: no appends
    is_stopped: bool = field(init=False, default=False)  # deleted, offline or closed: no appends
    # What was logged once, until a flush succeeds.
    logged_errors: set[tuple[str, str]] = field(init=False, default_factory=set)

    def __post_init__(
        self,
        segments: tuple[Segment, ...],
        log_start_offset: int,
        largest_event_time: int | None,
    ) -> None:
        """Derives what follows from the segments and the settings."""
        end_offset = segments[-1].tail.end_offset
        self.version = Version(0, segments, log_start_offset, 0, self.version_lock)
        self.active = segments[-1]
        self.ends = Ends(end_offset, end_offset, end_offset)
        self.leader_epoch = max(0, self.epochs.last_begun)
        self.durable_offset = self.recovery_point
        self.largest_event = LargestEvent(largest_event_time)
        self.saved_times = SavedTimes(self)
        self.arrivals = Arrivals(self.config)
        self.reserve = reserves.of(self.directory.parent)
        self.is_read = False
        self.configure(self.config)

    def __repr__(self) -> str:
        return f"<LogState {self.topic}-{self.index} at {self.ends.log_end_offset}>"

    def named(self, **fields: object) -> dict[str, object]:
        """Returns fields of a log line about this partition."""
        return {"topic": self.topic, "partition": self.index, **fields}

    # --- settings ---------------------------------------------------------------------------------

    def configure(self, config: TopicConfig) -> None:
        """Replaces the topic's settings, from the next append on."""
        self.config = config
        self.policy = policy_of(self.role, config.flush_messages)
        self.has_flush_rules = has_flush_rules(config)
        self.event_slack_ms = event_slack(config)
        for segment in self.version.segments:
            self.configure_segment(segment)
        self.arrivals.expect(config)
        self.settings = settings_of(config, config.target_magic)
        self.internal_settings = settings_of(config, NEWEST_MAGIC)

    def configure_segment(self, segment: Segment) -> None:
        """Sets in a segment what follows from the topic's settings."""
        segment.configure(self.event_slack_ms, self.config.index_interval_bytes)

    def reconfigure(self, config: TopicConfig) -> None:
        """Replaces the settings of an open log; for a thread if the limit of event times changes."""
        if event_slack(config) == self.event_slack_ms:
            self.configure(config)
            return
        with self.flush_lock, self.append_lock:
            self.saved_times.keep_events()
            self.configure(config)

    # --- versions ---------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The bytes of the `.log` files of all segments."""
        return sum(segment.tail.size for segment in self.version.segments)

    def hold(self) -> Version:
        """Returns the current version, held: use it in a `with` block, or release it."""
        with self.version_lock:
            version = self.version
            version.holders += 1
        return version

    def replace_segments(self, segments: tuple[Segment, ...], log_start_offset: int) -> int:
        """Replaces the segments, and perhaps raises the start; needs the append lock.

        Returns the number of the replaced version, whose holders still use its segments.
        """
        before = self._replace(segments, log_start_offset, self.version.generation)
        self.active = segments[-1]
        return before.number

    def move_start(self, offset: int) -> None:
        """Raises the log start to an offset, if it is lower; needs the append lock."""
        if offset > self.version.log_start_offset:
            self._replace(self.version.segments, offset, self.version.generation)

    def begin_generation(self) -> None:
        """Makes reads in progress fail with NOT_LEADER_OR_FOLLOWER; needs the append lock.

        For a new leader epoch, and for a truncation both before the files are cut and when the log
        is whole again.
        """
        version = self.version
        self._replace(version.segments, version.log_start_offset, version.generation + 1)

    def check_generation(self, version: Version) -> None:
        """Raises NotLeaderOrFollower after a truncation or a new epoch since this version."""
        if self.version.generation != version.generation:
            raise NotLeaderOrFollower(
                f"{self.topic}-{self.index}: the leader epoch has changed, or the log was truncated"
            )

    def begin_first_epoch(self) -> None:
        """Begins the leader epoch of a new log durably, so that no append waits for the disk.

        Raises OSError.
        """
        with self.append_lock:
            self.epochs.begin(self.leader_epoch, self.ends.log_end_offset)
            self.producers = Producers(self.producer_id_expiration_ms)
            self.is_read = True  # there is nothing to read

    def begin_leader_epoch(self, epoch: int) -> None:
        """Sets the leader epoch, as leader or follower."""
        with self.append_lock:
            if epoch != self.leader_epoch:
                self.leader_epoch = epoch
                self.is_read = False  # the next append writes the epoch, and may block
                self.begin_generation()

    def _replace(
        self, segments: tuple[Segment, ...], log_start_offset: int, generation: int
    ) -> Version:
        with self.version_lock:
            before = self.version
            self._replaced = [each for each in (*self._replaced, before) if each.holders]
            self.version = Version(
                before.number + 1, segments, log_start_offset, generation, self.version_lock
            )
        if log_start_offset > before.log_start_offset:
            stability.settle(self)
            _log.info("log start moved", extra=self.named(log_start_offset=log_start_offset))
        return before

    def oldest_held(self) -> int | None:
        """Returns the number of the oldest replaced version that is still held, or None."""
        with self.version_lock:
            self._replaced = [each for each in self._replaced if each.holders]
            return self._replaced[0].number if self._replaced else None

    def remove_pending_deletes(self, now_ms: int) -> None:
        """Removes files of deleted segments that are due and not in use. Raises OSError."""
        self.pending_deletes.remove_due(now_ms, self.oldest_held())

    def give_up_files(self) -> None:
        """Never opens a file of this log again, because another log may get their names."""
        with self.version_lock:
            versions = (*self._replaced, self.version)
        for version in versions:
            for segment in version.segments:
                segment.give_up()

    # --- ends -------------------------------------------------------------------------------------

    @property
    def is_follower(self) -> bool:
        """Whether another broker leads."""
        return self.role is Role.FOLLOWER

    @property
    def awaits_role(self) -> bool:
        """Whether it is a replica of which nobody has said since its start who leads."""
        return self.is_replicated and self.role is Role.ALONE

    @property
    def stored_offset(self) -> int:
        """The offset before which batches count as stored, for replication.

        That is the log's end; with `flush.messages=1` what is durable. A leader sends its followers
        no more, and a follower does not ask for what comes next before it has stored so much.
        """
        if self.config.flush_messages != 1:
            return self.ends.log_end_offset
        return min(self.durable_offset, self.ends.log_end_offset)

    def take_role(self, role: Role) -> None:
        """Lets the log's own policy, or replication, move the high watermark from now on."""
        with self.append_lock:
            self.role, self.is_replicated = role, role is not Role.ALONE
            self.policy = policy_of(role, self.config.flush_messages)

    def cut_ends(self, end_offset: int, high_watermark: int) -> None:
        """Sets the end of a truncated log; needs the append lock."""
        stability.cut(self, end_offset, high_watermark)
        self.durable_offset = min(self.durable_offset, end_offset)
        self.producers, self.is_read = None, False

    def publish(self, end_offset: int) -> None:
        """Sets the log's end after a batch has been stored; needs the append lock.

        The policy decides whether others may read it at once.
        """
        if self.policy.reads_at_once:
            high_watermark = stable = end_offset
        else:
            _, high_watermark, stable = self.ends
        if self.unstable is not None:
            stable = stability.stable_at(self, high_watermark)
        # The same as Ends(...), without the Python frame of a NamedTuple's constructor.
        self.ends = tuple.__new__(Ends, (end_offset, high_watermark, stable))

    def advance_high_watermark(self, offset: int) -> None:
        """Lets others read up to an offset; needs the append lock.

        The high watermark never exceeds the log's end, and never decreases.
        """
        end_offset, high_watermark, _ = self.ends
        offset = min(offset, end_offset)
        if offset > high_watermark:
            stable = offset if self.unstable is None else stability.stable_at(self, offset)
            self.ends = tuple.__new__(Ends, (end_offset, offset, stable))

    def mark_durable(self, end_offset: int) -> None:
        """Records that batches and append times are durable up to an offset.

        Raises KafkaStorageError if the log has gone offline meanwhile: its end is decided then.
        """
        with self.append_lock:
            self.check_online()
            self.durable_offset = max(end_offset, self.durable_offset)
            self.policy.flushed(self, self.durable_offset)
            self.largest_event.advance(self.ends.high_watermark)

    # --- times ------------------------------------------------------------------------------------

    def judge(self, segment: Segment, times: SegmentTimes) -> SegmentTimes:
        """Returns what the times of a segment count as; see `judging`."""
        return judging.judged(self, segment, times)

    @property
    def max_event_time(self) -> int | None:
        """The largest event time ever below the high watermark; see `largest_event`.

        Before a replica has a role, what was saved counts: its high watermark is not known.
        """
        with self.append_lock:
            if self.awaits_role:
                return self.largest_event.kept
            rules = (self.corrections, self.adoptions, self.event_slack_ms)
            return self.largest_event.below(
                self.ends.high_watermark, self.version.segments, self.judge, rules
            )

    # --- producers --------------------------------------------------------------------------------

    def read_producers(self) -> Producers:
        """Returns the producers and their open transactions, read from the log on first use.

        Raises KafkaStorageError and CorruptMessage.
        """
        producers = self.producers
        return stability.read(self) if producers is None else producers

    # --- when the disk fails ----------------------------------------------------------------------

    def check_online(self) -> None:
        """Raises KafkaStorageError if the log is offline."""
        if self.offline is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is offline: {self.offline}")

    def check_usable(self) -> None:
        """Raises the error of a log whose files must not be written; for holders of a lock."""
        if self.is_deleted:
            raise UnknownTopicOrPartition(f"{self.topic}-{self.index} has been deleted")
        self.check_online()

"""The state of a partition's log: its segments, offsets, times and locks, in one place.

The objects that work on a partition (appender, reader, flusher, retainer, compactor, replica,
truncater) share one `LogState`. It has immutable values, which are replaced as a whole (`values.py`
says by whom), and parts that keep their own state. `saved_times` writes `partition.times`.

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
from tidelog.storage.log.retention.pending_deletes import PendingDeletes
from tidelog.storage.log.settings import rules_for
from tidelog.storage.log.times import judging
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.log.times.saved_times import SavedTimes
from tidelog.storage.log.values import (
    NO_CLEANING,
    NO_TRUNCATION,
    NOT_STOPPED,
    Cleaning,
    Durability,
    Stopped,
    Truncation,
)
from tidelog.storage.log.version import Ends, Version
from tidelog.storage.time.arrivals import Arrivals
from tidelog.storage.time.event_time import event_slack

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.log.epochs import LeaderEpochs
    from tidelog.storage.log.high_watermark import HighWatermarkPolicy
    from tidelog.storage.log.producers.producer_state import Producers
    from tidelog.storage.log.producers.unstable import Unstable
    from tidelog.storage.log.settings import TopicRules
    from tidelog.storage.log.values import Leadership, RecoveryState, Timing
    from tidelog.storage.reserves import Reserve
    from tidelog.storage.segment.segment import Segment
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
    _: KW_ONLY
    boot_id: str
    producer_id_expiration_ms: int

    config: InitVar[TopicConfig]
    segments: InitVar[tuple[Segment, ...]]
    log_start_offset: InitVar[int]
    largest_event_time: InitVar[int | None]  # ever below the high watermark, as far as is known

    # Values, which are replaced as a whole.
    version: Version = field(init=False)
    ends: Ends = field(init=False)
    rules: TopicRules = field(init=False)
    policy: HighWatermarkPolicy = field(init=False)
    durability: Durability
    leadership: Leadership
    timing: Timing
    recovery: RecoveryState
    cleaning: Cleaning = NO_CLEANING
    truncation: Truncation = NO_TRUNCATION
    stopped: Stopped = field(init=False, default=NOT_STOPPED)
    is_stopped: bool = field(init=False, default=False)  # for any of the reasons in `stopped`
    gaps_end_offset: int  # up to which it may have gaps; see recovery/gaps.py
    last_append_time_ms: int | None  # None: unknown
    begins_segment: bool = field(init=False, default=False)  # the next append does, if not empty
    deletion_ms: int  # the time by which may be deleted, as the last round of retention gave it
    is_full: bool = field(init=False, default=False)  # the disk had no room; see `note_room`

    # Parts, which keep their own state.
    epochs: LeaderEpochs
    largest_event: LargestEvent = field(init=False)
    saved_times: SavedTimes = field(init=False)
    arrivals: Arrivals = field(init=False)
    pending_deletes: PendingDeletes = field(init=False, default_factory=PendingDeletes)
    producers: Producers | None = field(init=False, default=None)  # see `read_producers`
    unstable: Unstable | None = field(init=False, default=None)  # what holds back the stable offset
    is_read: bool = field(init=False, default=False)  # the data that appends need is in memory
    reserve: Reserve = field(init=False)  # of the log directory
    # What was logged once, until a flush succeeds.
    logged_errors: frozenset[tuple[str, str]] = field(init=False, default=frozenset())

    append_lock: threading.RLock = field(init=False, default_factory=threading.RLock)
    flush_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    commit_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    sync_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    version_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _replaced: tuple[Version, ...] = field(init=False, default=())  # held when replaced

    def __post_init__(
        self,
        config: TopicConfig,
        segments: tuple[Segment, ...],
        log_start_offset: int,
        largest_event_time: int | None,
    ) -> None:
        """Derives what follows from the segments and the settings."""
        end_offset = segments[-1].tail.end_offset
        self.version = Version(0, segments, log_start_offset, 0, self.version_lock)
        self.ends = Ends(end_offset, end_offset, end_offset)
        self.largest_event = LargestEvent(largest_event_time)
        self.saved_times = SavedTimes(self)
        self.arrivals = Arrivals(config)
        self.reserve = reserves.of(self.directory.parent)
        self.configure(config)

    def __repr__(self) -> str:
        return f"<LogState {self.topic}-{self.index} at {self.ends.log_end_offset}>"

    def named(self, **fields: object) -> dict[str, object]:
        """Returns fields of a log line about this partition."""
        return {"topic": self.topic, "partition": self.index, **fields}

    # --- settings ---------------------------------------------------------------------------------

    def configure(self, config: TopicConfig) -> None:
        """Replaces the topic's settings, from the next append on."""
        self.rules = rules_for(config)
        self.policy = policy_of(self.leadership, config.flush_messages)
        for segment in self.version.segments:
            self.configure_segment(segment)
        self.arrivals.expect(config)

    def configure_segment(self, segment: Segment) -> None:
        """Sets in a segment what follows from the topic's settings."""
        segment.configure(self.rules.event_slack_ms, self.rules.config.index_interval_bytes)

    def reconfigure(self, config: TopicConfig) -> None:
        """Replaces the settings of an open log; for a thread if the limit of event times changes."""
        if event_slack(config) == self.rules.event_slack_ms:
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

    @property
    def active(self) -> Segment:
        """The active segment."""
        return self.version.segments[-1]

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
        return self._replace(segments, log_start_offset, self.version.generation).number

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

    def _replace(
        self, segments: tuple[Segment, ...], log_start_offset: int, generation: int
    ) -> Version:
        with self.version_lock:
            before = self.version
            self._replaced = tuple(each for each in (*self._replaced, before) if each.holders)
            self.version = Version(
                before.number + 1, segments, log_start_offset, generation, self.version_lock
            )
        if log_start_offset > before.log_start_offset:
            stability.settle(self)
            _log.info(
                "log start offset raised", extra=self.named(log_start_offset=log_start_offset)
            )
        return before

    def oldest_held(self) -> int | None:
        """Returns the number of the oldest replaced version that is still held, or None."""
        with self.version_lock:
            self._replaced = tuple(each for each in self._replaced if each.holders)
            return self._replaced[0].number if self._replaced else None

    def give_up_files(self) -> None:
        """Never opens a file of this log again, because another log may get their names."""
        with self.version_lock:
            versions = (*self._replaced, self.version)
        for version in versions:
            for segment in version.segments:
                segment.give_up()

    # --- ends -------------------------------------------------------------------------------------

    @property
    def stored_offset(self) -> int:
        """The offset before which batches count as stored, for replication.

        That is the log's end; with `flush.messages=1` what is durable. A leader sends its followers
        no more, and a follower does not ask for what comes next before it has stored so much.
        """
        if self.rules.config.flush_messages != 1:
            return self.ends.log_end_offset
        return min(self.durability.durable_offset, self.ends.log_end_offset)

    def cut_ends(self, end_offset: int, high_watermark: int) -> None:
        """Sets the end of a truncated log; needs the append lock."""
        stability.cut(self, end_offset, high_watermark)
        durable_offset = min(self.durability.durable_offset, end_offset)
        self.durability = self.durability._replace(durable_offset=durable_offset)
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

    def mark_durable(
        self, end_offset: int, *, recovery_point: int = 0, covered_offset: int = 0
    ) -> None:
        """Records that batches and append times are durable up to an offset, and perhaps more.

        Raises KafkaStorageError if the log has gone offline meanwhile: its end is decided then.
        """
        with self.append_lock:
            self.check_online()
            before = self.durability
            durable_offset = max(end_offset, before.durable_offset)
            self.durability = Durability(
                max(recovery_point, before.recovery_point),
                durable_offset,
                max(covered_offset, before.covered_offset),
            )
            self.policy.flushed(self, durable_offset)
            self.largest_event.advance(self.ends.high_watermark)

    def limit_recovery_point(self, offset: int) -> None:
        """Lets the next flush sync again what lies behind an offset; needs the append lock."""
        recovery_point = min(self.durability.recovery_point, offset)
        self.durability = self.durability._replace(recovery_point=recovery_point)

    # --- replication ------------------------------------------------------------------------------

    @property
    def is_follower(self) -> bool:
        """Whether another broker leads."""
        return self.leadership.role is Role.FOLLOWER

    @property
    def awaits_role(self) -> bool:
        """Whether others have copies, and replication has assigned no role since the log was opened."""
        return self.leadership.role is None

    def take_role(self, role: Role) -> None:
        """Takes the role that replication assigns, which moves the high watermark from now on."""
        self._begin_role(role, is_replicated=True)

    def become_only_replica(self) -> None:
        """Leads as the only replica: the log's own policy moves the high watermark from now on."""
        self._begin_role(Role.LEADER, is_replicated=False)

    def await_role(self) -> None:
        """Counts the log as one of which others have copies, and whose role is not known yet."""
        self._begin_role(None, is_replicated=True)

    def _begin_role(self, role: Role | None, *, is_replicated: bool) -> None:
        with self.append_lock:
            self.leadership = self.leadership._replace(
                role=role, is_replicated=is_replicated, leader_cleaned_offset=None
            )
            self.policy = policy_of(self.leadership, self.rules.config.flush_messages)

    # --- times ------------------------------------------------------------------------------------

    def replace_timing(self, timing: Timing) -> None:
        """Replaces what append times count as; needs the append lock."""
        if timing.adoptions is not self.timing.adoptions:
            for segment in self.version.segments:
                segment.known.adoptions = timing.adoptions
        self.timing = timing

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
            timing = self.timing
            rules = (timing.corrections, timing.adoptions, self.rules.event_slack_ms)
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

    # --- when it stops ----------------------------------------------------------------------------

    @property
    def offline(self) -> str | None:
        """Why the log is offline, until the process ends; None if it is online."""
        return self.stopped.offline

    @property
    def is_deleted(self) -> bool:
        """Whether the partition has been deleted."""
        return self.stopped.is_deleted

    def stop(self, stopped: Stopped) -> None:
        """Accepts no appends any more; needs the append lock."""
        self.stopped, self.is_stopped = stopped, True

    def check_online(self) -> None:
        """Raises KafkaStorageError if the log is offline."""
        offline = self.stopped.offline
        if offline is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is offline: {offline}")

    def check_open(self) -> None:
        """Raises the error of a log that is deleted, offline or closed; needs the append lock."""
        if self.is_stopped:
            self.check_usable()
            raise KafkaStorageError(f"{self.topic}-{self.index} is closed")

    def check_usable(self) -> None:
        """Raises the error of a log whose files must not be written; for holders of a lock."""
        if self.stopped.is_deleted:
            raise UnknownTopicOrPartition(f"{self.topic}-{self.index} has been deleted")
        self.check_online()

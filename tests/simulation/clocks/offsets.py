"""Committed offsets on a broker whose clock may be wrong: when they expire, judged by true time.

What decides is the product's: `offset_expiry`, the corrections in memory, and those of what is read from
the log after a restart (`offsets_topic`, `AppendClock`). The model knows the true time of each commit, and
since when a group is really empty:

- P2: no offset expires before its true time + retention, whatever the clock showed.
- A commit is taken whatever the clocks show, and whatever windows of record times the broker has.
- Once the clock is right, what was committed expires with its retention.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests.simulation.clocks.model import BrokenPromiseError
from tests.simulation.clocks.settings import DAY, HOUR
from tests.simulation.clocks.timeline import Timeline
from tidelog.broker.coordinators.groups import offset_expiry
from tidelog.broker.coordinators.groups.committed import Committed, offset_record
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.coordinators.groups.offsets_topic import TOPIC, read
from tidelog.broker.settings import Settings
from tidelog.config.broker.settings import BrokerConfig
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.directory.store import LogStore
from tidelog.storage.time import stamping

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.storage.time.trusted_clock import Change

STEPS = 40
TOPIC_ID = uuid.UUID(int=15)
GROUPS = 3
_WINDOW = {"message_timestamp_before_max_ms": HOUR, "message_timestamp_after_max_ms": HOUR}


@dataclass
class Truth:
    """What is true of one committed offset."""

    committed_ms: int
    retention_ms: int
    is_own: bool  # the retention is the commit's own
    latest_ms: int  # the last moment at which it can count as committed
    is_noted: bool = True  # the clock was trusted when it was committed


class OffsetsWorld:
    """One life of some groups."""

    def __init__(self, path: Path, seed: int, *, blinks: bool) -> None:
        self.time = time = Timeline(f"offsets {seed}", blinks=blinks)
        time.use = self.commit
        time.clock.on_step = self._correct
        time.corrected = self._corrected
        self.retention_ms = time.random.choice([HOUR, DAY, 7 * DAY])
        self.groups: dict[str, GroupMetadata] = {}
        self.truth: dict[tuple[str, int], Truth] = {}
        self.empty: dict[str, tuple[int, int]] = {}  # since when, truly, and at the latest
        self.expired = 0
        self.window = time.random.choice([{}, {}, _WINDOW])
        broker = BrokerConfig(topic_defaults=TopicConfig(**self.window))
        self.path, self.config = path, Settings(broker).of_topic(TOPIC, {})
        self.accepted = stamping.rules_of(self.config, 2)
        time.say(f"offsets, retention {self.retention_ms}")
        self.open(is_new=True)

    def open(self, *, is_new: bool = False) -> None:
        clock, now_ms = self.time.clock, self.time.machine.wall_ms
        self.store = LogStore(
            [self.path], default_config=self.config, boot_id=clock.reading().boot_id
        )
        clock.serve(self.store)
        self.store.open(now_ms, {TOPIC: self.config})
        if is_new:
            self.store.create_partition(TOPIC, TOPIC_ID, 0, self.config, now_ms)
        self.partition = clock.partition = self.store.partition(TOPIC, 0)

    @property
    def trace(self) -> list[str]:
        return self.time.trace

    # --- what the broker does ---------------------------------------------------------------------

    def _write(self, key: bytes, value: bytes | None) -> None:
        machine = self.time.machine
        self.time.clock.append(
            build([Record(0, machine.wall_ms, key, value)]),
            produce_version=9,
            internal=True,
        )
        # Beside a manual clock, which stamps what is appended, groups may have the system's.
        stamps = stamping.stamps_at(self.accepted, None, machine.wall_ms)
        for stamp_ms in (machine.wall_ms, machine.true_ms):
            if not stamps.min_timestamp <= stamp_ms <= stamps.max_timestamp:
                raise BrokenPromiseError(f"P2: the commit of {stamp_ms} is refused")

    def _correct(self, change: Change) -> None:
        for kept in self.groups.values():
            for _ in offset_expiry.correct_times(kept, change):
                pass

    def _corrected(self) -> None:
        """What is there while a clock is wrong may count as of now, once it is corrected."""
        now_ms = self.time.now_ms
        for truth in self.truth.values():
            truth.latest_ms = max(truth.latest_ms, now_ms)
        for name, (since_ms, _) in self.empty.items():
            self.empty[name] = since_ms, now_ms

    def _of(self, name: str) -> GroupMetadata:
        if name not in self.groups:
            kept = self.groups[name] = GroupMetadata(Group(name, 0, 100))
            kept.since_ms = self.time.clock.now_ms()
        return self.groups[name]

    def commit(self) -> None:
        """Commits an offset; some have a retention of their own, as in OffsetCommit v2 to v4."""
        pick, machine = self.time.random, self.time.machine
        name, partition = f"g{pick.randrange(GROUPS)}", pick.randrange(4)
        kept = self._of(name)
        own_ms = pick.choice([None, None, None, 2 * HOUR, 3 * DAY])
        now_ms = self.time.clock.now_ms()
        expire_ms = NO_TIMESTAMP if own_ms is None else now_ms + own_ms
        at = self.partition.log_end_offset
        committed = Committed(at, -1, "", now_ms, expire_ms, at)
        kept.offsets["t", partition] = committed
        self._write(*offset_record(name, ("t", partition), committed))
        retention_ms = self.retention_ms if own_ms is None else own_ms
        truth = Truth(machine.true_ms, retention_ms, own_ms is not None, machine.true_ms)
        truth.is_noted = self.time.clock.wrong_since is None
        self.truth[name, partition] = truth

    def use(self) -> None:
        """A group gets members, or loses its last one."""
        name = f"g{self.time.random.randrange(GROUPS)}"
        if self._of(name).group.state is State.STABLE:
            self._leave(name)
        else:
            kept = self._of(name)
            kept.group.state, kept.group.protocol_type = State.STABLE, "connect"
            kept.note_state(self.time.clock.now_ms())
            self.empty.pop(name, None)

    def _leave(self, name: str) -> None:
        kept, now_ms = self.groups[name], self.time.now_ms
        kept.group.state = State.EMPTY
        kept.group.generation += 1
        kept.note_state(self.time.clock.now_ms())
        self.empty[name] = now_ms, now_ms
        self._write(*kept.group_record())

    def restart(self) -> None:
        """The broker stops, without members, and reads its log when it is back."""
        for name, kept in self.groups.items():
            if kept.group.state is State.STABLE:
                self._leave(name)
        self.groups = {}
        clock = self.time.clock
        if self.partition.log_end_offset % 2:
            self.store.close()
        else:
            self.partition.flush()
            self.store._release()
        clock.partition = None
        self.time.restart()
        self.open()
        now = SimpleNamespace(now_ms=lambda: self.time.machine.wall_ms)
        end_offset = self.partition.high_watermark
        loading = read(self.partition, end_offset, lambda name: Group(name, 0, 100), now)
        self.groups = {kept.group.group_id: kept for kept in loading.groups(0)}
        if clock.wrong_since is not None or self.time.exempt.was_wrong:
            self._corrected()

    # --- what must hold ---------------------------------------------------------------------------

    def expire(self) -> None:
        """A round of the expiry; what has gone, and what is left, is judged by true time."""
        self.time.observe()
        time = self.time
        for name, kept in self.groups.items():
            now_ms, retention_ms = time.clock.deletion_ms(), self.retention_ms
            going = offset_expiry.expired_offsets(kept, kept.offsets, now_ms, retention_ms)
            for topic, partition in going:
                self._check_gone(name, partition)
                del kept.offsets[topic, partition]
                self._write(*offset_record(name, (topic, partition), None))
                self.expired += 1
            if time.clock.wrong_since is None:
                for _, partition in kept.offsets:
                    self._check_left(name, partition)

    def _check_gone(self, name: str, partition: int) -> None:
        truth = self.truth.pop((name, partition))
        since_ms = truth.committed_ms
        if not truth.is_own:
            since_ms = max(since_ms, self.empty.get(name, (since_ms, 0))[0])
        left_ms = since_ms + truth.retention_ms - self.time.early_ms
        if left_ms > 0:
            raise BrokenPromiseError(
                f"P2: offset {name} {partition} of {truth.committed_ms} expired {left_ms} ms early"
            )

    def _check_left(self, name: str, partition: int) -> None:
        truth = self.truth[name, partition]
        if self.groups[name].group.state is not State.EMPTY or not truth.is_noted:
            return
        latest_ms = truth.latest_ms
        if not truth.is_own:
            latest_ms = max(latest_ms, self.empty.get(name, (0, 0))[1])
        over_ms = self.time.now_ms - latest_ms - truth.retention_ms - self.time.exempt.slack_ms
        if over_ms > 0:
            raise BrokenPromiseError(
                f"P2: offset {name} {partition} is there {over_ms} ms too long"
            )

    def wait(self) -> None:
        self.time.pass_time(int(10 ** self.time.random.uniform(4, 8.6)))
        self.expire()

    def live(self) -> None:
        """Lives, and ends with a clock that is right."""
        time = self.time
        own = {self.commit: 8, self.use: 3, self.wait: 4, self.expire: 2, self.restart: 1}
        time.live({**own, **time.weights()}, STEPS)
        if time.trouble:
            time.heal()
        self.commit()
        time.pass_time(8 * DAY)
        self.expire()
        self.store.close()

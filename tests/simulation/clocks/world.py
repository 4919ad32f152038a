"""A partition, its broker's clock and its machine, through random steps that a seed decides.

Everything that decides is the product's: `LogStore`, `TrustedClock`, retention, compaction, the expiry of
offsets and producers. What the steps do is told to the model, and each round of retention is judged by it.
"""

from __future__ import annotations

import os
import random
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.simulation.clocks.broker import ERRORS, BrokerClock
from tests.simulation.clocks.machine import Machine
from tests.simulation.clocks.model import Batch, BrokenPromiseError, Model
from tests.simulation.clocks.settings import (
    BEGIN_MS,
    DAY,
    HOUR,
    MINUTE,
    RELEASES,
    STAMPS,
    YEAR,
    choose,
    rules_of,
)
from tests.storage.conftest import read_max_event_time
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    from pathlib import Path

OBSERVE_MS = 10_000
TOPIC_ID = uuid.UUID(int=13)


class World:
    """One life of a broker with one partition."""

    def __init__(self, path: Path, seed: int, *, blinks: bool) -> None:
        self.random = pick = random.Random(seed)
        self.blinks = blinks
        self.path = path
        self.trace: list[str] = []
        begin = BEGIN_MS + pick.randint(0, YEAR)
        first_error = pick.choice(ERRORS) if pick.random() < 0.1 else 0
        self.machine = Machine(begin, begin + first_error)
        self.clock = BrokerClock(self.machine)
        self.clock.on_change = self.changed
        self.exempt = self.clock.exempt
        self.trouble = pick.choice([0, 1, 3])
        self.producers = pick.sample(sorted(STAMPS), pick.choice([1, 1, 2, 3]))
        self.settings = choose(pick)
        self.model = Model(rules_of(self.settings))
        self.next_observation = self.machine.true_ms + OBSERVE_MS
        self.promised: tuple | None = None  # what explain said since the last change
        self.segment: tuple[int, int, int] | None = None  # base, true and record time it began with
        self.sequences: dict[int, tuple[int, int, bytes]] = {}
        self.store = None
        self.open(is_new=True)
        self.say(f"{self.producers} {self.settings}")

    def say(self, what: str) -> None:
        machine = self.machine
        self.trace.append(f"{moment(machine.true_ms)} {machine.error_ms:+} ms: {what}")

    def changed(self, what: str) -> None:
        """The broker has noticed that the clock has changed; what explain said may change too."""
        self.promised, self.promised_roll = None, False
        self.say(what)

    # --- settings ---------------------------------------------------------------------------------

    @property
    def is_stamped(self) -> bool:
        return self.settings["message_timestamp_type"] == "LogAppendTime"

    def alter(self) -> None:
        """Changes one to three settings of the live topic."""
        chosen = choose(self.random)
        names = self.random.sample(sorted(chosen), self.random.randint(1, 3))
        self._set({name: chosen[name] for name in names})

    def _set(self, changes: dict[str, Any]) -> None:
        self.settings |= changes
        self.model.configure(rules_of(self.settings))
        self.store.set_config("t", TopicConfig(**self.settings))
        self.promised, self.promised_roll = None, False
        self.say(f"alter {changes}")

    # --- the broker -------------------------------------------------------------------------------

    def open(self, *, is_new: bool = False) -> None:
        config = TopicConfig(**self.settings)
        self.store = LogStore(
            [self.path], default_config=config, boot_id=self.clock.reading().boot_id
        )
        self.clock.serve(self.store)
        self.store.open(self.machine.wall_ms, {"t": config})
        if is_new:
            self.store.create_partition("t", TOPIC_ID, 0, config, self.machine.wall_ms)
        self.partition = self.clock.partition = self.store.partition("t", 0)
        self.promised = self.segment = None
        self.promised_roll = False

    def restart(self) -> None:
        """Stops the broker, cleanly or not, or the whole machine; copies and restores come here too."""
        pick = self.random
        largest = read_max_event_time(self.partition)
        corrections = self.partition.append_clock.corrections
        is_clean, reboots = pick.random() < 0.5, pick.random() < 0.5
        if is_clean:
            self.store.close()
        else:
            if reboots:
                self.partition.flush()  # a machine that is switched off loses nothing here
            elif self.machine.true_ms % 2:
                self._set({"event_time_ahead_max_ms": DAY})  # just before it is killed
            self.store._release()
        self.clock.partition = None
        off_ms = int(10 ** pick.uniform(3, 8))
        if reboots:
            # A clock that had gone back may have been behind until the machine was started.
            if self.clock.went_back:
                self.model.pause_counted(off_ms)
            self.machine.restart(off_ms)
            if self.trouble and pick.random() < 0.4:
                self.clock.go_wrong(pick)
        else:
            self.machine.pass_time(off_ms)
        lost = self.lose_files() if pick.random() < 0.4 and not self.exempt.was_wrong else ""
        self.observe()
        self.open()
        if not lost and self.partition.append_clock.corrections == corrections:
            self._check_largest_event(largest)
        if lost == "adopted":
            self.model.adopt(self.machine.true_ms)
            self.model.count_events(self.exempt.slack_ms)
        self.say(f"restart: clean {is_clean}, machine {reboots}, off {off_ms}, {lost}")

    def _check_largest_event(self, before: int | None) -> None:
        """Demands that no start counts event times as more than they counted as."""
        after = read_max_event_time(self.partition)
        if after is not None and (before is None or after > before):
            raise BrokenPromiseError(f"P1: the largest event time was {before}, and is {after}")

    def lose_files(self) -> str:
        """A copy without our own files, with dates of another time, is adopted."""
        directory = self.path / "t-0"
        has_appendtimes = self.random.random() < 0.3
        date = self.random.choice([0, BEGIN_MS // 1_000 + 10**9])
        if (directory / "partition.times").exists():
            (directory / "partition.times").unlink()
        if not has_appendtimes:
            for path in directory.glob("*.appendtimes"):
                path.unlink()
            for marker in self.path.glob(".kafka_cleanshutdown"):
                marker.unlink()
        else:
            for marker in self.path.glob(".kafka_cleanshutdown"):
                marker.unlink()
        for path in directory.iterdir():
            os.utime(path, (date, date))
        return "adopted"

    # --- time -------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Reads the clocks, as the broker does every ten seconds."""
        was_wrong = self.clock.wrong_since
        self.clock.observe()
        if was_wrong is not None:
            self.model.corrected(self.machine.true_ms, was_wrong)
        self.next_observation = self.machine.true_ms + OBSERVE_MS

    def pass_time(self, ms: int) -> None:
        """Lets time pass, in which the broker reads the clocks: at both ends, and now and then."""
        end = self.machine.true_ms + ms
        while self.next_observation < end:
            self.machine.pass_time(max(self.next_observation - self.machine.true_ms, 0))
            self.observe()
            rest = end - self.machine.true_ms
            if rest > 10 * OBSERVE_MS:
                skipped = self.random.randint(rest // 3, rest) // OBSERVE_MS - 1
                self.next_observation += max(skipped, 0) * OBSERVE_MS
        self.machine.pass_time(end - self.machine.true_ms)

    # --- the clock --------------------------------------------------------------------------------

    def go_wrong(self) -> None:
        if not self.blinks:
            self.observe()
        self.clock.go_wrong(self.random)
        self.changed(f"the clock goes wrong, rate {self.machine.rate}")

    def blink(self) -> None:
        """The clock is wrong for a moment, or goes wrong for a while, and is right again.

        Records may be appended meanwhile, and a round may come before anybody has read the clock.
        """
        pick = self.random
        # The first reading of a start, and what follows, are not one moment.
        self.machine.pass_time(1)
        self.clock.go_wrong(pick)
        self.changed(f"the clock blinks, rate {self.machine.rate}")
        most = 4 if self.machine.rate == 1.0 else 8
        for _ in range(pick.choice([0, 1, 1, 3])):
            self.append()
            self.pass_time(int(10 ** pick.uniform(0, most)))
        self.clock.set_right()
        self.changed("the clock is right again")
        if pick.random() < 0.3:
            self.append()
        self.promised = None
        if pick.random() < 0.5:
            self.sweep()

    def heal(self) -> None:
        """The clock is set right; a command is given only if status names one."""
        self.pass_time(self.random.randint(0, 20_000))
        self.observe()
        self.clock.set_right()
        self.changed("the clock is right again")
        for _ in range(3):
            self.pass_time(OBSERVE_MS)
        self.observe()
        if self.clock.accept():
            self.say("accepted")
            self.observe()
        late_ms = self.machine.true_ms - self.clock.deletion_ms()
        if late_ms > self.exempt.slack_ms:
            raise BrokenPromiseError(f"P2: deletion is {late_ms} ms late, and nothing says so")
        reset = self.partition.append_clock.reset(self.machine.wall_ms)
        if reset is not None:
            self.say(f"{reset}")
            self.changed("reset")
            self.segment = None  # the next append begins another one, as the command says

    def suspend(self) -> None:
        """The machine sleeps: time passes, and nobody reads a clock."""
        self.machine.pass_time(int(10 ** self.random.uniform(4, 8)))
        self.changed("suspended until now")

    # --- appends ----------------------------------------------------------------------------------

    def produce(self) -> None:
        """Appends a few batches, at once or with pauses that a topic with little traffic has."""
        gap = self.random.choice([0, 1_000, 5_000, MINUTE, HOUR, 5 * HOUR])
        count = self.random.choice([1, 2, 4, 8])
        self.say(f"{count} batches, {gap} ms apart, from {self.model.end}")
        for _ in range(count):
            self.append()
            self.pass_time(gap)
        self.promised = None

    def append(self) -> None:
        pick = self.random
        magic = pick.choice([2, 2, 1, 0])
        source = STAMPS[pick.choice(self.producers)]
        times = [source(self) if magic else -1 for _ in range(pick.choice([1, 1, 3]))]
        data = build([Record(i, t, b"k", b"v" * 40) for i, t in enumerate(times)], magic=magic)
        self.store_batch(data, times, magic)

    def store_batch(self, data: bytes, times: list[int], magic: int) -> None:
        target = RELEASES[self.settings["message_format_version"]]
        before = self.partition.segments[-1]
        told = self.clock.append(data, produce_version=9 if magic == 2 else 2)
        true_ms = self.machine.true_ms
        none = target == 0
        own = tuple(None if none or t == -1 or self.is_stamped else t for t in times)
        stamped = own
        if self.is_stamped and not none:
            (stamp,) = {self.partition.last_append_time}
            stamped = (stamp,) * len(times)
        batch = Batch(told.base_offset, told.last_offset + 1, told.size, true_ms, own, stamped)
        batch.is_stamped = self.is_stamped
        self.check_roll(before, batch)
        self.model.append(batch)
        self.model.count_events(self.exempt.slack_ms)

    def check_roll(self, before, batch: Batch) -> None:
        """Demands that a segment ends where explain says, and only for a reason."""
        begins = self.partition.segments[-1] is not before and batch.base > before.base_offset
        if self.promised_roll and not begins and before.tail.size:
            raise BrokenPromiseError("P4: explain said that the next append begins a segment")
        known, rules = self.segment, self.model.rules
        times = [min(t, batch.appended) for t in batch.stamped if t is not None]
        if begins and known is not None and known[0] == before.base_offset:
            _, began, first = known
            age = batch.appended - began
            spread = max(times) - first if times and first is not None else 0
            slack = self.exempt.slack_ms
            is_full = before.tail.size + batch.size > rules.segment_bytes
            by_time = max(age, spread) + slack > rules.segment_ms and (
                age + slack > rules.min_roll_ms
            )
            if not is_full and not by_time and not self.exempt.was_wrong:
                raise BrokenPromiseError(f"P4: a segment ended after {age} ms, {spread} of records")
        if begins or self.segment is None:
            is_first = begins or before.tail.size == batch.size
            first = min(times) if times else None
            self.segment = (batch.base, batch.appended, first) if is_first else None
        elif times and self.segment[2] is None:
            self.segment = (*self.segment[:2], min(times))
        self.promised_roll = False

    promised_roll = False

    # --- retention --------------------------------------------------------------------------------

    def explain(self) -> None:
        """Notes what explain says will go and when, and whether the next append begins a segment."""
        explained = self.partition.retainer.explain(
            self.clock.deletion_ms(), clock_ms=self.machine.wall_ms
        )
        self.promised = tuple((s.base_offset, s.due_ms) for s in explained.segments)
        last = explained.segments[-1]
        self.promised_roll = "the next append begins a new segment" in last.sentence
        for segment in explained.segments:
            if segment.policy is None and segment.held_by is None:
                raise BrokenPromiseError(f"P4: explain names no condition: {segment}")
        self.due = [s.due_ms for s in explained.segments if s.due_ms is not None]

    def wait(self) -> None:
        """Lets time pass without appends, perhaps until just what explain names."""
        self.explain()
        now_ms = self.clock.deletion_ms()
        coming = [due for due in self.due if now_ms < due < now_ms + 40 * DAY]
        if coming and self.random.random() < 0.6:
            left = self.random.choice(coming) - now_ms + self.random.choice([-1, 0, 0, 1])
            self.pass_time(max(left, 0))
        else:
            self.pass_time(int(10 ** self.random.uniform(3, 8.6)))
        self.sweep()

    def sweep(self) -> None:
        """A round of retention; explain, asked before and at that moment, has to agree with it."""
        if not self.blinks or self.random.random() < 0.5:
            self.observe()  # as every round does; one that is on its way meets steps as well
        now_ms = self.clock.deletion_ms()
        promised = self.promised
        self.explain()
        deletions = self.partition.retainer.apply_retention(now_ms)
        gone = [each.base_offset for each in deletions]
        for said in (promised, self.promised):
            due = [base for base, due in said or () if due is not None and due <= now_ms]
            if said is not None and due != gone:
                raise BrokenPromiseError(f"P4: explain said {due} would go, and {gone} went")
        if deletions:
            self.say(f"deleted {[(d.base_offset, d.end_offset, d.policy) for d in deletions]}")
            self.promised_roll = False
        self.model.check_deleted(
            [(each.base_offset, each.end_offset) for each in deletions],
            self.machine.true_ms + self.exempt.ahead_ms + self.exempt.slack_ms,
            self.exempt.behind_ms if self.exempt.was_wrong else None,
        )
        self.promised = None
        if self.clock.wrong_since is None:
            self.model.check_gone(self.machine.true_ms, self.exempt.slack_ms)

    def trim(self) -> None:
        """DeleteRecords up to some batch."""
        if self.model.batches:
            offset = self.random.choice(self.model.batches).base
            self.partition.retainer.delete_records_before(offset)
            self.model.log_start = max(self.model.log_start, offset)
            self.promised = None
            self.say(f"delete records before {offset}")

    # --- all of it --------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        weights = {
            self.produce: 8,
            self.wait: 5,
            self.sweep: 2,
            self.alter: 1,
            self.restart: self.random.choice([0.5, 1, 1] if self.trouble else [1, 4]),
            self.trim: 0.3,
            self.suspend: 0.2,
            self.go_wrong: self.trouble,
            **({self.blink: self.trouble} if self.blinks else {}),
            self.heal: 2 * self.trouble,
        }
        for _ in range(steps):
            (do,) = self.random.choices(list(weights), list(weights.values()))
            do()
        if self.trouble:
            self.heal()
            self.produce()
            self.wait()
        self.close()

    def close(self) -> None:
        self.store.close()


def moment(ms: int) -> str:
    """Returns a true time as people read it."""
    return datetime.fromtimestamp(ms / 1_000).astimezone().isoformat(timespec="milliseconds")

"""A compacted partition on a broker whose clock may be wrong: producer ids and tombstones, by true time.

Everything that decides is the product's: `LogStore`, the state of idempotent producers, the cleaner. The
model knows the true time of each append and of each cleaning:

- P2: a batch that is sent again is recognised until producer.id.expiration.ms after its true append.
- Once the clock is right, ids that are older than that are forgotten.
- P2: a tombstone stays delete.retention.ms of true time after the first cleaning that found it.
- Once the clock is right, the next cleaning takes what is older than that.
- P2: the last value of each key stays, also by compaction.strategy=timestamp where the broker stamps.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.clocks.model import BrokenPromiseError
from tests.simulation.clocks.settings import DAY, HOUR
from tests.simulation.clocks.timeline import Timeline
from tests.storage.cleaning import clean
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 36
TOPIC_ID = uuid.UUID(int=14)
KEYS = 6


@dataclass
class Sent:
    """The last batch of a producer."""

    data: bytes
    base_offset: int
    sequence: int
    appended_ms: int  # true
    latest_ms: int  # the last moment at which it can count as appended
    is_noted: bool  # the clock was trusted when it was appended


@dataclass
class Tombstone:
    """A tombstone that is the last record of its key."""

    offset: int
    found_ms: int | None = None  # the true time of the first cleaning that found it
    is_noted: bool = False  # the clock has been right since then


class CompactedWorld:
    """One life of a compacted partition."""

    def __init__(self, path: Path, seed: int, *, blinks: bool) -> None:
        self.time = time = Timeline(f"compacted {seed}", blinks=blinks)
        time.corrected, time.use = self._corrected, self.produce
        pick = time.random.choice
        self.path = path
        self.expiration_ms = pick([HOUR, DAY])
        self.keep_ms = pick([HOUR, 6 * HOUR, DAY])
        strategy, stamps = random.Random(seed).choice(
            [("offset", "CreateTime"), ("timestamp", "LogAppendTime")]
        )
        self.config = TopicConfig(
            compaction_strategy=strategy,
            message_timestamp_type=stamps,
            cleanup_policy=("compact",),
            delete_retention_ms=self.keep_ms,
            segment_bytes=pick([300, 1 << 20]),
            segment_ms=pick([HOUR, DAY]),
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.sent: dict[int, Sent] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        self.values: dict[bytes, int] = {}  # the offset of a key's last record, if that is a value
        self.dropped = self.recognised = 0
        time.say(
            f"compacted by {strategy}, {self.config.segment_bytes=} {self.keep_ms=} {self.expiration_ms=}"
        )
        self.open(is_new=True)

    def open(self, *, is_new: bool = False) -> None:
        clock, now_ms = self.time.clock, self.time.machine.wall_ms
        self.store = LogStore(
            [self.path],
            default_config=self.config,
            boot_id=clock.reading().boot_id,
            producer_id_expiration_ms=self.expiration_ms,
        )
        clock.serve(self.store)
        self.store.open(now_ms, {"t": self.config})
        if is_new:
            self.store.create_partition("t", TOPIC_ID, 0, self.config, now_ms)
        self.partition = clock.partition = self.store.partition("t", 0)

    def restart(self) -> None:
        """The broker stops, cleanly or not, or the whole machine does."""
        self.time.observe()
        if self.time.random.random() < 0.5:
            self.store.close()
        else:
            self.partition.flush()
            self.store._release()
        self.time.clock.partition = None
        self.time.restart()
        self.open()
        if self.time.exempt.was_wrong:
            self._corrected()

    def _corrected(self) -> None:
        """What is there while a clock is wrong may count as of now, once it is corrected."""
        for sent in self.sent.values():
            sent.latest_ms = self.time.now_ms
        for tombstone in self.tombstones.values():
            tombstone.is_noted = False

    @property
    def trace(self) -> list[str]:
        return self.time.trace

    # --- producers --------------------------------------------------------------------------------

    def produce(self) -> None:
        """A producer appends a record or a tombstone."""
        pick, machine = self.time.random, self.time.machine
        producer, key = pick.randrange(3), b"k%d" % pick.randrange(KEYS)
        value = None if pick.random() < 0.6 else b"v" * 40
        before = self.sent.get(producer)
        sequence = 0 if before is None else before.sequence + 1
        data = build(
            [Record(0, machine.wall_ms, key, value)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        told = self.time.clock.append(data, produce_version=9)
        self._note(producer, data, told.base_offset, sequence)
        self._note_key(key, value, told.base_offset)

    def _note(self, producer: int, data: bytes, offset: int, sequence: int) -> None:
        now_ms, is_noted = self.time.now_ms, self.time.clock.wrong_since is None
        self.sent[producer] = Sent(data, offset, sequence, now_ms, now_ms, is_noted)

    def _note_key(self, key: bytes, value: bytes | None, offset: int) -> None:
        self.tombstones.pop(key, None)
        self.values.pop(key, None)
        if value is None:
            self.tombstones[key] = Tombstone(offset)
        else:
            self.values[key] = offset

    def retry(self) -> None:
        """A producer sends its last batch again: it is a duplicate until its id has expired."""
        if not self.sent:
            return
        self.sweep()
        time = self.time
        producer = time.random.choice(sorted(self.sent))
        sent = self.sent[producer]
        told = time.clock.append(sent.data, produce_version=9)
        if told.duplicate:
            self.recognised += 1
            over_ms = time.now_ms - sent.latest_ms - self.expiration_ms - time.exempt.slack_ms
            if over_ms > 0 and sent.is_noted and time.clock.wrong_since is None:
                raise BrokenPromiseError(f"P2: producer {producer} is known {over_ms} ms too long")
            return
        left_ms = sent.appended_ms + self.expiration_ms - time.early_ms
        if left_ms > 0:
            raise BrokenPromiseError(f"P2: producer {producer} was forgotten {left_ms} ms early")
        self._note(producer, sent.data, told.base_offset, sent.sequence)
        (batch,) = scan(sent.data)
        (record,) = records(sent.data, batch)
        self._note_key(record.key, record.value, told.base_offset)

    def sweep(self) -> None:
        """A round of retention tells the log the time by which may be deleted."""
        self.time.observe()
        self.partition.retainer.apply_retention(self.time.clock.deletion_ms())

    # --- cleanings --------------------------------------------------------------------------------

    def clean(self) -> None:
        """Cleans the log, and judges which tombstones are gone."""
        time = self.time
        time.observe()
        done = clean(self.partition, time.clock.deletion_ms())
        if done is None:
            return
        there = self._offsets()
        for key, offset in self.values.items():
            if offset not in there:
                raise BrokenPromiseError(f"P2: the last value of {key} at {offset} is gone")
        is_right = time.clock.wrong_since is None
        for key, tombstone in list(self.tombstones.items()):
            if tombstone.offset >= done.first_dirty_offset:
                continue
            if tombstone.offset not in there:
                self._check_gone(key, tombstone)
                del self.tombstones[key]
                self.dropped += 1
            elif tombstone.found_ms is None:
                tombstone.found_ms, tombstone.is_noted = time.now_ms, is_right
            elif is_right and tombstone.is_noted:
                over_ms = time.now_ms - tombstone.found_ms - self.keep_ms - time.exempt.slack_ms
                if over_ms > 0:
                    raise BrokenPromiseError(f"P2: tombstone {key} is there {over_ms} ms too long")

    def _check_gone(self, key: bytes, tombstone: Tombstone) -> None:
        if tombstone.found_ms is None:
            raise BrokenPromiseError(f"P2: tombstone {key} went with the first cleaning")
        left_ms = tombstone.found_ms + self.keep_ms - self.time.early_ms
        if left_ms > 0:
            raise BrokenPromiseError(f"P2: tombstone {key} went {left_ms} ms early")

    def _offsets(self) -> set[int]:
        """Returns the offsets that the log still has."""
        partition, offset = self.partition, self.partition.log_start_offset
        found: set[int] = set()
        while offset < partition.log_end_offset:
            end_offset = partition.log_end_offset
            read = partition.read(offset, 1 << 20, upper_offset=end_offset, minimum_one=True)
            before = offset
            for buffer in read.buffers:
                for batch in scan(buffer):
                    found.update(record.offset for record in records(buffer, batch))
                    offset = batch.last_offset + 1
            if offset == before:
                break
        return found

    def wait(self) -> None:
        self.time.pass_time(int(10 ** self.time.random.uniform(5, 8.2)))

    def live(self) -> None:
        """Lives, and ends with a clock that is right."""
        time = self.time
        own = {self.produce: 10, self.wait: 4, self.retry: 3, self.clean: 6, self.restart: 0.7}
        time.live({**own, **time.weights()}, STEPS)
        if time.trouble:
            time.heal()
        self.clean()
        self.retry()
        self.store.close()

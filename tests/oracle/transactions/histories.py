"""The same history of transactions with two brokers: what is served of it, and the files it leaves.

A seed decides what a few producers do in one partition: records in transactions that lie across each other,
plain ones between them, commits and aborts, and two that stay open. Producer ids are the broker's own and
become the producer's number; the time of a marker and the epoch of its coordinator are left out. The
times of the records are about now, as those of the markers are: where they are far from each other Kafka
begins a segment with a marker.
"""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.broker.asking import fetch, list_offset, produce, topic_id_of
from tests.broker.coordinators.transactions.requests import NONE, TRANSACTIONAL, Transactional
from tests.oracle import recordset
from tests.oracle.brokers import make_topics
from tests.oracle.recordset import CONTROL_BIT, Rec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.oracle import wire

PRODUCERS, STEPS = 4, 60
DEADLINE_S = 60
LATEST = -1
UNCOMMITTED, COMMITTED = 0, 1
ABORTED = struct.Struct(">hqqqq")  # version, producer id, first and last offset, last stable offset
SNAPSHOT_HEAD = struct.Struct(">hIi")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class Served(NamedTuple):
    """What is served from an offset on."""

    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]] | None
    batches: list[dict[str, Any]]


class History:
    """One history in a topic of its own; `level` is the transaction.version of its requests."""

    def __init__(
        self,
        connection: wire.Connection,
        seed: int,
        level: int,
        first_ms: int,
        settings: Mapping[str, str],
    ) -> None:
        self.connection, self.level, self.settings = connection, level, settings
        self.topic = f"history-{seed}-{level}"
        self.ends: list[tuple[int, int]] = []  # the high watermark and last stable offset
        self.numbers: dict[int, int] = {}
        self._chance = random.Random(seed)
        self._time_ms = first_ms
        self.producers = [
            Transactional(connection, f"{self.topic}-{number}") for number in range(PRODUCERS)
        ]

    def play(self) -> None:
        """All of it."""
        make_topics(self.connection, {self.topic: 1}, **self.settings)
        for number, each in enumerate(self.producers):
            each.first_init(timeout_ms=600_000)
            self.numbers[each.given.producer_id] = number
        still_open: set[Transactional] = set()
        for _ in range(STEPS):
            self._step(self._chance.choice(self.producers), still_open)
            self.ends.append(self.read_ends())
        for each in self.producers[:2]:
            self._send(each, still_open)
        self._plain()
        self.ends.append(self.read_ends())

    def _step(self, one: Transactional, still_open: set[Transactional]) -> None:
        what = self._chance.choice(("send", "send", "send", "commit", "abort", "abort", "plain"))
        if what == "plain":
            self._plain()
        elif what == "send" or one not in still_open:
            self._send(one, still_open)
        else:
            still_open.remove(one)
            assert one.end(commit=what == "commit", version=5 if self.level else 4) == NONE
            done = "CompleteCommit" if what == "commit" else "CompleteAbort"
            deadline = time.monotonic() + DEADLINE_S
            while one.state != done:
                assert time.monotonic() < deadline
                time.sleep(0.002)  # a foreign process can only be polled

    def _send(self, one: Transactional, still_open: set[Transactional]) -> None:
        if one not in still_open and not self.level:
            assert one.add(self.topic, 0) == [NONE]
        still_open.add(one)
        name, records = (self.topic, 0), self._records()
        data = recordset.batch(
            records,
            attributes=TRANSACTIONAL,
            producer_id=one.given.producer_id,
            producer_epoch=one.given.epoch,
            base_sequence=one.sequences.get(name, 0),
        )
        answer = self.connection.ask(
            "Produce",
            12 if self.level else 9,
            transactional_id=one.id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                {"name": self.topic, "partition_data": [{"index": 0, "records": data}]},
            ],
        )["responses"][0]["partition_responses"][0]
        assert answer["error_code"] == NONE, answer
        one.sequences[name] = one.sequences.get(name, 0) + len(records)

    def _plain(self) -> None:
        answer = produce(self.connection, self.topic, recordset.batch(self._records()))
        assert answer["error_code"] == NONE

    def _records(self) -> list[Rec]:
        chance = self._chance
        self._time_ms += 10
        largest = 60_000 if self.level else 120
        return [
            Rec(self._time_ms + at, chance.randbytes(chance.randint(1, largest)))
            for at in range(chance.randint(1, 5))
        ]

    # --- what is served ----------------------------------------------------------------------------

    def read_ends(self) -> tuple[int, int]:
        """The high watermark and the last stable offset."""
        high, stable = (
            list_offset(self.connection, self.topic, LATEST, isolation_level=each)
            for each in (UNCOMMITTED, COMMITTED)
        )
        return high["offset"], stable["offset"]

    def served(self, offset: int, version: int, isolation: int, max_bytes: int) -> Served:
        """One Fetch."""
        name = topic_id_of(self.connection, self.topic) if version >= 13 else self.topic
        got = fetch(
            self.connection,
            name,
            offset,
            version=version,
            isolation_level=isolation,
            partition_max_bytes=max_bytes,
        )
        assert got["error_code"] == NONE, got
        aborted = got["aborted_transactions"]
        if aborted is not None:
            aborted = [(self.numbers[one["producer_id"]], one["first_offset"]) for one in aborted]
        batches, _ = recordset.parse(got["records"] or b"")
        ends = got["high_watermark"], got["last_stable_offset"]
        return Served(*ends, aborted, [self.canonical(one) for one in batches])

    def canonical(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch without what is the broker's own."""
        told = batch | {"producer_id": self.numbers.get(batch["producer_id"], -1)}
        if batch["attributes"] & CONTROL_BIT:
            (record,) = batch["records"]
            told |= {"base_timestamp": 0, "max_timestamp": 0, "payload": b""}
            # In the value: a version, and the epoch of the coordinator.
            told["records"] = [record | {"timestamp": 0, "value": record["value"][:2]}]
        return told

    # --- its files ---------------------------------------------------------------------------------

    def aborted_in(self, log_dir: Path) -> dict[str, list[tuple[int, ...]]]:
        """The entries of each `.txnindex`, by file; those without any are left out."""
        found = {}
        for path in sorted((log_dir / f"{self.topic}-0").glob("*.txnindex")):
            data = path.read_bytes()
            assert len(data) % ABORTED.size == 0
            if data:
                found[path.name] = [
                    (version, self.numbers[producer_id], *rest)
                    for version, producer_id, *rest in ABORTED.iter_unpack(data)
                ]
        return found

    def producers_in(self, log_dir: Path) -> dict[str, list[tuple[int, ...]]]:
        """What each `.snapshot` says of its producers, by file, without times and coordinators."""
        return {
            path.name: sorted(self._producers_of(path.read_bytes()))
            for path in sorted((log_dir / f"{self.topic}-0").glob("*.snapshot"))
        }

    def _producers_of(self, data: bytes) -> Iterator[tuple[int, ...]]:
        version, _, count = SNAPSHOT_HEAD.unpack_from(data)
        assert version == 1
        assert len(data) == SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size
        for entry in SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEAD.size :]):
            producer_id, epoch, sequence, offset, delta, _, _, first_offset = entry
            yield self.numbers[producer_id], epoch, sequence, offset, delta, first_offset

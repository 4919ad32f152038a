"""A transactional client of librdkafka in a process of its own, which may be killed or paused at any step.

It writes a line of JSON for each event, and one before each step, so that whoever reads them knows
how far it had come when it was killed. Before it commits or aborts it waits for a line on its
standard input. It ends when that ends, and with status 1 after an error that librdkafka calls
fatal, such as being fenced.

It also ends after an abort with records that were not acknowledged, so that its next incarnation has
another epoch. librdkafka 2.16 gives their sequence numbers to records of its next transaction. If
they were stored, as by a broker that was killed before it answered, those are taken for their
duplicates, acknowledged and not stored.

It may hang in send_offsets_to_transaction; `load.py` kills it then. librdkafka 2.16 removes its handle of
a broker that Metadata no longer lists, and keeps the handle as the group's coordinator, which it
remembers. TxnOffsetCommit then waits for a connection that this handle never makes, also when the
broker is back. Its debug log ends with "AddOffsetsToTxn response: NO_ERROR", "Received CONNECT op" and
"INIT -> TRY_CONNECT" of a handle that was decommissioned before.

Run as a script with one argument, which is JSON: see `Child`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.nemesis.history import (
    NO_OFFSET,
    Asked,
    Began,
    Ended,
    OffsetSent,
    Place,
    Polled,
    Sent,
    Stored,
    Told,
    source_of,
    value_of,
)

EVENTS = {
    each.__name__: each for each in (Began, Sent, Stored, OffsetSent, Told, Asked, Ended, Polled)
}
STEPS = ("init", "begin", "produce", "flush", "offsets", "decide", "commit", "abort")
_PATIENCE_S = 10
_ENDS_WITHIN_S = 100
_LIBRDKAFKA = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    # By default librdkafka forgets a broker that is gone for a moment.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class SequencesReused(Exception):
    """The next transaction would reuse sequence numbers of records that may be stored."""


class Child:
    """One incarnation: `given` has name, id, bootstrap, timeout_ms, seed and aborts.

    One that appends has places as [topic, partition], one that copies has group, topic and into.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._random = random.Random(given["seed"])
        self._is_over = threading.Event()
        self._may_decide = threading.Event()
        self._numbers = 0
        self._waiting = 0  # records of the transaction that are not acknowledged
        self._stream = 0
        self._batch: list[Any] = []
        self._membership: Any = None
        self._producer = Producer(
            {
                **_LIBRDKAFKA,
                "bootstrap.servers": given["bootstrap"],
                "transactional.id": given["id"],
                "transaction.timeout.ms": given["timeout_ms"],
                "linger.ms": 2,
            }
        )

    def work(self) -> None:
        """Works until standard input ends."""
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        self._step("init")
        self._in_the_end(self._producer.init_transactions)
        if "group" in self._given:
            self._copy_all()
            return
        while not self._is_over.is_set():
            self._transaction(self._append)
            time.sleep(self._random.random() * 0.08)

    def _wait_for_the_end(self) -> None:
        for _ in sys.stdin:
            self._may_decide.set()
        self._is_over.set()
        self._may_decide.set()
        time.sleep(_ENDS_WITHIN_S)  # whoever has started it may be gone, and the brokers too
        os._exit(2)

    def _step(self, name: str) -> None:
        os.write(1, json.dumps(["step", name]).encode() + b"\n")

    def _add(self, event: Any) -> None:
        fields = [each.decode() if isinstance(each, bytes) else each for each in event]
        os.write(1, json.dumps([type(event).__name__, *fields]).encode() + b"\n")

    @staticmethod
    def _in_the_end(call: Any) -> None:
        """Calls again while the outcome is open; raises what librdkafka cannot get over."""
        while True:
            try:
                call(_PATIENCE_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    # --- transactions -----------------------------------------------------------------------------

    def _transaction(self, write: Any) -> bool:
        """Begins, writes and ends; returns whether that was a commit. Raises what is fatal."""
        self._numbers += 1
        self._waiting = 0
        txn = f"{self._given['name']}/{self._numbers}"
        self._step("begin")
        self._add(Began(txn, self._given["id"], time.monotonic()))
        self._producer.begin_transaction()
        try:
            write(txn)
            self._may_decide.clear()
            self._step("decide")
            if not self._is_over.is_set():
                self._may_decide.wait()
            if self._random.random() > self._given["aborts"]:
                self._step("commit")
                self._add(Asked(txn, True, time.monotonic()))
                self._in_the_end(self._producer.commit_transaction)
                self._add(Ended(txn, True, time.monotonic()))
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self._step("abort")
        self._add(Asked(txn, False, time.monotonic()))
        self._producer.flush(_PATIENCE_S)
        has_stored_all = not self._waiting
        self._in_the_end(self._producer.abort_transaction)
        self._add(Ended(txn, False, time.monotonic()))
        if not has_stored_all:
            raise SequencesReused
        return False

    def _write(self, txn: str, place: Place, sources: list[str]) -> None:
        self._step("produce")
        for index, source in enumerate(sources):
            value = value_of(txn, place, index, source)
            self._add(Sent(txn, place, value))

            def told(error: KafkaError | None, message: Any, value: bytes = value) -> None:
                if error is None:
                    self._waiting -= 1
                    self._add(Stored(txn, place, value, message.offset()))

            self._waiting += 1
            self._producer.produce(place.topic, value, partition=place.partition, on_delivery=told)
        self._step("flush")
        self._producer.flush(self._random.choice((0.02, _PATIENCE_S)))

    def _append(self, txn: str) -> None:
        places = [Place(*each) for each in self._given["places"]]
        for place in self._random.sample(places, self._random.randint(2, min(3, len(places)))):
            self._write(txn, place, [""] * self._random.randint(1, 4))

    # --- copies -----------------------------------------------------------------------------------

    def _copy_all(self) -> None:
        consumer = Consumer(
            {
                **_LIBRDKAFKA,
                "bootstrap.servers": self._given["bootstrap"],
                "group.id": self._given["group"],
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 200,
            }
        )
        gone = self._gone
        consumer.subscribe(
            [self._given["topic"]], on_assign=self._assigned, on_revoke=gone, on_lost=gone
        )
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._batch.append(message)
                if len(self._batch) < 6:
                    continue
            if self._batch and self._membership is not None:
                self._copy(consumer)
        consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Notes the membership that is fenced when somebody else has the partitions."""
        self._gone(consumer, partitions)
        self._membership = consumer.consumer_group_metadata()

    def _gone(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Drops what was read of partitions that may be somebody else's."""
        self._batch.clear()
        self._stream += 1
        self._membership = None

    def _copy(self, consumer: Consumer) -> None:
        read, self._batch = self._batch, []
        if not self._transaction(lambda txn: self._write_copies(txn, read)):
            self._rewind(
                consumer, [Place(*each) for each in {(m.topic(), m.partition()) for m in read}]
            )

    def _write_copies(self, txn: str, read: list[Any]) -> None:
        now_s = time.monotonic()
        copied: dict[Place, list[int]] = {}
        name = self._given["name"]
        for each in read:
            place, offset = Place(each.topic(), each.partition()), each.offset()
            self._add(Polled(name, self._stream, place, offset, each.value(), 0, now_s, txn))
            copied.setdefault(place, []).append(offset)
        for place, offsets in copied.items():
            into = Place(self._given["into"], place.partition)
            self._write(txn, into, [source_of(place, offset) for offset in offsets])
        ends = [TopicPartition(*place, offsets[-1] + 1) for place, offsets in copied.items()]
        for each in ends:
            place = Place(each.topic, each.partition)
            self._add(OffsetSent(txn, self._given["group"], place, each.offset))
        self._step("offsets")
        membership = self._membership
        self._in_the_end(
            lambda within_s: self._producer.send_offsets_to_transaction(ends, membership, within_s)
        )

    def _rewind(self, consumer: Consumer, places: list[Place]) -> None:
        """Goes back to the committed offsets, as what was read is not copied."""
        self._stream += 1
        while not self._is_over.is_set():
            began_s = time.monotonic()
            try:
                told = consumer.committed([TopicPartition(*place) for place in places], 10)
                ended_s = time.monotonic()
                if any(each.error is not None for each in told):
                    continue
                for each in told:
                    offset = each.offset if each.offset >= 0 else NO_OFFSET
                    place = Place(each.topic, each.partition)
                    self._add(Told(self._given["group"], place, offset, began_s, ended_s))
                    consumer.seek(TopicPartition(*place, max(offset, 0)))
            except KafkaException:
                time.sleep(0.05)  # the coordinator moves, or the partition is being assigned
            else:
                return


def main() -> int:
    """Works; returns the exit status."""
    try:
        Child(json.loads(sys.argv[1])).work()
    except KafkaException as error:
        os.write(1, json.dumps(["fatal", str(error)]).encode() + b"\n")
        return 1
    except SequencesReused:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())

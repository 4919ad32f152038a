"""A transactional producer that sends each request of the protocol by itself.

It is told at which request it dies or pauses: before it sends that, or after, without the answer. A request
that has no answer, as the broker died or stood still, is sent again only by a producer of
transaction.version 2. Before, a late EndTxn or TxnOffsetCommit could act on the next transaction, so such a
producer begins anew with InitProducerId, whose epoch ends all that is late.
"""

from __future__ import annotations

import contextlib
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.broker.asking import produce_fields, values
from tests.broker.coordinators.transactions.requests import (
    TRANSACTIONAL,
    UNKNOWN,
    Given,
    sent_offsets,
)
from tests.nemesis.transactions.asking import GROUP, PASSING, TRANSACTION, OverTime, Unknown
from tests.oracle import recordset, wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.nemesis.history import Place
    from tests.nemesis.transactions.asking import Brokers

TIMEOUT_MS = 60_000
_PATIENCE_S = 90.0
_AGAIN_S = 0.03
STEPS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit")
STEPS += ("EndTxn",)


class How(StrEnum):
    """How a producer is interrupted."""

    KILLED_BEFORE = "killed before it sends its request"
    KILLED_AFTER = "killed before it hears of its request"
    PAUSED = "paused before it sends its request"
    LATE = "paused after it was answered"
    STOPPED = "stopped for longer than its session"
    BROKER_KILLED = "left alone by a broker that is killed"


OF_CLIENTS = (How.KILLED_BEFORE, How.KILLED_AFTER, How.PAUSED, How.LATE)
OF_PROCESSES = (How.KILLED_AFTER, How.PAUSED, How.STOPPED)


class Interruption(NamedTuple):
    """Where a producer is interrupted, and how."""

    step: str
    how: How

    def __str__(self) -> str:
        return f"{self.how} at {self.step}"


class Killed(Exception):
    """The producer has met its end."""


class Refused(Exception):
    """A request was refused for good."""

    def __init__(self, api: str, code: int) -> None:
        super().__init__(f"{api}: error {code}")
        self.code = code


class RawProducer:
    """One incarnation of a transactional id."""

    def __init__(self, brokers: Brokers, transactional_id: str, *, is_new: bool) -> None:
        """`is_new` follows transaction.version 2."""
        self.id = transactional_id
        self.given: Given = UNKNOWN
        self.interruption_at: Callable[[str], How | None] = lambda _step: None
        self.when_paused: Callable[[], None] = lambda: None
        self.kill_broker: Callable[[str], None] = lambda _address: None
        self._brokers = brokers
        self._is_new = is_new
        self._sequences: dict[Place, int] = {}
        self._added: set[object] = set()

    # --- steps ------------------------------------------------------------------------------------

    def init(self) -> None:
        """Gets an id and epoch; what is open of the id is aborted."""
        asked = {
            "transactional_id": self.id,
            "transaction_timeout_ms": TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        while True:
            try:
                answer = self._step((TRANSACTION, self.id), "InitProducerId", 4, asked, _code)
            except Unknown:
                continue  # another epoch does no harm
            self.given = Given(answer["producer_id"], answer["producer_epoch"])
            return

    def add(self, *places: Place) -> None:
        """Adds partitions; a new producer leaves that to the leaders."""
        new = [place for place in places if place not in self._added]
        if self._is_new or not new:
            return
        topics = [{"name": place.topic, "partitions": [place.partition]} for place in new]
        asked = {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": self.given.producer_id,
            "v3_and_below_producer_epoch": self.given.epoch,
            "v3_and_below_topics": topics,
        }
        self._step((TRANSACTION, self.id), "AddPartitionsToTxn", 3, asked, _code_of_added)
        self._added.update(new)

    def send(self, place: Place, texts: Sequence[bytes]) -> int:
        """Produces one batch; returns the offset of its first record."""
        sequence = self._sequences.get(place, 0)
        batch = recordset.batch(
            values(*texts, timestamp=time.time_ns() // 1_000_000),
            attributes=TRANSACTIONAL,
            producer_id=self.given.producer_id,
            producer_epoch=self.given.epoch,
            base_sequence=sequence,
        )
        asked = produce_fields(
            place.topic, batch, partition=place.partition, transactional_id=self.id
        )
        version = 12 if self._is_new else 9
        answer = self._step(place, "Produce", version, asked, _code_of_produced)
        self._sequences[place] = sequence + len(texts)
        return int(answer["responses"][0]["partition_responses"][0]["base_offset"])

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        """Sends an offset of a group with the transaction."""
        named = {
            "transactional_id": self.id,
            "group_id": group,
            "producer_id": self.given.producer_id,
            "producer_epoch": self.given.epoch,
        }
        if not self._is_new:
            self._step((TRANSACTION, self.id), "AddOffsetsToTxn", 3, named, _code)
        asked = {
            **named,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [sent_offsets(place.topic, {place.partition: offset})],
        }
        version = 5 if self._is_new else 3
        self._step((GROUP, group), "TxnOffsetCommit", version, asked, _code_of_committed)

    def end(self, *, is_commit: bool) -> None:
        """Commits or aborts."""
        asked = {
            "transactional_id": self.id,
            "producer_id": self.given.producer_id,
            "producer_epoch": self.given.epoch,
            "committed": is_commit,
        }
        version = 5 if self._is_new else 4
        answer = self._step((TRANSACTION, self.id), "EndTxn", version, asked, _code)
        self._added.clear()
        if self._is_new:
            self.given = Given(answer["producer_id"], answer["producer_epoch"])
            self._sequences.clear()

    # --- one request ------------------------------------------------------------------------------

    def _step(
        self,
        whom: tuple[int, str] | Place,
        api: str,
        version: int,
        fields: dict[str, Any],
        code_of: Callable[[Any], int],
    ) -> Any:
        """Sends a request until it is served or refused; raises Unknown, Refused, OverTime, Killed."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            address = self._brokers.address(whom)
            try:
                answer = self._interrupted(address, api, version, fields)
            except Unknown:
                self._brokers.forget(whom)
                if not self._is_new:
                    raise
            else:
                code = code_of(answer)
                if not code:
                    return answer
                if code not in PASSING:
                    raise Refused(api, code)
                self._brokers.forget(whom)
            if self._brokers.is_over() or time.monotonic() > deadline_s:
                raise OverTime(api)
            time.sleep(_AGAIN_S)

    def _interrupted(self, address: str, api: str, version: int, fields: dict[str, Any]) -> Any:
        """Sends a request, and is interrupted if this is the step for it."""
        how = self.interruption_at(api)
        if how is How.PAUSED:
            self.when_paused()
        if how in (None, How.PAUSED):
            return self._brokers.ask(address, api, version, **fields)
        if how is How.LATE:
            answer = self._brokers.ask(address, api, version, **fields)
            self.when_paused()
            return answer
        if how is not How.KILLED_BEFORE:
            key, is_flexible, body = wire.encode_request(api, version, fields)
            with contextlib.suppress(OSError):  # it is killed all the same
                self._brokers.connection(address).ask_raw(
                    key, version, body, flexible=is_flexible, answered=False
                )
        self._brokers.close()
        if how is How.BROKER_KILLED:
            self.kill_broker(address)
            raise Unknown(f"{api}: the broker was killed")
        raise Killed(api)


def _code(answer: dict[str, Any]) -> int:
    return int(answer["error_code"])


def _code_of_added(answer: dict[str, Any]) -> int:
    codes = {
        each["partition_error_code"]
        for result in answer["results_by_topic_v3_and_below"]
        for each in result["results_by_partition"]
    }
    return max(codes - {55} or codes)  # OPERATION_NOT_ATTEMPTED goes with another one


def _code_of_produced(answer: dict[str, Any]) -> int:
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def _code_of_committed(answer: dict[str, Any]) -> int:
    return int(answer["topics"][0]["partitions"][0]["error_code"])

"""A synchronous Kafka client: methods wait for the answer and return plain values.

Record sets stay bytes. Failures that may pass (a leader moves, a broker restarts, a coordinator
loads) are retried with growing pauses until `timeout_s` is over; other errors are raised at once. A
refusal by a broker is `RequestError`, an unreachable cluster `ClusterUnreachable`, an API that the
broker does not support `UnsupportedByBroker`. What is retried for some seconds is logged once. It
works with any broker from Kafka 0.11 on. A client belongs to one thread and one process.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from tidelog.client import flow
from tidelog.client.calls import groups, producers, records, settings, topics
from tidelog.client.calls.records import LATEST, READ_UNCOMMITTED
from tidelog.client.cluster import ClusterState, addresses_of
from tidelog.client.errors import ConnectionBroken, RequestError, VersionMismatch, none_reached
from tidelog.client.flow import Ask, CoordinatorTarget, Leader
from tidelog.client.retry import Retry
from tidelog.client.security import Brokers, access_to
from tidelog.client.sync_connection import NOTICE_S, Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidelog.client.calls.groups import GroupOffset
    from tidelog.client.calls.producers import ProducerIdAndEpoch
    from tidelog.client.calls.records import Fetched, FoundOffset, Produced
    from tidelog.client.cluster import Address, TopicInfo
    from tidelog.client.flow import Call, Steps
    from tidelog.client.security import Security
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.wire import Buffer

Result = TypeVar("Result")

TIMEOUT_S: Final = 60.0
REQUEST_TIMEOUT_S: Final = 30.0
_log: Final = logging.getLogger("tidelog.client")


class TopicSetting(NamedTuple):
    """One setting of a topic; `is_own` says that the topic sets it, not the broker."""

    value: str | None
    is_own: bool


class Client:
    """A client of the cluster of `brokers` (`host:port,host:port`).

    `security` is None for plaintext, or if `brokers` carry it. `timeout_s` limits an operation with
    all its retries; brokers that have never answered are given up sooner where nothing listens
    (`client.retry`). Methods raise RequestError, ClusterUnreachable, UnsupportedByBroker or
    AuthenticationFailed.
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        *,
        client_id: str = "tidelog-pipeline",
        timeout_s: float = TIMEOUT_S,
        security: Security | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._state = ClusterState(addresses_of(brokers))
        self._open: dict[Address, Connection] = {}
        self._access = access_to(brokers, security)
        self._brokers = brokers if isinstance(brokers, Brokers) else Brokers()
        self.client_id = self._brokers.client_id or client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection, and forgets leaders and coordinators.

        The client can be used again.
        """
        self._doubt_lost()
        for one in self._open.values():
            one.close()
        self._open.clear()
        self._state.forget()

    # --- any call --------------------------------------------------------------------------------

    def perform(self, call: Call[Result]) -> Result:
        """Performs a call of `client.calls`."""
        return self._run(flow.perform(self._state, call, self._retry()))

    def begin(
        self, call: Call[Result], *, otherwise: Callable[[], Call[Result]] | None = None
    ) -> Callable[[], Result]:
        """Sends a call; the returned function waits for its answer, once, and retries as `perform`.

        With `otherwise` the call is tried only once: if it fails, what `otherwise` returns is
        performed instead. The client must not be used for anything else meanwhile.
        """

        def again() -> Result:
            self._state.forget()
            return self.perform(call if otherwise is None else otherwise())

        try:
            connection = self._run(self._reach(call.target))
            connection.send(call.message, call.key)
        except (ConnectionBroken, RequestError, VersionMismatch):
            return again

        def end() -> Result:
            try:
                return call.read(connection.receive(wait_s=call.wait_s))
            except (ConnectionBroken, RequestError):
                return again()

        return end

    def retrying(self, once: Callable[[], Steps[Result]]) -> Result:
        """Runs steps of `client.flow`, again after failures that may pass."""
        return self._run(flow.retrying(self._state, once, self._retry()))

    def leader(self, topic: str, partition: int) -> Connection:
        """Returns a connection to the leader of a partition, for exclusive use until `close`."""
        return self._connected(Leader(topic, partition))

    def coordinator(self, kind: int, key: str) -> Connection:
        """Returns a connection to the coordinator of a group or a transactional id (`kind`)."""
        return self._connected(CoordinatorTarget(kind, key))

    def any(self) -> Connection:
        """Returns a connection to any broker."""
        return self._connected(flow.AnyBroker())

    # --- topics ----------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Returns the topics with these names, or all.

        Raises RequestError for one that does not exist.
        """
        wanted = None if names is None else sorted(set(names))
        return self.retrying(lambda: flow.refresh(self._state, wanted))

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Raises RequestError if it does not exist."""
        return len(self.topics([topic])[topic].partitions)

    def has_topic(self, name: str) -> bool:
        """Returns whether the topic exists."""
        return name in self.topics()

    def topic_settings(self, topic: str) -> dict[str, TopicSetting]:
        """Returns every setting of a topic with its value in force."""
        found = self.perform(settings.describe(settings.Resource(topic)))
        return {
            one.name: TopicSetting(one.value, one.source == settings.SOURCE_TOPIC) for one in found
        }

    def create_topic(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
    ) -> None:
        """Creates a topic and waits until its partitions have leaders; -1: as many as the broker says.

        Raises RequestError, for example TOPIC_ALREADY_EXISTS.
        """
        self.perform(
            topics.create(
                name, partition_count, settings or {}, replication_factor=replication_factor
            )
        )
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:  # the controller answers before the leaders are ready
            try:
                count = self.partition_count(name) if partition_count < 0 else partition_count
                self.list_offsets(name, dict.fromkeys(range(count), LATEST))
            except RequestError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    # --- records and offsets ---------------------------------------------------------------------

    def list_offsets(
        self, topic: str, times_ms: Mapping[int, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[int, FoundOffset]:
        """Returns for each partition the first offset at or after a time; asks each leader once.

        `EARLIEST` and `LATEST` are the ends. Raises RequestError: UNSUPPORTED_VERSION for a time
        before 1970 on a broker that does not support it.
        """

        def once() -> Steps[dict[int, FoundOffset]]:
            led: dict[tuple[Address, ...], dict[int, int]] = {}
            for partition, time_ms in times_ms.items():
                leader = yield from flow.resolve(self._state, Leader(topic, partition))
                led.setdefault(leader, {})[partition] = time_ms
            found: dict[int, FoundOffset] = {}
            for leader, asked in led.items():
                call = records.list_offsets_of(topic, asked, isolation=isolation)
                found |= call.read((yield Ask(leader, call.message, call.key)))
            return found

        return self.retrying(once)

    def end_offset(self, topic: str, partition: int, *, isolation: int = READ_UNCOMMITTED) -> int:
        """Returns a partition's high watermark, or for read_committed its last stable offset."""
        return self.list_offsets(topic, {partition: LATEST}, isolation=isolation)[partition].offset

    def fetch(self, topic: str, partition: int, offset: int, **options: Any) -> Fetched:
        """Reads complete batches from the one that contains `offset` on.

        The result has no records if none arrived in time. The options are those of
        `tidelog.client.calls.records.fetch_records`. Raises RequestError: OFFSET_OUT_OF_RANGE if the offset
        is outside the log.
        """
        return self.perform(records.fetch_records(topic, partition, offset, **options))

    def produce(self, topic: str, partition: int, batches: Buffer, *, acks: int = -1) -> Produced:
        """Appends ready batches and waits, without a retry if they may be in the log.

        `client.appender` appends exactly once.
        """
        return self.perform(records.append(topic, partition, batches, acks=acks))

    # --- producers -------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str | None = None, *, transaction_timeout_ms: int = 60_000
    ) -> ProducerIdAndEpoch:
        """Returns a producer id and its epoch.

        A transactional id keeps its id, fencing earlier epochs.
        """
        return self.perform(
            producers.init(transactional_id, transaction_timeout_ms=transaction_timeout_ms)
        )

    def last_sequence(self, topic: str, partition: int, producer_id: int) -> int | None:
        """Returns the last sequence of a producer in a partition; None if it remembers none.

        Raises UnsupportedByBroker if the broker does not support DescribeProducers.
        """
        return self.perform(producers.last_sequence(topic, partition, producer_id))

    def transaction_start(self, topic: str, partition: int, producer_id: int) -> int | None:
        """Returns the first offset of a producer's open transaction in a partition, or None.

        Raises UnsupportedByBroker if the broker does not support DescribeProducers.
        """
        return self.perform(producers.transaction_start(topic, partition, producer_id))

    # --- groups ----------------------------------------------------------------------------------

    def offset_fetch(self, group: str) -> dict[TopicPartition, GroupOffset]:
        """Returns every committed offset of a group, by topic and partition; else an empty dict."""
        return self.perform(groups.fetch_offsets(group))

    def offset_commit(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commits offsets from outside the group, which must have no members.

        Raises RequestError: UNKNOWN_MEMBER_ID while the group has members.
        """
        self.perform(groups.commit_offsets(group, offsets))

    # --- internal --------------------------------------------------------------------------------

    def _retry(self) -> Retry:
        is_first_contact = not self._brokers.has_answered
        return Retry(time.monotonic, self.timeout_s, is_first_contact=is_first_contact)

    def _connected(self, target: flow.Target) -> Connection:
        """Returns a connection to a target, after retries and pauses."""
        return self.retrying(lambda: self._reach(target))

    def _reach(self, target: flow.Target) -> Steps[Connection]:
        """Returns a connection to a target."""
        addresses = yield from flow.resolve(self._state, target)
        return self._connect(addresses)

    def _run(self, steps: Steps[Result]) -> Result:
        """Runs the steps until they return."""
        tell_at_s = time.monotonic() + NOTICE_S
        try:
            step = next(steps)
            while True:
                if isinstance(step, Ask):
                    try:
                        answer = self._ask(step)
                    except (ConnectionBroken, VersionMismatch) as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
                else:
                    if time.monotonic() >= tell_at_s:
                        _log.warning("%s; still trying", step.why)
                        tell_at_s = math.inf
                    time.sleep(step.seconds)
                    step = next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _ask(self, step: Ask) -> Any:
        connection = self._connect(step.addresses)
        if step.has_answer:
            return connection.ask(step.message, step.key, wait_s=step.wait_s)
        return connection.send(step.message, step.key, has_answer=False)

    def _connect(self, addresses: Sequence[Address]) -> Connection:
        """Returns a connection to the first of these, by their standing, that can be reached."""
        self._doubt_lost()
        failures = []
        timeout_s = min(self.timeout_s, REQUEST_TIMEOUT_S)
        for address in self._state.by_standing(addresses, self._open.__contains__):
            self._state.heard(address)
            known = self._open.get(address)
            if known is not None:
                return known
            try:
                made = Connection(*address, self.client_id, timeout_s, self._access)
            except ConnectionBroken as error:
                self._state.doubt(address)
                failures.append(error)
            else:
                self._open[address] = made
                self._brokers.has_answered = True
                return made
        raise none_reached(failures)

    def _doubt_lost(self) -> None:
        """Drops the connections that have failed, and doubts their brokers."""
        lost = [address for address, one in self._open.items() if one.is_closed]
        for address in lost:
            del self._open[address]
            self._state.doubt(address)

"""A synchronous Kafka client: every method asks, waits and returns plain values; record sets stay bytes.

What passes by itself (a leader that moved, a broker that restarts, a coordinator that loads) is tried
again with growing pauses until `timeout_s` is over; anything else is raised at once. What a broker refuses
is `RequestError`, a cluster that nobody can reach `ClusterUnreachable`, an API that the broker lacks
`UnsupportedByBroker`. It works against any broker from Kafka 0.11 on. A client belongs to one thread and
one process.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from client import flow
from client.calls import groups, producers, records, settings, topics
from client.calls.records import LATEST, READ_UNCOMMITTED
from client.cluster import ClusterState, addresses_of
from client.errors import ConnectionBroken, RequestError, VersionMismatch
from client.flow import Ask, Coordinator, Leader
from client.retry import Retry
from client.sync_connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from client.calls.groups import GroupOffset
    from client.calls.records import Fetched, FoundOffset, Produced
    from client.cluster import Address, TopicInfo
    from client.flow import Call, Steps
    from client.frames import Authenticator
    from protocol.records.layout import Buffer

Result = TypeVar("Result")

TIMEOUT_S: Final = 60.0
REQUEST_TIMEOUT_S: Final = 30.0


class TopicSetting(NamedTuple):
    """One setting of a topic; `is_own` says that the topic sets it, not the broker."""

    value: str | None
    is_own: bool


class Client:
    """A client of the cluster that `brokers` (`host:port,host:port`) belong to.

    Methods raise RequestError, ClusterUnreachable or UnsupportedByBroker.
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        *,
        client_id: str = "tidelog-pipeline",
        timeout_s: float = TIMEOUT_S,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._state = ClusterState(addresses_of(brokers))
        self._open: dict[Address, Connection] = {}
        self._authenticator = authenticator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and forget leaders and coordinators. The client may be used again."""
        for one in self._open.values():
            one.close()
        self._open.clear()
        self._state.forget()

    # --- any call --------------------------------------------------------------------------------

    def perform(self, call: Call[Result]) -> Result:
        """Make a call of `client.calls`."""
        return self._run(flow.perform(self._state, call, self._retry()))

    def retrying(self, once: Callable[[], Steps[Result]]) -> Result:
        """Run steps of `client.flow` again while what is wrong may pass."""
        return self._run(flow.retrying(self._state, once, self._retry()))

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the leader of a partition, to use alone until `close`."""
        return self._connected(Leader(topic, partition))

    def coordinator(self, kind: int, key: str) -> Connection:
        """A connection to the coordinator of a group or a transactional id (`kind`)."""
        return self._connected(Coordinator(kind, key))

    def any(self) -> Connection:
        """A connection to any broker."""
        return self._connected(flow.AnyBroker())

    # --- topics ----------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """The topics of these names, or all there are. Raises RequestError for one that is missing."""
        wanted = None if names is None else sorted(set(names))
        return self.retrying(lambda: flow.refresh(self._state, wanted))

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. Raises RequestError where there is no such topic."""
        return len(self.topics([topic])[topic].partitions)

    def has_topic(self, name: str) -> bool:
        """Whether the topic exists."""
        return name in self.topics()

    def topic_settings(self, topic: str) -> dict[str, TopicSetting]:
        """Every setting of a topic and its value in force."""
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
        """Create a topic and wait until its partitions have leaders.

        Raises RequestError, TOPIC_ALREADY_EXISTS among others.
        """
        self.perform(
            topics.create(
                name, partition_count, settings or {}, replication_factor=replication_factor
            )
        )
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:  # the controller answers before the leaders know that they lead
            try:
                self.list_offsets(name, dict.fromkeys(range(partition_count), LATEST))
            except RequestError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    # --- records and offsets ---------------------------------------------------------------------

    def list_offsets(
        self, topic: str, times_ms: Mapping[int, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[int, FoundOffset]:
        """For each partition the first offset at or after a time; `EARLIEST` and `LATEST` are the ends.

        Raises RequestError: UNSUPPORTED_VERSION for a time before 1970 on a broker that cannot.
        """
        return {
            at: self.perform(records.list_offset(topic, at, time_ms, isolation=isolation))
            for at, time_ms in times_ms.items()
        }

    def end_offset(self, topic: str, partition: int, *, isolation: int = READ_UNCOMMITTED) -> int:
        """The high watermark (or, read_committed, the last stable offset) of a partition."""
        return self.list_offsets(topic, {partition: LATEST}, isolation=isolation)[partition].offset

    def fetch(self, topic: str, partition: int, offset: int, **options: Any) -> Fetched:
        """Read whole batches from the one that holds `offset` on; no records if nothing came in time.

        The options are those of `client.calls.records.fetch_records`. Raises RequestError:
        OFFSET_OUT_OF_RANGE where the log does not reach there.
        """
        return self.perform(records.fetch_records(topic, partition, offset, **options))

    def produce(self, topic: str, partition: int, batches: Buffer, *, acks: int = -1) -> Produced:
        """Append ready batches and wait, once: an append that may have happened is not repeated.

        `client.appender` appends exactly once.
        """
        return self.perform(records.append(topic, partition, batches, acks=acks))

    # --- producers -------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str | None = None, *, transaction_timeout_ms: int = 60_000
    ) -> tuple[int, int]:
        """A producer id and its epoch. A transactional id keeps its id, and the epoch before is fenced."""
        return self.perform(
            producers.init(transactional_id, transaction_timeout_ms=transaction_timeout_ms)
        )

    def last_sequence(self, topic: str, partition: int, producer_id: int) -> int | None:
        """The last sequence a partition has of a producer; None where it remembers none.

        Raises UnsupportedByBroker where the broker does not serve DescribeProducers.
        """
        return self.perform(producers.last_sequence(topic, partition, producer_id))

    # --- groups ----------------------------------------------------------------------------------

    def offset_fetch(self, group: str) -> dict[tuple[str, int], GroupOffset]:
        """Every offset a group has committed, by topic and partition; none: an empty dict."""
        return self.perform(groups.fetch_offsets(group))

    def offset_commit(self, group: str, offsets: Mapping[tuple[str, int], GroupOffset]) -> None:
        """Commit offsets from outside the group, which must have no members.

        Raises RequestError: UNKNOWN_MEMBER_ID while the group has members.
        """
        self.perform(groups.commit_offsets(group, offsets))

    # --- inside ----------------------------------------------------------------------------------

    def _retry(self) -> Retry:
        return Retry(time.monotonic, self.timeout_s)

    def _connected(self, target: flow.Target) -> Connection:
        """A connection to a target, after tries and pauses."""

        def once() -> Steps[Connection]:
            addresses = yield from flow.resolve(self._state, target)
            return self._connect(addresses)

        return self.retrying(once)

    def _run(self, steps: Steps[Result]) -> Result:
        """Do what the steps say, until they return."""
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
        """A connection to one of these: one that is open, else the first that can be reached."""
        for address in addresses:
            known = self._open.get(address)
            if known is not None and not known.is_closed:
                return known
        failures = []
        timeout_s = min(self.timeout_s, REQUEST_TIMEOUT_S)
        for address in addresses:
            try:
                made = Connection(*address, self.client_id, timeout_s, self._authenticator)
            except ConnectionBroken as error:
                failures.append(str(error))
            else:
                self._open[address] = made
                return made
        raise ConnectionBroken("; ".join(failures))

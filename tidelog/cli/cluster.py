"""The cluster that a command queries over Kafka's protocol: topics, settings, offsets and groups.

It uses the client package; `connecting.py` turns its errors into a CommandError with one sentence.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.connecting import connect, raised_as_sentences, sentence_of
from tidelog.cli.nearest import did_you_mean
from tidelog.cli.shared import CommandError, UsageError, ask, machine_ms
from tidelog.client import READ_UNCOMMITTED, ClientError, GroupOffset, RequestError
from tidelog.client.calls import groups as group_calls
from tidelog.client.calls import records as record_calls
from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls import topics as topic_calls
from tidelog.client.calls.settings import Resource
from tidelog.client.cluster import addresses_of
from tidelog.client.errors import PartitionRefused
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from tidelog.client.calls.settings import Setting
    from tidelog.client.flow import Call
    from tidelog.protocol.topic_partition import TopicPartition

UNSAYABLE_MS = range(-6, 0)  # times that ListOffsets cannot ask for
INACTIVE = frozenset({"", "Empty", "Dead"})  # a group without members; old brokers send ""
_HAS_MEMBERS = "it has members: stop them first"
_GROUP_SENTENCES = {
    ErrorCode.NON_EMPTY_GROUP: _HAS_MEMBERS,
    ErrorCode.UNKNOWN_MEMBER_ID: _HAS_MEMBERS,
    ErrorCode.REBALANCE_IN_PROGRESS: _HAS_MEMBERS,
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "its members read this topic: stop them first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still reading its groups: try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "it has no coordinator yet: try again",
}


class PartitionStatus(NamedTuple):
    """A partition; the leader is -1 if it has none."""

    number: int
    leader: int
    has_error: bool
    replicas: Sequence[int]
    in_sync: Sequence[int]


class TopicStatus(NamedTuple):
    """A topic and its partitions, by number."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionStatus]


class Member(NamedTuple):
    """One member of a group; `assigned` is None unless the group's protocol is for consumers."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] | None


class GroupStatus(NamedTuple):
    """A group: its state by Kafka's name, its protocol type, and the protocol its members chose."""

    name: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[Member, ...]


class Cluster:
    """One cluster, queried through one of its brokers; a context manager.

    Methods raise CommandError.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def perform(self, call: Call[Any], prefix: str = "") -> Any:
        """Returns the result of a call; the message of an error begins with `prefix`."""
        with raised_as_sentences(prefix):
            return self.client.perform(call)

    def node_ids(self) -> list[int]:
        """Returns the ids of the brokers that have a session."""
        answer = self.perform(topic_calls.describe([]))
        return [one.node_id for one in answer.brokers]

    def broker_here(self) -> int:
        """Returns the id of the broker that was given, by what brokers advertise; else of the first one."""
        brokers, given = self.perform(topic_calls.describe([])).brokers, addresses_of(self.address)
        ports = {port for _, port in given}
        nearest = min(
            brokers, key=lambda each: ((each.host, each.port) not in given, each.port not in ports)
        )
        return int(nearest.node_id)

    # --- topics ------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> list[TopicStatus]:
        """Topics by name: all, or those named, which exist."""
        wanted = None if names is None else list(dict.fromkeys(names))
        answer = self.perform(topic_calls.describe(wanted))
        for each in answer.topics:
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise CommandError(f"there is no topic {each.name}{self.near_topic(each.name)}")
        return sorted(map(_topic, answer.topics), key=lambda topic: topic.name)

    def near_topic(self, name: str) -> str:
        """Returns `did_you_mean` of the topics that there are."""
        answer = self.perform(topic_calls.describe(None))
        return did_you_mean(name, [str(each.name) for each in answer.topics])

    def create_topic(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str],
        *,
        replication_factor: int = -1,
    ) -> None:
        """Creates a topic; -1 partitions or replicas: as many as the broker's default."""
        call = topic_calls.create(name, partitions, settings, replication_factor=replication_factor)
        self.perform(call, f"{name}: ")

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes the topics that can be deleted, even if others cannot."""
        for name, refused in self.perform(topic_calls.delete(list(names))).items():
            if refused is not None:
                with raised_as_sentences(f"{name}: "):
                    raise refused

    def add_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Increases a topic to `count` partitions in total, or only asks whether that is possible."""
        call = topic_calls.add_partitions(name, count, validate_only=validate_only)
        self.perform(call, f"{name}: ")

    def sizes(self, topic: TopicStatus) -> dict[int, int]:
        """Returns the bytes of each partition's log at its leader, for those that report them."""
        places = [
            ((topic.name, each.number), each.leader)
            for each in topic.partitions
            if not each.has_error
        ]
        return {place[1]: size for (place, _), size in self.log_sizes(places).items()}

    def log_sizes(
        self, replicas: Iterable[tuple[TopicPartition, int]], *, may_lack: bool = True
    ) -> dict[tuple[TopicPartition, int], int]:
        """Returns the bytes of replicas: partitions, each on a broker. Some may be missing.

        Of a broker that does not answer they all are, unless none `may_lack`: that is an error.
        """
        asked: dict[tuple[str, int], list[int]] = {}
        for (name, number), broker in replicas:
            asked.setdefault((name, broker), []).append(number)
        found: dict[tuple[TopicPartition, int], int] = {}
        for (name, broker), numbers in asked.items():
            with contextlib.suppress(ClientError) if may_lack else raised_as_sentences():
                sizes = self.client.perform(topic_calls.log_sizes(name, numbers, broker))
                found.update({((name, number), broker): size for number, size in sizes.items()})
        return found

    def offsets(
        self, places: Iterable[TopicPartition], at: int, *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """Returns the offset of EARLIEST, LATEST or a time not in UNSAYABLE_MS by partition; -1: none."""
        found: dict[TopicPartition, int] = {}
        for name, numbers in by_topic(places).items():
            times = dict.fromkeys(numbers, at)
            with raised_as_sentences():
                answer = self.client.list_offsets(name, times, isolation=isolation)
            found.update({(name, number): one.offset for number, one in answer.items()})
        return found

    def rows_at(
        self, places: Iterable[TopicPartition], at: int, by: str, http: str, *, is_here: bool
    ) -> dict[TopicPartition, Mapping[str, Any]]:
        """Returns the first record at or after a time in each partition, as the HTTP port does.

        `by` is "at" for the records' own times, or "appended-at". Unless the port `is_here`, of this
        cluster, there is the "offset" alone, of most of the records' own times. Raises CommandError.
        """
        if by == "at" and at not in UNSAYABLE_MS:
            return {place: {"offset": each} for place, each in self.offsets(places, at).items()}
        if not is_here:
            what = "append times" if by == "appended-at" else f"the time {at} ms"
            why = getattr(http, "why", f"no HTTP port of this broker answers at {http} (--http)")
            raise CommandError(f"{what} cannot be looked up over Kafka's protocol, and {why}")
        found: dict[TopicPartition, Mapping[str, Any]] = {}
        for name, numbers in by_topic(places).items():
            answer = ask(http, "topics", name, "offsets", query=[(by, str(at))])
            rows = {row["partition"]: row for row in answer["partitions"]}
            found.update({(name, number): rows[number] for number in numbers if number in rows})
        return found

    def delete_records(self, name: str, offsets: Mapping[int, int]) -> None:
        """Moves the log start of each partition to an offset."""
        for number, offset in offsets.items():
            call = record_calls.delete_before(name, number, offset)
            self.perform(call, "not all was deleted: ")

    def clock_at(self, http: str, name: str) -> int | None:
        """Returns the time of the broker's clock, in ms, by its HTTP port.

        It is None if the port is not that of a broker with this topic.
        """
        try:
            (topic,) = self.topics([name])
            answer = ask(http, "topics", name, "offsets", query=[("at", "now"), ("shift", "true")])
        except CommandError:
            return None
        return int(answer["at_ms"]) if answer.get("topic_id") == topic.topic_id else None

    def now_ms(self, http: str, name: str) -> int:
        """Returns the broker's time if `clock_at` does, else this machine's."""
        here_ms = self.clock_at(http, name)
        return machine_ms() if here_ms is None else here_ms

    # --- settings ----------------------------------------------------------------------------

    def settings(self, topic: str | None, names: Sequence[str] = ()) -> list[Setting]:
        """Returns settings of a topic, or with None of the broker that was given: those named, or all.

        A setting is found by any of its names, and has the name by which it was asked for.
        """
        resource = Resource(topic) if topic is not None else Resource(node_id=self.broker_here())
        call = setting_calls.describe(
            resource, names=list(names) or None, with_synonyms=True, with_documentation=True
        )
        found: list[Setting] = self.perform(call)
        return found

    def alter(
        self, topic: str | None, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Changes settings, all or none; the value None removes a setting.

        Without a topic they are changed for all brokers, for those of a cluster are not changed for
        one.
        """
        self.perform(setting_calls.alter(Resource(topic), changes, validate_only=validate_only))

    # --- groups ------------------------------------------------------------------------------

    def group_names(self) -> dict[str, dict[str, Any]]:
        """Returns every group by name, with its `state` and `protocol_type`."""
        listed = [
            each
            for node_id in self.node_ids()
            for each in self.perform(group_calls.list_on(node_id))
        ]
        return {
            each.name: {"state": each.state, "protocol_type": each.protocol_type}
            for each in sorted(listed)
        }

    def group(self, name: str) -> GroupStatus:
        """Returns a group and its members; a group that does not exist is Dead."""
        if not name:
            raise UsageError("a group has a name")
        with _group_sentences(name):
            coordinator = self.client.perform(group_calls.coordinator(name))
            try:
                found = self.client.perform(group_calls.describe(name))
            except RequestError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                return GroupStatus(name, "Dead", "", "", coordinator, ())
        is_consumer = found.protocol_type in ("", group_calls.CONSUMER)
        members = [_member(each, is_consumer=is_consumer) for each in found.members]
        return GroupStatus(
            name,
            found.group_state or "Dead",
            found.protocol_type,
            found.protocol_data,
            coordinator,
            tuple(sorted(members, key=lambda each: (each.client_id, each.member_id))),
        )

    def committed(self, name: str) -> dict[TopicPartition, GroupOffset]:
        """Returns the committed offsets of a group by partition."""
        with _group_sentences(name):
            found = self.client.offset_fetch(name)
        return {place: one for place, one in sorted(found.items()) if one.offset >= 0}

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group without members, in every partition where that succeeds."""
        with _group_sentences(name):
            self.client.offset_commit(
                name, {place: GroupOffset(offset) for place, offset in offsets.items()}
            )

    def delete_offsets(self, name: str, places: Iterable[TopicPartition]) -> None:
        """Deletes the committed offsets of a group in these partitions."""
        with _group_sentences(name):
            self.client.perform(group_calls.delete_offsets(name, places))

    def delete_groups(self, names: Sequence[str]) -> dict[str, str | None]:
        """Deletes the groups that can be deleted; returns a sentence for each other one."""
        found: dict[str, str | None] = {}
        for name in names:
            try:
                with _group_sentences(name):
                    self.client.perform(group_calls.delete(name))
            except CommandError as error:
                found[name] = str(error)
            else:
                found[name] = None
        return found


@contextlib.contextmanager
def _group_sentences(name: str) -> Iterator[None]:
    """Turns refusals into a CommandError that names the group and the partition."""
    try:
        yield
    except PartitionRefused as error:
        where = f"{name}, {error.topic}-{error.partition}"
        raise CommandError(f"{where}: {_group_sentence(error)}") from None
    except RequestError as error:
        raise CommandError(f"{name}: {_group_sentence(error)}") from None
    except ClientError as error:
        raise CommandError(f"{name}: {error}") from None


def _group_sentence(error: RequestError) -> str:
    return _GROUP_SENTENCES.get(error.code) or sentence_of(error)


def raise_for_topic(answer: Any, prefix: str = "") -> None:
    """Raises CommandError if a topic of a Metadata answer does not exist, or has no leaders yet."""
    name = answer.name
    if answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        legal = "one has up to 249 ASCII letters, digits, '.', '_' and '-'"
        raise UsageError(f"{name!r} is not a topic's name: {legal}")
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandError(f"there is no topic {name}")
    if answer.error_code:
        with raised_as_sentences(prefix or f"{name}: "):
            raise RequestError(answer.error_code, f"topic {name}")


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the numbers of partitions by their topics."""
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


def _topic(answer: Any) -> TopicStatus:
    """Returns a topic of a Metadata answer. Raises CommandError if it does not exist."""
    raise_for_topic(answer)
    return TopicStatus(
        answer.name,
        str(answer.topic_id),
        answer.is_internal,
        sorted(
            PartitionStatus(
                *(one.partition_index, one.leader_id, bool(one.error_code)),
                *(one.replica_nodes, one.isr_nodes),
            )
            for one in answer.partitions
        ),
    )


def _member(found: Any, *, is_consumer: bool) -> Member:
    assigned: tuple[TopicPartition, ...] | None = None
    if is_consumer:
        with contextlib.suppress(ValueError):
            assigned = group_calls.assigned_partitions(found.member_assignment)
    host = found.client_host.removeprefix("/")
    return Member(found.member_id, found.group_instance_id, found.client_id, host, assigned)

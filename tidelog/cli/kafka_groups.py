"""Consumer groups over Kafka's protocol: who is in them, what they have committed, and changes of that.

Requests that name a group go to its coordinator. What a broker refuses is a CommandError of one sentence.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.kafka import Kafka, telling
from tidelog.cli.shared import USAGE, CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Place = tuple[str, int]  # a topic and a partition

_GROUP_ID_NOT_FOUND = "GroupIdNotFoundError"
_NOT_READY = (14, 15)  # the coordinator reads its groups, or there is none yet
_CONSUMER = "consumer"  # the protocol whose assignments a tool can read
_PATIENCE_S, _AGAIN_S = 30.0, 0.1  # while a coordinator reads its groups
INACTIVE = frozenset({"", "Empty", "Dead"})  # nobody is in it; "" is what old brokers do not tell

_SENTENCES = {
    "NonEmptyGroupError": "it has members: stop them first",
    "UnknownMemberIdError": "it has members: stop them first",
    "RebalanceInProgressError": "it has members: stop them first",
    _GROUP_ID_NOT_FOUND: "there is no such group",
    "GroupSubscribedToTopicError": "its members read this topic: stop them first",
    "UnknownTopicOrPartitionError": "there is no such partition",
    "CoordinatorLoadInProgressError": "its coordinator is still reading its groups: try again",
    "CoordinatorNotAvailableError": "it has no coordinator yet: try again",
}


class Committed(NamedTuple):
    """What a group has committed in one partition."""

    offset: int
    metadata: str


class Member(NamedTuple):
    """One member; `assigned` is None where its protocol is not that of consumers."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[Place, ...] | None


class Group(NamedTuple):
    """A group: its state as Kafka names it, the protocol of its kind, and which one its members chose."""

    name: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[Member, ...]


class KafkaGroups(Kafka):
    """One broker, asked about groups."""

    def group_names(self) -> dict[str, dict[str, Any]]:
        """Every group, by name: `state` and `protocol_type`. Raises CommandError."""
        listed = self._patiently("", self._admin.list_groups)
        return {
            each["group_id"]: {
                "state": each.get("group_state") or "",
                "protocol_type": each["protocol_type"],
            }
            for each in sorted(listed, key=lambda each: str(each["group_id"]))
        }

    def group(self, name: str) -> Group:
        """A group and its members; one that is not there is Dead. Raises CommandError."""
        from kafka.errors import for_code
        from kafka.protocol.admin import DescribeGroupsRequest

        def describe() -> Any:
            told = self._send(DescribeGroupsRequest(groups=[name]), node).groups[0]
            if told.error_code in _NOT_READY:
                raise for_code(told.error_code)
            return told

        if not name:
            raise CommandError("a group has a name", USAGE)
        node = self._coordinator(name)
        told = self._patiently(name, describe)
        error = for_code(told.error_code).__name__
        if told.error_code and error != _GROUP_ID_NOT_FOUND:
            raise CommandError(f"{name}: {_sentence(error)}")
        is_consumer = told.protocol_type in ("", _CONSUMER)
        members = [
            Member(
                each.member_id,
                getattr(each, "group_instance_id", None),
                each.client_id,
                each.client_host.removeprefix("/"),
                _assigned(each.member_assignment) if is_consumer else None,
            )
            for each in told.members
        ]
        return Group(
            name,
            told.group_state or "Dead",
            told.protocol_type,
            told.protocol_data,
            node,
            tuple(sorted(members, key=lambda each: (each.client_id, each.member_id))),
        )

    def committed(self, name: str) -> dict[Place, Committed]:
        """What a group has committed, by partition. Raises CommandError."""
        told = self._patiently(name, lambda: self._admin.list_group_offsets({name: None}))[name]
        return {
            (place.topic, place.partition): Committed(found.offset, found.metadata or "")
            for place, found in sorted(told.items())
            if found.offset >= 0
        }

    def commit(self, name: str, offsets: Mapping[Place, int]) -> None:
        """Commit for a group without members. Raises CommandError; what could be committed is."""
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        with telling(f"{name}: "):
            told = self._admin.alter_group_offsets(
                name,
                {
                    TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
                    for place, offset in offsets.items()
                },
            )
        _check(name, told)

    def delete_offsets(self, name: str, places: Iterable[Place]) -> None:
        """Forget what a group has committed in these partitions. Raises CommandError."""
        from kafka import TopicPartition
        from kafka.errors import KafkaError

        try:
            told = self._admin.delete_group_offsets(
                name, [TopicPartition(*place) for place in places]
            )
        except KafkaError as error:
            raise CommandError(f"{name}: {_sentence(type(error).__name__, str(error))}") from None
        _check(name, told)

    def delete_groups(self, names: Sequence[str]) -> dict[str, str | None]:
        """Delete groups; those that can be are. A sentence for each that cannot. Raises CommandError."""
        with telling():
            told = self._admin.delete_groups(list(names))
        return {
            name: None if told[name] == "OK" else f"{name}: {_sentence(told[name])}"
            for name in names
        }

    def _coordinator(self, name: str) -> int:
        admin = self._admin
        found: int = self._patiently(
            name,
            lambda: admin._manager.run(admin._find_coordinator_id, name),  # noqa: SLF001 - as in _send
        )
        return found

    def _patiently(self, name: str, ask: Callable[[], Any]) -> Any:
        """Ask again for a while where the coordinator is not ready yet. Raises CommandError."""
        from kafka import errors

        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with telling(f"{name}: " if name else ""):
                    return _unless_not_ready(ask, errors)
            except _NotReadyError as error:
                if time.monotonic() > until:
                    raise CommandError(f"{name}: {_sentence(str(error))}") from None
                time.sleep(_AGAIN_S)


class _NotReadyError(Exception):
    """The coordinator cannot answer yet; the name of the error."""


def _unless_not_ready(ask: Callable[[], Any], errors: Any) -> Any:
    try:
        return ask()
    except (errors.CoordinatorLoadInProgressError, errors.CoordinatorNotAvailableError) as error:
        raise _NotReadyError(type(error).__name__) from None


def _assigned(data: bytes | None) -> tuple[Place, ...] | None:
    """The partitions of an assignment; None where it is none that can be read."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    if not data:
        return ()
    try:
        told = ConsumerProtocolAssignment.decode(bytes(data))
        return tuple(sorted((topic, each) for topic, each in _pairs(told)))
    except (struct.error, ValueError, TypeError):
        return None


def _pairs(told: Any) -> Iterable[Place]:
    for topic, numbers in ((each.topic, each.partitions) for each in told.assigned_partitions):
        yield from ((topic, number) for number in numbers)


def _check(name: str, told: Mapping[Any, Any]) -> None:
    """Raise what a broker says of the first partition that it refused."""
    for place, error in sorted(told.items(), key=lambda item: item[0]):
        if error.errno:
            sentence = _sentence(error.__name__)
            raise CommandError(f"{name}, {place.topic}-{place.partition}: {sentence}")


def _sentence(error: str, otherwise: str = "") -> str:
    return _SENTENCES.get(error, otherwise or error.removesuffix("Error"))

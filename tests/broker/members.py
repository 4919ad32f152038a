"""Members of groups as raw clients: each on a connection of its own, each request to be waited for or not."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.broker.asking import BODIES
from tests.broker.subject import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from tests.broker.subject import Subject
    from tidelog.protocol.topic_partition import TopicPartition

LOAD_IN_PROGRESS, NOT_AVAILABLE, REBALANCE_IN_PROGRESS = 14, 15, 27
_pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix="member")


class RawMember:
    """One member of a group; it remembers its id and generation, and does nothing by itself."""

    def __init__(
        self,
        broker: Subject,
        group: str,
        *,
        instance: str | None = None,
        version: int = 9,
        session_ms: int = 100_000,
        rebalance_ms: int = 100_000,
    ) -> None:
        self.connection = broker.connect()
        self.group, self.instance, self.version = group, instance, version
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.protocols: list[tuple[str, bytes]] = [("range", b"one")]
        self.kind = "consumer"
        self.member_id = ""
        self.generation = -1
        self.is_leader = False

    def join_now(self, **more: Any) -> dict[str, Any]:
        """Join, again with the id that is given where one has to; the answer."""
        answer = self._join(**more)
        if answer["error_code"] == 79:
            self.member_id = answer["member_id"]
            answer = self._join(**more)
        if answer["error_code"] == 0:
            self.member_id, self.generation = answer["member_id"], answer["generation_id"]
            self.is_leader = answer["leader"] == self.member_id
        return answer

    def _join(self, **more: Any) -> dict[str, Any]:
        fields = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.kind,
            "protocols": [{"name": name, "metadata": said} for name, said in self.protocols],
            "reason": None,
            **more,
        }
        return self.connection.ask("JoinGroup", self.version, **fields)

    def join(self, **more: Any) -> Future[dict[str, Any]]:
        """Join in a thread."""
        return _pool.submit(self.join_now, **more)

    def sync_now(self, parts: Mapping[str, bytes] | None = None, **more: Any) -> dict[str, Any]:
        """Ask for the part, with everybody's for a leader."""
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.kind,
            "protocol_name": self.protocols[0][0],
            "assignments": [
                {"member_id": member, "assignment": part} for member, part in (parts or {}).items()
            ],
            **more,
        }
        return self.connection.ask("SyncGroup", min(self.version, 5), **fields)

    def sync(self, parts: Mapping[str, bytes] | None = None) -> Future[dict[str, Any]]:
        """Ask for the part in a thread."""
        return _pool.submit(self.sync_now, parts)

    def heartbeat(self, **more: Any) -> int:
        """The error code of a heartbeat."""
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            **more,
        }
        return self.connection.ask("Heartbeat", min(self.version, 4), **fields)["error_code"]

    def leave(self) -> dict[str, Any]:
        """Go."""
        who = {"member_id": self.member_id, "group_instance_id": self.instance, "reason": None}
        return self.connection.ask(
            "LeaveGroup",
            min(self.version, 5),
            group_id=self.group,
            member_id=self.member_id,
            members=[who],
        )

    def commit(self, topic: str, offset: int, **more: Any) -> int:
        """Commit an offset of partition 0; its error code."""
        who = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return commit(self.connection, self.group, topic, offset, **{**who, **more})

    def close(self) -> None:
        """Be gone without a word."""
        self.connection.close()


def settled(*members: RawMember) -> dict[str, bytes]:
    """Have members join, one after another, and sync; who got what."""
    here: list[RawMember] = []
    for member in members:
        joining = [member.join()]
        if here:
            eventually(lambda: here[0].heartbeat() == REBALANCE_IN_PROGRESS)
            joining += [each.join() for each in here]
        assert [joined.result(timeout=60)["error_code"] for joined in joining] == [0] * len(joining)
        here.append(member)
    parts = {member.member_id: b"part of " + member.member_id.encode() for member in members}
    syncing = [member.sync(parts if member.is_leader else None) for member in members]
    answers = [synced.result(timeout=60) for synced in syncing]
    assert [answer["error_code"] for answer in answers] == [0] * len(members)
    return {
        member.member_id: answer["assignment"]
        for member, answer in zip(members, answers, strict=True)
    }


def join_once(connection: Any, group: str, *, version: int = 3, **more: Any) -> dict[str, Any]:
    """Ask once to join a group, as somebody new unless told; the answer."""
    times = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    fields = {**BODIES["JoinGroup"], **times, "group_id": group, "member_id": "", **more}
    return connection.ask("JoinGroup", version, **fields)


def sync_alone(
    connection: Any, group: str, member: str, generation: int, part: bytes = b"a", **more: Any
) -> int:
    """Ask for the part of a group's only member, and say what it is; the error code."""
    who = {"group_id": group, "member_id": member, "generation_id": generation}
    parts = [{"member_id": member, "assignment": part}]
    fields = {**BODIES["SyncGroup"], **who, "assignments": parts, **more}
    return connection.ask("SyncGroup", 3, **fields)["error_code"]


def commit_fields(
    group: str,
    topic: str,
    *offsets: int,
    partition: int = 0,
    note: str | None = "",
    epoch: int = -1,
    timestamp: int = -1,
    retention_ms: int = -1,
    **more: Any,
) -> dict[str, Any]:
    """The body of an OffsetCommit of offsets of one partition, from outside of the group unless told."""
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "commit_timestamp": timestamp,
            "committed_metadata": note,
        }
        for offset in offsets
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": retention_ms,
        "topics": [{"name": topic, "partitions": partitions}],
        **more,
    }


def commit(
    connection: Any, group: str, topic: str, offset: int, *, version: int = 9, **more: Any
) -> int:
    """Commit one offset, as `commit_fields` says; its error code, once the coordinator is loaded."""
    until_s = time.monotonic() + 60
    while True:
        code = commit_once(connection, group, topic, offset, version=version, **more)
        if code not in (LOAD_IN_PROGRESS, NOT_AVAILABLE) or time.monotonic() > until_s:
            return code
        time.sleep(0.05)


def commit_once(
    connection: Any, group: str, topic: str, offset: int, *, version: int = 9, **more: Any
) -> int:
    """Commit one offset with one request, as `commit_fields` says; its error code."""
    fields = commit_fields(group, topic, offset, **more)
    answer = connection.ask("OffsetCommit", version, **fields)
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def fetched(
    connection: Any, group: str, topic: str, *, version: int = 9, partition: int = 0
) -> tuple[int, int, str, int]:
    """Offset, leader epoch, note and error code of one partition."""
    topics = [{"name": topic, "partition_indexes": [partition]}]
    answer = connection.ask(
        "OffsetFetch",
        version,
        group_id=group,
        topics=topics,
        groups=[{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}],
        require_stable=True,
    )
    whole = answer["groups"][0] if version >= 8 else answer
    if whole.get("error_code"):
        return -1, -1, "", whole["error_code"]
    one = whole["topics"][0]["partitions"][0]
    return (
        one["committed_offset"],
        one.get("committed_leader_epoch", -1),
        one["metadata"],
        one["error_code"],
    )


def all_fetched(connection: Any, group: str) -> dict[TopicPartition, int]:
    """Every offset of a group, once the broker has read them."""

    def ask() -> dict[str, Any] | None:
        groups = [{"group_id": group, "topics": None}]
        told = connection.ask("OffsetFetch", 8, groups=groups, require_stable=False)["groups"][0]
        return None if told["error_code"] == LOAD_IN_PROGRESS else told

    answer = eventually(ask)
    assert answer["error_code"] == 0, answer
    return {
        (topic["name"], one["partition_index"]): one["committed_offset"]
        for topic in answer["topics"]
        for one in topic["partitions"]
    }


def state_of(connection: Any, group: str, version: int = 5) -> str:
    """The name of a group's state."""
    answer = connection.ask(
        "DescribeGroups", version, groups=[group], include_authorized_operations=False
    )
    return answer["groups"][0]["group_state"]

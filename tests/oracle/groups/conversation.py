"""Conversations of several clients with one broker: who waits for an answer is heard later.

A `Script` collects the steps of one case; each step is said by somebody, on a connection of its own: asked
and answered, or sent, or heard later, or asked again until its answer is the one that is waited for. A
`Stage` plays a case against one broker. Member ids are made by the broker, so answers are made canonical when
the whole conversation is over: an id becomes its prefix and who got it, what comes in any order is sorted.
"""

from __future__ import annotations

import re
import struct
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.oracle import wire
from tests.oracle.scenario import ANY_TEXT, CLOSED, SILENT, Case, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PATIENCE_S = 120.0
SURELY_NEVER_S = 6.0
LONGEST_PAUSE_S = 0.1
LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ID_REQUIRED = 79
TOOL = "tool"
NEVER, NOT_ASKED = "<never came>", "<not asked any more>"
WARM_UP = ("warm-a", "warm-b", "warm-c")
"""Groups in three partitions of __consumer_offsets, each in another: all are loaded when these are kept."""
BORN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NEWEST = {
    "JoinGroup": 9,
    "SyncGroup": 5,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "DescribeGroups": 5,
    "ListGroups": 5,
    "DeleteGroups": 2,
    "OffsetDelete": 0,
}
"""The newest version that both brokers serve; all older ones they do, too."""


@dataclass
class Cast:
    """What the clients of one conversation know: ids and generations, by name."""

    ids: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # real id -> what it is called here
    births: dict[str, int] = field(default_factory=dict)

    def note(self, who: str, answer: Any) -> None:
        """Remember what the answer to a JoinGroup said to somebody."""
        if not isinstance(answer, dict) or answer["error_code"] not in (0, ID_REQUIRED):
            return
        member_id = answer["member_id"]
        if member_id not in self.names:
            self.births[who] = self.births.get(who, 0) + 1
            self.names[member_id] = BORN.sub(f"<{who} {self.births[who]}>", member_id)
        self.ids[who] = member_id
        if answer["error_code"] == 0:
            self.generations[who] = answer["generation_id"]


@dataclass(frozen=True)
class Talk(Step):
    """One step of a conversation; `until` is what an answer that is waited for has to be."""

    who: str = TOOL
    mode: str = "ask"  # or send, hear, cut: go away without a word
    until: Callable[[Any], bool] | None = None
    patience_s: float = PATIENCE_S


def versioned(api: str, version: int) -> int:
    """The version of another API that goes with one: the same, as far as there is one."""
    return min(version, NEWEST[api])


def subscription(*topics: str, owned: bytes | None = None) -> bytes:
    """What a consumer says of itself: the topics it reads, and bytes for its assignor."""
    said = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        said += struct.pack(">h", len(topic)) + topic.encode()
    return said + (
        struct.pack(">i", -1) if owned is None else struct.pack(">i", len(owned)) + owned
    )


class Script:
    """The steps of one case, written down one after another.

    `version` is used for every API, as far as it has it, unless a step names one.
    """

    def __init__(self, name: str, version: int, **tags: Any) -> None:
        self.name, self.version, self.tags = name, version, tags
        self.group = re.sub(r"[^a-z0-9]+", "-", name.lower())
        self.steps: list[Talk] = []
        self.oldest = 1  # of commits and fetches: what v0 means has a case of its own
        self._sent: dict[str, tuple[str, int]] = {}

    def case(self) -> Case:
        """All of it."""
        return Case(self.name, "", tuple(self.steps), {"group": self.group, **self.tags})

    def say(
        self,
        who: str,
        api: str,
        fields: Callable[[Cast], dict[str, Any]] | dict[str, Any],
        *,
        version: int | None = None,
        mode: str = "ask",
        until: Callable[[Any], bool] | None = None,
        note: str = "",
    ) -> None:
        """Any request."""
        chosen = versioned(api, self.version) if version is None else version
        label = f"#{len(self.steps)} {who}: {mode} {api} v{chosen} {note}".rstrip()
        make: Any = fields if callable(fields) else lambda _: fields
        self.steps.append(Talk(label, api, chosen, make, who=who, mode=mode, until=until))
        if mode == "send":
            self._sent[who] = api, chosen

    def hear(self, *members: str) -> None:
        """Wait for what was sent before to be answered."""
        for who in members:
            api, version = self._sent.pop(who)
            label = f"#{len(self.steps)} {who}: hear {api} v{version}"
            self.steps.append(Talk(label, api, version, lambda _: {}, who=who, mode="hear"))

    def hold(self) -> None:
        """Keep an offset, so that the group does not go at some moment because nothing is left of it.

        Kafka also lets a group go while somebody has an id for it and is not yet a member.
        """
        self.commit(
            TOOL,
            (("committed-b", 0, 1),),
            generation=-1,
            member_id="",
            version=9,
            note="to be kept",
        )

    def impatient(self) -> None:
        """Do not wait long for Kafka's answer to the last step: it gives none."""
        self.steps[-1] = replace(self.steps[-1], patience_s=SURELY_NEVER_S)

    def gone(self, who: str) -> None:
        """Somebody's connection breaks."""
        self._sent.pop(who, None)
        label = f"#{len(self.steps)} {who} is cut off"
        self.steps.append(Talk(label, "", 0, lambda _: {}, who=who, mode="cut"))

    # -- members --------------------------------------------------------------------------------

    def join(
        self,
        who: str,
        protocols: Iterable[tuple[str, bytes]] = (("range", b"one"),),
        *,
        mode: str = "ask",
        member_id: str | None = None,
        version: int | None = None,
        note: str = "",
        **more: Any,
    ) -> None:
        """JoinGroup with the id somebody has, or the one given."""
        offered = [{"name": name, "metadata": said} for name, said in protocols]

        def fields(cast: Cast) -> dict[str, Any]:
            return {
                "group_id": self.group,
                "session_timeout_ms": 60_000,
                "rebalance_timeout_ms": 60_000,
                "member_id": cast.ids.get(who, "") if member_id is None else member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": offered,
                "reason": "because",
                **more,
            }

        self.say(who, "JoinGroup", fields, version=version, mode=mode, note=note)

    def enter(self, who: str, *arguments: Any, mode: str = "ask", **more: Any) -> None:
        """Join for the first time, with the id that is given first where one is."""
        version = more.get("version", self.version)
        if version >= 4 and more.get("group_instance_id") is None:
            self.join(who, *arguments, **more)
        self.join(who, *arguments, mode=mode, **more)

    def wait(self, state: str, members: int, *, group: str | None = None) -> None:
        """Until the group is in a state with so many members; what is told of it is compared, too."""

        def there(answer: Any) -> bool:
            (told,) = answer["groups"]
            return told["group_state"] == state and len(told["members"]) == members

        fields = {"groups": [group or self.group], "include_authorized_operations": False}
        note = f"until {state} with {members}"
        self.say(TOOL, "DescribeGroups", fields, version=5, until=there, note=note)

    def sync(
        self,
        who: str,
        parts: dict[str, bytes] | None = None,
        *,
        mode: str = "ask",
        generation: int | None = None,
        member_id: str | None = None,
        version: int | None = None,
        note: str = "",
        **more: Any,
    ) -> None:
        """SyncGroup; `parts` by the names of members, which the leader sends."""

        def fields(cast: Cast) -> dict[str, Any]:
            return {
                "group_id": self.group,
                "generation_id": cast.generations.get(who, -1)
                if generation is None
                else generation,
                "member_id": cast.ids.get(who, "") if member_id is None else member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [
                    {"member_id": cast.ids.get(name, name), "assignment": part}
                    for name, part in (parts or {}).items()
                ],
                **more,
            }

        self.say(who, "SyncGroup", fields, version=version, mode=mode, note=note)

    def beat(
        self,
        who: str,
        *,
        generation: int | None = None,
        member_id: str | None = None,
        version: int | None = None,
        until: Callable[[Any], bool] | None = None,
        **more: Any,
    ) -> None:
        """Heartbeat."""

        def fields(cast: Cast) -> dict[str, Any]:
            own = cast.generations.get(who, -1)
            return {
                "group_id": self.group,
                "generation_id": own if generation is None else generation,
                "member_id": cast.ids.get(who, "") if member_id is None else member_id,
                "group_instance_id": None,
                **more,
            }

        self.say(who, "Heartbeat", fields, version=version, until=until, note=str(more or ""))

    def leave(
        self,
        who: str,
        *others: tuple[str, str | None],
        version: int | None = None,
        member_id: str | None = None,
        via: str = "",
        note: str = "",
        **more: Any,
    ) -> None:
        """LeaveGroup: somebody goes, or those that are named by id (or who has it) and instance.

        `via` is whose connection is used, if another: who waits for an answer cannot ask for more.
        """

        def fields(cast: Cast) -> dict[str, Any]:
            own = cast.ids.get(who, "") if member_id is None else member_id
            going = [(cast.ids.get(name, name), instance) for name, instance in others]
            return {
                "group_id": self.group,
                "member_id": own,
                "members": [
                    {"member_id": name, "group_instance_id": instance, "reason": "bye"}
                    for name, instance in going or [(own, None)]
                ],
                **more,
            }

        self.say(via or who, "LeaveGroup", fields, version=version, note=note)

    # -- offsets --------------------------------------------------------------------------------

    def commit(
        self,
        who: str,
        offsets: Iterable[tuple[Any, ...]] = (("committed-a", 0, 7),),
        *,
        generation: int | None = None,
        member_id: str | None = None,
        version: int | None = None,
        note: str = "",
        **more: Any,
    ) -> None:
        """OffsetCommit; offsets as (topic, partition, offset, note of the client, leader epoch)."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, index, offset, *rest in offsets:
            text, epoch = (*rest, *("n", 0)[len(rest) :])
            topics.setdefault(topic, []).append(
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "commit_timestamp": -1,
                    "committed_metadata": text,
                }
            )

        def fields(cast: Cast) -> dict[str, Any]:
            own = cast.generations.get(who, -1)
            return {
                "group_id": self.group,
                "generation_id_or_member_epoch": own if generation is None else generation,
                "member_id": cast.ids.get(who, "") if member_id is None else member_id,
                "group_instance_id": None,
                "retention_time_ms": -1,
                "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
                **more,
            }

        chosen = max(self.oldest, versioned("OffsetCommit", self.version))
        version = chosen if version is None else version
        self.say(who, "OffsetCommit", fields, version=version, note=note)

    def fetch(
        self,
        wanted: dict[str, list[int]] | None,
        *,
        version: int | None = None,
        groups: Iterable[tuple[str, dict[str, list[int]] | None]] | None = None,
        until: Callable[[Any], bool] | None = None,
        note: str = "",
        **more: Any,
    ) -> None:
        """OffsetFetch of partitions by topic; None is all there are."""

        def listed(topics: dict[str, list[int]] | None) -> list[dict[str, Any]] | None:
            if topics is None:
                return None
            return [{"name": name, "partition_indexes": each} for name, each in topics.items()]

        asked = [(self.group, wanted)] if groups is None else groups
        fields = {
            "group_id": self.group,
            "topics": listed(wanted),
            "groups": [
                {"group_id": name, "topics": listed(each), "member_id": None, "member_epoch": -1}
                for name, each in asked
            ],
            "require_stable": False,
            **more,
        }
        chosen = max(self.oldest, versioned("OffsetFetch", self.version))
        version = chosen if version is None else version
        self.say(TOOL, "OffsetFetch", fields, version=version, until=until, note=note)

    # -- tools ----------------------------------------------------------------------------------

    def describe(self, *groups: str, version: int | None = None, allowed: bool = False) -> None:
        """DescribeGroups; of this group if none is named."""
        fields = {"groups": list(groups or [self.group]), "include_authorized_operations": allowed}
        self.say(TOOL, "DescribeGroups", fields, version=version, note=f"{groups or ''}"[:60])

    def list(
        self,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        version: int | None = None,
        until: Callable[[Any], bool] | None = None,
    ) -> None:
        """ListGroups; what does not belong to this case is left out when answers are compared."""
        fields = {"states_filter": list(states), "types_filter": list(types)}
        note = f"{states} {types}"
        self.say(TOOL, "ListGroups", fields, version=version, until=until, note=note)

    def delete(self, *groups: str, version: int | None = None) -> None:
        """DeleteGroups; this group if none is named."""
        fields = {"groups_names": list(groups or [self.group])}
        self.say(TOOL, "DeleteGroups", fields, version=version, note=f"{groups or ''}"[:60])

    def forget(self, wanted: dict[str, list[int]], **more: Any) -> None:
        """OffsetDelete."""
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in each]}
            for name, each in wanted.items()
        ]
        fields = {"group_id": self.group, "topics": topics, **more}
        self.say(TOOL, "OffsetDelete", fields, version=0, note=f"{wanted} {more or ''}")


# ------------------------------------------------------------------------------------ playing


class Stage:
    """The connections of one conversation with one broker.

    `is_complete`: it answers everything, so it is waited for where Kafka is not.
    """

    def __init__(self, bootstrap: str, *, is_complete: bool = False) -> None:
        self.bootstrap = bootstrap
        self.is_complete = is_complete
        self.cast = Cast()
        self._connections: dict[str, wire.Connection] = {}
        self._sent: dict[str, int] = {}

    def play(self, case: Case) -> list[Any]:
        """Canonical answers, one for each step."""
        try:
            raw = []
            for step in case.steps:
                assert isinstance(step, Talk)
                raw.append(self._answer(step))
                if raw[-1] in (SILENT, NEVER):
                    break  # everybody would only wait for everybody else
        finally:
            for connection in self._connections.values():
                connection.close()
        raw += [NOT_ASKED] * (len(case.steps) - len(raw))
        return [
            canonical(step.api, answer, self.cast, case.tags["group"])
            for step, answer in zip(case.steps, raw, strict=True)
        ]

    def _of(self, who: str) -> wire.Connection:
        return self._connections.setdefault(who, wire.Connection(self.bootstrap))

    def _answer(self, step: Talk) -> Any:
        connection = self._of(step.who)
        connection.timeout_s = PATIENCE_S if self.is_complete else step.patience_s
        if step.mode == "cut":
            connection.close()
            return "<cut>"
        if step.mode == "hear":
            answer = self._heard(connection, step)
        elif step.mode == "send":
            self._send(connection, step)
            return "<sent>"
        else:
            answer = self._asked(connection, step)
        if step.api == "JoinGroup":
            self.cast.note(step.who, answer)
        return answer

    def _asked(self, connection: wire.Connection, step: Talk) -> Any:
        deadline, pause_s = time.monotonic() + PATIENCE_S, 0.005
        while True:
            try:
                answer = connection.ask(step.api, step.version, **step.fields(self.cast))
            except wire.NoAnswerError:
                return SILENT
            if answer is None:
                return CLOSED
            if step.until is None or step.until(answer):
                return answer
            if time.monotonic() > deadline:
                return NEVER
            time.sleep(pause_s)  # a foreign process can only be polled
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _send(self, connection: wire.Connection, step: Talk) -> None:
        key, flexible, body = wire.encode_request(step.api, step.version, step.fields(self.cast))
        correlation_id = self._sent[step.who] = 1_000_000 + len(self._sent)
        client_id = wire.CLIENT_ID.encode()
        frame = struct.pack(">hhih", key, step.version, correlation_id, len(client_id)) + client_id
        frame += (b"\0" if flexible else b"") + body
        connection.send(struct.pack(">i", len(frame)) + frame)

    def _heard(self, connection: wire.Connection, step: Talk) -> Any:
        try:
            frame = connection.receive()
        except TimeoutError:
            connection.close()
            return SILENT
        if frame is None:
            connection.close()
            return CLOSED
        (echoed,) = struct.unpack_from(">i", frame)
        assert echoed == self._sent[step.who], f"{step.name}: correlation id {echoed}"
        return wire.decode_answer(step.api, step.version, frame[4:])


def canonical(api: str, answer: Any, cast: Cast, group: str) -> Any:
    """An answer with ids named, texts without their words, and sorted where any order will do."""
    if not isinstance(answer, dict):
        return answer
    if api == "ListGroups":
        ours = [one for one in answer["groups"] if one["group_id"].startswith(group)]
        answer = {**answer, "groups": ours}
    return _plain(answer, cast, "")


ANY_ORDER = {"members", "groups", "topics", "partitions", "results"}


def _plain(value: Any, cast: Cast, key: str) -> Any:
    if isinstance(value, dict):
        return {
            name: _plain(one, cast, name)
            for name, one in value.items()
            if name != "throttle_time_ms"
        }
    if isinstance(value, list):
        found = [_plain(one, cast, key) for one in value]
        return sorted(found, key=repr) if key in ANY_ORDER else found
    if key == "error_message":
        return ANY_TEXT if value else None
    if isinstance(value, str):
        return cast.names.get(value) or BORN.sub("<never heard>", value)
    return value


def serves(bootstrap: str) -> dict[int, int]:
    """The newest version of each API that a broker says it serves."""
    with wire.Connection(bootstrap) as connection:
        answer = connection.ask("ApiVersions", 0)
    return {one["api_key"]: one["max_version"] for one in answer["api_keys"]}


def wait_for_groups(bootstrap: str) -> None:
    """Until the coordinator answers for groups of every name, and has logs to keep them in."""
    deadline = time.monotonic() + PATIENCE_S
    with wire.Connection(bootstrap) as connection:
        for name in WARM_UP:
            while not _is_kept(connection, name):
                assert time.monotonic() < deadline, f"{bootstrap} never kept the group {name}"
                time.sleep(0.05)  # a foreign process can only be polled


def _is_kept(connection: wire.Connection, name: str) -> bool:
    """Whether the coordinator takes an offset of a group."""
    script = Script(name, 5)
    script.commit(TOOL)
    (step,) = script.steps
    connection.ask("FindCoordinator", 2, key=name, key_type=0)  # Kafka makes its logs then
    answer = connection.ask(step.api, step.version, **step.fields(Cast()))
    code = answer["topics"][0]["partitions"][0]["error_code"]
    assert code in (0, LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR), code
    return bool(code == 0)

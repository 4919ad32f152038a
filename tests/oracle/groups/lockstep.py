"""Random conversations with two coordinators at once: whatever members say, both answer the same.

Every step is one request, sent to both brokers with each broker's own ids in it; then one waits until both
have answered the same requests and describe the group alike, or for as long as `PATIENCE_S`: what is not the
same then is a `Parting`. So nothing depends on how fast a broker is, if it takes the requests of all its
connections in the order they were sent: Kafka does, with one thread of each kind (`IN_ORDER`). Members are
named by the request they were born of.

Three things are not compared, for Kafka leaves them to its hash tables or does without: which member leads
when the leader did not come back, which protocol wins a tied vote (both end a conversation), and an answer to
a request that its sender has repeated, or whose sender has left: tidelog gives one, Kafka none.
"""

from __future__ import annotations

import random
import re
import select
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.oracle import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 120.0
IN_ORDER = {"num.network.threads": 1, "num.io.threads": 1}
ID_REQUIRED, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 79, 25, 27
LONG_MS = 300_000
BORN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What consumers say of themselves: version 0, one topic, and no bytes for their assignor.
A, B = (b"\0\0\0\0\0\1\0\x0b" + name + b"\xff" * 4 for name in (b"committed-a", b"committed-b"))
_NEVER_TOLD = (UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS)
_CHOSEN = ("leader", "members", "protocol_name")
OFFERED = (
    (("range", A),),
    (("range", A), ("sticky", b"two")),
    (("sticky", b"2"), ("range", B)),
    (("sticky", b"2"),),
)
OFTEN = {"join": 14, "again": 10, "all": 8, "sync": 6, "assign": 10, "all sync": 8}
SELDOM = {"beat": 6, "commit": 6, "leave": 3, "leave several": 3, "fetch": 1}

Said = tuple[str, int, dict[str, Any]]  # API, version, fields: ids are written as "@17"
Answers = dict[int, tuple[str, Any]]


class Parting(NamedTuple):
    """Where two brokers part."""

    said: Said
    kafka: Answers
    tidelog: Answers
    views: tuple[Any, Any]

    def __str__(self) -> str:
        kafka, tidelog = self.views
        return f"{self.said}\n  kafka   {self.kafka} {kafka}\n  tidelog {self.tidelog} {tidelog}"


class Line:
    """One connection, with at most one request that waits for its answer."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = wire.Connection(bootstrap)
        self.connection.ask("ApiVersions", 0)  # once it is accepted, what it says is heard in order
        self.waiting: tuple[int, str, int] | None = None

    def send(self, number: int, api: str, version: int, fields: dict[str, Any]) -> None:
        key, flexible, body = wire.encode_request(api, version, fields)
        head = struct.pack(">hhih", key, version, number, 2) + b"me" + (b"\0" if flexible else b"")
        self.connection.send(struct.pack(">i", len(head) + len(body)) + head + body)
        self.waiting = number, api, version

    def receive(self) -> tuple[int, str, Any]:
        assert self.waiting is not None
        number, api, version = self.waiting
        self.waiting = None
        frame = self.connection.receive()
        assert frame is not None, f"{api} v{version}: the connection was closed"
        assert struct.unpack_from(">i", frame) == (number,)
        return number, api, wire.decode_answer(api, version, frame[4:])


class Side:
    """One of the two brokers, and what its ids are called here."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap, self._group = bootstrap, group
        self._lines: list[Line] = []
        self._tool = wire.Connection(bootstrap)
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def send(self, number: int, said: Said) -> None:
        """Send a request on a connection on which nothing is waited for."""
        line = next((each for each in self._lines if each.waiting is None), None)
        if line is None:
            line = Line(self._bootstrap)
            self._lines.append(line)
        api, version, fields = said
        line.send(number, api, version, self._with_ids(fields))

    def heard(self, for_s: float) -> Answers:
        """What was answered meanwhile."""
        sockets = {line.connection._socket: line for line in self._lines if line.waiting}
        ready, _, _ = select.select(list(sockets), [], [], for_s) if sockets else ((), (), ())
        found = [sockets[each].receive() for each in ready]
        for number, api, answer in found:
            if api == "JoinGroup" and answer["error_code"] in (0, ID_REQUIRED):
                name = self._names.setdefault(answer["member_id"], f"@{number}")
                self._ids.setdefault(name, answer["member_id"])
        return {number: (api, answer) for number, api, answer in found}

    def view(self) -> tuple[str, int]:
        """The state of the group, and how many members it has."""
        answer = self._tool.ask(
            "DescribeGroups", 5, groups=[self._group], include_authorized_operations=False
        )
        return answer["groups"][0]["group_state"], len(answer["groups"][0]["members"])

    def close(self) -> None:
        for line in self._lines:
            line.connection.close()
        self._tool.close()

    def _with_ids(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._with_ids(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._with_ids(one) for one in value]
        return self._ids.get(value, value) if isinstance(value, str) else value

    def named(self, value: Any, key: str = "") -> Any:
        """An answer with names for ids, and without what any order or words will do for."""
        if isinstance(value, dict):
            return {
                name: self.named(one, name) for name, one in value.items() if "throttle" not in name
            }
        if isinstance(value, list):
            return sorted((self.named(one) for one in value), key=repr)
        if isinstance(value, str):
            return self._names.get(value) or BORN.sub("<never heard>", value)
        return value


class Lockstep:
    """Two brokers that are told the same; `twist` changes what the second one is told, to see it noticed."""

    def __init__(
        self,
        bootstraps: tuple[str, str],
        group: str,
        twist: Callable[[Said], Said] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.group, self._patience_s = group, patience_s
        self._sides = tuple(Side(each, group) for each in bootstraps)
        self._twist = twist or (lambda said: said)
        self._ahead: Answers = {}  # what tidelog has answered and Kafka may never
        self._newly_ahead: Answers = {}
        self.number = 0
        self.known: list[str] = []  # names of members, newest last
        self.pending: set[str] = set()  # of those: who has an id and is no member yet
        self.leader = ""
        self.generation = 0
        self.is_over = False

    def close(self) -> None:
        for side in self._sides:
            side.close()

    def say(self, said: Said) -> Parting | None:
        """One step; where the brokers part in it, if they do."""
        self.number += 1
        ours = self._twist(said)
        self._sides[0].send(self.number, said)
        self._sides[1].send(self.number, ours)
        for side in self._sides:
            side.view()  # it may overtake what was just sent; nothing after it will
        answers: tuple[Answers, Answers] = ({}, {})
        deadline = time.monotonic() + self._patience_s
        while True:
            for side, found in zip(self._sides, answers, strict=True):
                found.update(side.heard(0.002))
            kafka, tidelog = self._compared(answers)
            views = tuple(side.view() for side in self._sides)
            has_answer = said[0] in ("JoinGroup", "SyncGroup") or self.number in kafka
            if has_answer and views[0] == views[1] and kafka == tidelog:
                for side, found in zip(self._sides, answers, strict=True):
                    found.update(side.heard(0))
                if (kafka, tidelog) == self._compared(answers):
                    break
            if kafka.keys() == tidelog.keys() and self._is_a_matter_of_choice(kafka, tidelog):
                self.is_over = True
                return None
            if time.monotonic() > deadline:
                return Parting(said, kafka, tidelog, (views[0], views[1]))
        self._ahead |= self._newly_ahead
        self._learn(kafka)
        return None

    def _compared(self, answers: tuple[Answers, Answers]) -> tuple[Answers, Answers]:
        """The answers of both with names, without those that only tidelog gives, or has given before."""
        kafka, tidelog = (
            {number: (api, side.named(answer)) for number, (api, answer) in found.items()}
            for side, found in zip(self._sides, answers, strict=True)
        )
        self._newly_ahead = {}
        for number, (api, answer) in list(tidelog.items()):
            is_late = number not in kafka and number < self.number
            if (
                is_late
                and api in ("JoinGroup", "SyncGroup")
                and answer["error_code"] in _NEVER_TOLD
            ):
                self._newly_ahead[number] = tidelog.pop(number)
        for number in [each for each in kafka if each in self._ahead]:
            if kafka[number] == self._ahead[number]:
                del kafka[number]
        return kafka, tidelog

    @staticmethod
    def _is_a_matter_of_choice(kafka: Answers, tidelog: Answers) -> bool:
        """Whether they part in who leads or in which protocol has won, and in what follows from that."""

        def without(answers: Answers) -> Any:
            return {
                number: {key: one for key, one in answer.items() if key not in _CHOSEN}
                if api == "JoinGroup"
                else answer
                for number, (api, answer) in answers.items()
            }

        return kafka != tidelog and without(kafka) == without(tidelog)

    def _learn(self, answers: Answers) -> None:
        for number, (api, answer) in answers.items():
            if api != "JoinGroup" or answer["error_code"] not in (0, ID_REQUIRED):
                continue
            name = answer["member_id"]
            if name == f"@{number}":
                self.known.append(name)
            if answer["error_code"] == ID_REQUIRED:
                self.pending.add(name)
            else:
                self.pending.discard(name)
                self.generation, self.leader = answer["generation_id"], answer["leader"]


class Members:
    """What is said next, by chance."""

    def __init__(self, seed: int, scene: Lockstep) -> None:
        self._random, self._scene = random.Random(seed), scene

    def steps(self, count: int) -> Iterator[Said]:
        """Requests, `count` times one or one of each member."""
        yield "OffsetCommit", 7, self._commit("", -1, None, "committed-b")
        kinds = OFTEN | SELDOM
        for _ in range(count):
            (kind,) = self._random.choices(list(kinds), list(kinds.values()))
            yield from self._requests(kind)

    def _requests(self, kind: str) -> Iterator[Said]:
        some, chance = self._random, self._random.random
        everybody = self._scene.known[-7:]
        who = (
            some.choice(everybody)
            if everybody and chance() < 0.93
            else some.choice(("", "made up"))
        )
        instance = some.choice((None, None, None, "one", "two"))
        if who in self._scene.pending:
            instance = None  # Kafka fails inside
        generation = self._scene.generation + some.choice((0,) * 17 + (-1, 1))
        if kind == "join":
            member = "" if chance() < 0.6 else who
            yield self._join(member, instance, some.choice(OFFERED))
        elif kind == "again":
            yield self._join(who, instance if chance() < 0.1 else None, some.choice(OFFERED[:2]))
        elif kind == "all":
            for each in everybody:
                yield self._join(each, None, OFFERED[0])
        elif kind == "beat":
            fields = self._of(who, generation, instance)
            yield "Heartbeat", 3, fields
        elif kind == "commit":
            by_a_tool = chance() < 0.3
            who, generation = ("", -1) if by_a_tool else (who, generation)
            yield "OffsetCommit", 7, self._commit(who, generation, instance, "committed-a")
        elif kind == "fetch":
            groups = [
                {
                    "group_id": self._scene.group,
                    "topics": None,
                    "member_id": None,
                    "member_epoch": -1,
                }
            ]
            yield "OffsetFetch", 9, {"groups": groups, "require_stable": chance() < 0.5}
        elif kind == "leave":
            yield "LeaveGroup", some.choice((0, 1, 2)), self._of(who)
        elif kind == "leave several":
            yield "LeaveGroup", some.choice((3, 4, 5)), self._leaving(who, instance)
        else:
            leader = self._scene.leader if kind == "assign" and self._scene.leader else who
            for each in everybody if kind == "all sync" else [leader]:
                yield self._sync(
                    each, generation, None if each in self._scene.pending else instance
                )

    def _of(
        self, who: str, generation: int | None = None, instance: str | None = None
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {"group_id": self._scene.group, "member_id": who}
        if generation is not None:
            fields |= {"generation_id": generation, "group_instance_id": instance}
        return fields

    def _join(self, who: str, instance: str | None, offered: Any) -> Said:
        version = self._random.choice((0, 1, 3, 4, 5, 6, 7, 8, 9, 9))
        return (
            "JoinGroup",
            version,
            {
                **self._of(who),
                "session_timeout_ms": LONG_MS,
                "rebalance_timeout_ms": LONG_MS,
                "group_instance_id": instance if version >= 5 else None,
                "protocol_type": self._random.choice(("consumer",) * 20 + ("connect", "")),
                "protocols": [{"name": name, "metadata": said} for name, said in offered],
                "reason": None,
            },
        )

    def _sync(self, who: str, generation: int, instance: str | None) -> Said:
        version = self._random.choice((0, 1, 3, 4, 5, 5))
        parts = [
            {"member_id": each, "assignment": f"{self._scene.number} {each}".encode()}
            for each in self._scene.known[-7:]
            if self._random.random() < 0.8
        ]
        return (
            "SyncGroup",
            version,
            {
                **self._of(who, generation, instance if version >= 3 else None),
                "protocol_type": self._random.choice(("consumer",) * 20 + ("connect", None)),
                "protocol_name": self._random.choice(("range",) * 10 + ("sticky",) * 4 + (None,)),
                "assignments": parts,
            },
        )

    def _leaving(self, who: str, instance: str | None) -> dict[str, Any]:
        going = [
            {"member_id": self._random.choice((who, "")), "group_instance_id": each, "reason": None}
            for each in (instance, None)[: self._random.choice((1, 2))]
        ]
        return {"group_id": self._scene.group, "members": going}

    def _commit(
        self, who: str, generation: int, instance: str | None, topic: str
    ) -> dict[str, Any]:
        partition = {
            "partition_index": 0,
            "committed_offset": self._scene.number,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        return {
            "group_id": self._scene.group,
            "member_id": who,
            "generation_id_or_member_epoch": generation,
            "group_instance_id": instance,
            "topics": [{"name": topic, "partitions": [partition]}],
        }


def played(
    bootstraps: tuple[str, str],
    seed: int,
    count: int = 40,
    twist: Callable[[Said], Said] | None = None,
    patience_s: float = PATIENCE_S,
) -> tuple[int, Parting | None]:
    """Play one conversation; how many requests were sent, and where the brokers parted."""
    scene = Lockstep(bootstraps, f"random-{seed}-{time.time_ns()}", twist, patience_s)
    try:
        for said in Members(seed, scene).steps(count):
            parting = scene.say(said)
            if parting is not None or scene.is_over:
                return scene.number, parting
    finally:
        scene.close()
    return scene.number, None

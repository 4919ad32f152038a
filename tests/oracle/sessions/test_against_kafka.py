"""The same conversation of fetch sessions with Apache Kafka 3.9.1 and with tidelog: the same answers.

One script of requests is played to each broker, with sessions by topic names (v12) and by topic ids
(v16); what each says is compared line by line. Session ids and topic ids are the broker's own.
"""

from __future__ import annotations

import time

import pytest

from tests.broker.asking import delete_records, fetch, produce, topic_id_of, values
from tests.oracle import recordset, wire
from tests.oracle.brokers import make_topics

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "3.9.1"
VERSIONS = (7, 12, 16)  # the first with sessions, the last with names, and one with ids
DEADLINE_S = 60
NO_ID = "00000000-0000-0000-0000-000000000000"
REFUSED = (3, 100)  # there is no such partition, or no such topic id
SECOND_S = 1.1  # tidelog looks once a second for log starts that have moved


class Script:
    """Plays a session, and notes what each fetch was answered."""

    def __init__(self, bootstrap: str, version: int) -> None:
        self.version = version
        self.connection = wire.Connection(bootstrap, timeout_s=DEADLINE_S)
        self.session, self.epoch = 0, 0
        self.ids: dict[str, str] = {}
        self.said: list[tuple[str, object]] = []

    def topic(self, name: str, partitions: int = 3) -> None:
        make_topics(self.connection, {name: partitions})
        self.ids[name] = topic_id_of(self.connection, name)

    def append(self, topic: str, partition: int, count: int = 1, size: int = 10) -> None:
        for _ in range(count):
            answer = produce(
                self.connection,
                topic,
                recordset.batch(values("x" * size)),
                partition=partition,
            )
            assert answer["error_code"] == 0, answer

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        assert delete_records(self.connection, topic, offset, partition=partition)[0] == 0

    def delete_topic(self, name: str) -> None:
        self.connection.ask("DeleteTopics", 5, topic_names=[name], timeout_ms=60_000)
        deadline = time.monotonic() + DEADLINE_S
        while fetch(self.connection, name, version=11)["error_code"] == 0:
            assert time.monotonic() < deadline, "the topic is still served"

    def _named(self, topic: str) -> dict[str, str]:
        if self.version >= 13:
            return {"topic": "", "topic_id": self.ids.get(topic, topic)}
        return {"topic": topic, "topic_id": NO_ID}

    def fetch(self, what, wanted=(), forget=(), *, session=None, epoch=None, version=None, **more):
        """`wanted` has (topic, partition, offset), `forget` (topic, partition)."""
        fields = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 50 << 20,
            "isolation_level": 0,
            "session_id": self.session if session is None else session,
            "session_epoch": self.epoch if epoch is None else epoch,
            "topics": [
                {
                    **self._named(topic),
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
                for topic, partition, offset in wanted
            ],
            "forgotten_topics_data": [
                {**self._named(topic), "partitions": [partition]} for topic, partition in forget
            ],
            "rack_id": "",
            **more,
        }
        answer = self.connection.ask("Fetch", version or self.version, **fields)
        names = {identity: name for name, identity in self.ids.items()}
        parts = [
            (
                names.get(topic["topic_id"], "?") if self.version >= 13 else topic["topic"],
                data["partition_index"],
                data["error_code"],
                data["high_watermark"],
                data["log_start_offset"],
                [one["offset"] for one in recordset.parse(data["records"] or b"")[0]],
            )
            for topic in answer["responses"]
            for data in topic["partitions"]
        ]
        # Kafka puts what it does not even begin to read behind the others.
        parts.sort(key=lambda part: part[2] in REFUSED)
        is_mine = answer["session_id"] == self.session
        self.said.append(
            (what, answer["error_code"], bool(answer["session_id"]), is_mine, parts),
        )
        return answer

    def next(self, what, wanted=(), forget=(), **more):
        """The next fetch of the session."""
        answer = self.fetch(what, wanted, forget, **more)
        if self.epoch == 0:
            self.session = answer["session_id"]
        self.epoch += 1
        return answer


def errors(script: Script, at: list[tuple[str, int, int]]) -> None:
    script.fetch("an id that nobody has", session=12345, epoch=1)
    script.fetch("no id, and an epoch", session=0, epoch=3)
    script.fetch("an epoch too large", epoch=script.epoch + 1)
    script.fetch("an epoch too small", epoch=script.epoch - 1)
    script.fetch("a negative epoch", epoch=-2)
    by_name = script.version < 13
    script.fetch("topics named in the other way", version=13 if by_name else 12)
    script.fetch("no session", at, session=0, epoch=-1)
    script.next("the session is still there")


def records(script: Script) -> None:
    at = [("t", 0, 0), ("t", 1, 0), ("u", 0, 0)]
    script.next("a new session", at)
    script.next("nothing is new")
    script.append("t", 1)
    script.next("records")
    script.next("the same records")
    script.next("it has them", [("t", 1, 1)])
    script.next("nothing again")
    script.next("an offset out of range", [("t", 1, 5)])
    script.next("still out of range")
    script.next("in range again", [("t", 1, 1)])
    script.next("nothing, after the error")
    errors(script, at)
    script.append("u", 0, 3)
    script.next("it reads from the middle", [("u", 0, 1)])
    script.next("it has all", [("u", 0, 3)])
    time.sleep(SECOND_S)
    script.delete_records("u", 0, 2)
    script.next("another log start")
    script.next("which is told once")


def turns(script: Script) -> None:
    for partition in range(3):
        script.append("t", partition, 3, size=1000)
    script.next("another one, added", [("t", 2, 0)], max_bytes=1200)
    for turn in range(6):
        script.next(f"turn {turn}", max_bytes=1200)
    script.next("one is forgotten", forget=[("t", 2)], max_bytes=1200)
    script.next("one that it does not have is forgotten", forget=[("u", 7)])
    script.next("named and forgotten", [("t", 2, 0)], [("t", 2)])
    script.next("two at their ends", [("t", 0, 3), ("t", 1, 4)])
    script.next("quiet")
    script.next("a partition that is not there", [("t", 9, 0)])
    script.next("which is told again")
    script.next("that one is forgotten", forget=[("t", 9)])


def deleted(script: Script) -> None:
    script.next("quiet, before the deletion")
    script.delete_topic("u")
    script.next("a topic was deleted")
    script.next("and is still told")
    make_topics(script.connection, {"u": 3})
    script.next("a new topic has its name")
    script.next("told again")
    script.next("the old one is forgotten", forget=[("u", 0)])
    if script.version >= 13:
        script.ids["u"] = topic_id_of(script.connection, "u")
        script.next("an id that no topic has", [("55555555-5555-5555-5555-555555555555", 0, 0)])
    script.next("the new one", [("u", 0, 0)])
    script.next("quiet, after it")


def ends(script: Script) -> None:
    first = script.session
    script.fetch("a full fetch closes it", [("t", 0, 3)], epoch=-1)
    script.fetch("it is gone", session=first)
    script.epoch, script.session = 0, 0
    script.next("a new session", [("t", 0, 3), ("t", 1, 4)])
    second = script.session
    script.fetch("a new session in its place", [("t", 0, 3)], epoch=0)
    script.fetch("that is gone, too", session=second)
    script.epoch, script.session = 0, 0
    script.next("a third", [("t", 0, 3)])
    script.fetch("without partitions it ends", forget=[("t", 0)])
    script.fetch("and is gone")
    script.epoch, script.session = 0, 0
    script.next("an empty one")
    script.next("ends with the next fetch")


def play(bootstrap: str, version: int) -> list[tuple[str, object]]:
    script = Script(bootstrap, version)
    with script.connection:
        for topic in ("t", "u"):
            script.topic(topic)
        for part in (records, turns, deleted, ends):
            part(script)
        for topic in ("t", "u"):
            script.delete_topic(topic)
    return script.said


def differences(kafka, tidelog):
    return [f"Kafka   {a}\ntidelog {b}" for a, b in zip(kafka, tidelog, strict=True) if a != b]


def test_sessions_are_kafkas(apache_kafka, tidelog, summarize):
    with apache_kafka(KAFKA) as theirs, tidelog() as ours:
        found = []
        for version in VERSIONS:
            kafka, own = (play(one.bootstrap, version) for one in (theirs, ours))
            differ = differences(kafka, own)
            summarize(f"fetch sessions v{version}", f"{len(own)} answers, {len(differ)} differ")
            found += [f"v{version}\n{each}" for each in differ]
    assert not found, "\n".join(found)

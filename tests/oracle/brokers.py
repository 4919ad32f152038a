"""The broker under test as a process of its own, and cases played against a running broker.

`Player` makes the topics that a list of cases needs on one broker, gives each case a partition of its own,
and plays them; the same list gives the same partitions on every broker.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.broker.asking import create, list_offset
from tests.broker.subject import Subject
from tests.oracle import recordset, wire
from tests.oracle.recordset import Rec
from tests.oracle.scenario import CLOSED, SILENT, Case, Context, play

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

START_TIMEOUT_S = 120
LEADERS_TIMEOUT_S = 90
PROBE = "settings-arrived"  # a topic that nothing else is done with
RECORD_LIST_TOO_LARGE = 10
WARM_UP = "warm up"  # the group and the transactional id that coordinators are asked about
TOPIC_ALREADY_EXISTS = 36
TRANSACTIONAL_ID_NOT_FOUND = 105
LATEST = -1
SMALL_BYTES = 20  # less than any batch has


class Tidelog(Subject):
    """The broker under test in a directory, from the construction on, with what all comparisons ask for."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        same = {"auto.create.topics.enable": "false", "log.retention.ms": "-1", "broker.id": "1"}
        super().__init__(directory / "data", {**same, **(settings or {})})

    def start(self) -> None:
        """Starts it again, as Apache Kafka is started."""
        self.restart()


def partition_names(cases: Sequence[Case]) -> list[str]:
    """The directory of each case's first partition, the same on every broker."""
    places: Counter[str] = Counter()
    names = []
    for case in cases:
        names.append(f"{case.topic}-{places[case.topic]}")
        places[case.topic] += case.partitions
    return names


class Player:
    """Plays cases against one broker; `old` speaks as a client of 0.10.2 does.

    `log_dir` is where the broker keeps its partition directories, for cases that look there.
    """

    def __init__(self, bootstrap: str, log_dir: Path | None = None, *, old: bool = False) -> None:
        self.bootstrap = bootstrap
        self.log_dir = log_dir
        self.old = old

    def prepare(
        self, cases: Sequence[Case], topics: Mapping[str, Mapping[str, str]]
    ) -> dict[str, str]:
        """Make the topics of `cases`, one partition for each case; their ids by name."""
        wanted: Counter[str] = Counter()
        for case in cases:
            wanted[case.topic] += case.partitions
        requests = [
            {
                "name": name,
                "num_partitions": count,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in topics[name].items()],
            }
            for name, count in wanted.items()
        ]
        with wire.Connection(self.bootstrap, timeout_s=60) as connection:
            answer = connection.ask(
                "CreateTopics", 1, topics=requests, timeout_ms=60_000, validate_only=False
            )
            refused = [topic for topic in answer["topics"] if topic["error_code"]]
            if refused:
                raise AssertionError(f"topics refused by {self.bootstrap}: {refused}")
            wait_for_leaders(connection, wanted)
            if self.old:
                return {}  # topic ids came later
            names = [
                {"name": name, "topic_id": "00000000-0000-0000-0000-000000000000"}
                for name in wanted
            ]
            answer = connection.ask("Metadata", 12, topics=names, allow_auto_topic_creation=False)
        return {topic["name"]: topic["topic_id"] for topic in answer["topics"]}

    def play(
        self, cases: Sequence[Case], topics: Mapping[str, Mapping[str, str]]
    ) -> list[list[Any]]:
        """Canonical answers, one list for each case."""
        ids = self.prepare(cases, topics)
        answers = []
        with wire.Connection(self.bootstrap) as connection:
            for case, name in zip(cases, partition_names(cases), strict=True):
                partition = int(name.rsplit("-", 1)[1])
                context = Context(case.topic, partition, ids, log_dir=self.log_dir, settle=settle)
                try:
                    answers.append(play(case, connection, context))
                except Exception as error:
                    error.add_note(f"in case {case.name!r}")
                    raise
        return answers


def settle(connection: wire.Connection, api: str, fields: Mapping[str, Any], answer: Any) -> None:
    """Wait until what a request changed is there: a KRaft broker answers before it is itself told."""
    if answer in (None, CLOSED, SILENT) or fields.get("validate_only"):
        return
    results = {
        "CreateTopics": "topics",
        "CreatePartitions": "results",
        "AlterClientQuotas": "entries",
    }.get(api, "responses")
    if any(not one["error_code"] for one in answer[results]):
        wait_for_changes(connection)


def wait_for_changes(connection: wire.Connection) -> None:
    """Wait until a broker lives by every change of topics and settings that it has answered.

    Nothing tells when it does. But changes arrive in order, at most several at once: when two more have been
    seen, the second made after the first was seen, all older ones have arrived.
    """
    topic = {"name": PROBE, "num_partitions": 1, "replication_factor": 1}
    topics = [topic | {"assignments": [], "configs": []}]
    answer = connection.ask(
        "CreateTopics", 2, topics=topics, timeout_ms=60_000, validate_only=False
    )
    assert answer["topics"][0]["error_code"] in (0, TOPIC_ALREADY_EXISTS), answer
    wait_for_leaders(connection, {PROBE: 1})
    _limit_probe(connection, 0, str(SMALL_BYTES), until=RECORD_LIST_TOO_LARGE)
    _limit_probe(connection, 1, None, until=0)


def _limit_probe(
    connection: wire.Connection, operation: int, value: str | None, until: int
) -> None:
    """Change how large a batch of the topic may be, and write one until it is answered accordingly."""
    change = {"name": "max.message.bytes", "config_operation": operation, "value": value}
    resources = [{"resource_type": 2, "resource_name": PROBE, "configs": [change]}]
    answer = connection.ask("IncrementalAlterConfigs", 0, resources=resources, validate_only=False)
    assert answer["responses"][0]["error_code"] == 0, answer
    data = [{"index": 0, "records": recordset.batch([Rec(0, b"small enough, or not")])}]
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = connection.ask(
            "Produce",
            7,
            transactional_id=None,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[{"name": PROBE, "partition_data": data}],
        )
        code = answer["responses"][0]["partition_responses"][0]["error_code"]
        if code == until:
            return
        assert code in (0, RECORD_LIST_TOO_LARGE), answer
        time.sleep(0.002)  # a foreign process can only be polled
    raise AssertionError(f"a change of a setting never arrived: {answer}")


def wait_for_markers(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until every transaction has ended in the logs, too: its client is told before that."""
    deadline = time.monotonic() + START_TIMEOUT_S
    with wire.Connection(bootstrap) as connection:
        for index in range(partitions):
            while True:
                stable, end = (
                    list_offset(connection, topic, LATEST, partition=index, isolation_level=level)
                    for level in (1, 0)
                )
                assert stable["error_code"] == end["error_code"] == 0, (stable, end)
                if stable["offset"] == end["offset"]:
                    break
                assert time.monotonic() < deadline, f"{topic}-{index}: a transaction goes on"
                time.sleep(0.05)  # a foreign process can only be polled


def wait_for_coordinators(bootstrap: str) -> None:
    """Make a broker create the topics of its coordinators, which it does when first asked.

    A broker is named as a coordinator before it has read what it coordinates. It has when it answers.
    """
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    with wire.Connection(bootstrap) as connection:
        for kind in (0, 1):
            while not _has_coordinator(connection, kind):
                if time.monotonic() > deadline:
                    raise AssertionError("the broker never had a coordinator")
                time.sleep(0.1)


def _has_coordinator(connection: wire.Connection, kind: int) -> bool:
    """Whether there is a coordinator of groups (0) or transactions (1), which has read its partition."""
    if connection.ask("FindCoordinator", 3, key=WARM_UP, key_type=kind)["error_code"]:
        return False
    if kind == 0:
        (group,) = connection.ask("DescribeGroups", 4, groups=[WARM_UP])["groups"]
        return bool(group["error_code"] == 0)
    asked = connection.ask("DescribeTransactions", 0, transactional_ids=[WARM_UP])
    code = asked["transaction_states"][0]["error_code"]
    return code in (0, TRANSACTIONAL_ID_NOT_FOUND)


def make_topics(
    connection: wire.Connection, partitions: Mapping[str, int], **settings: str
) -> None:
    """Make topics of so many partitions, all with the same settings, and wait until they answer."""
    for name, count in partitions.items():
        create(connection, name, count, **settings)
    wait_for_leaders(connection, partitions)


def wait_for_leaders(connection: wire.Connection, partitions: Mapping[str, int]) -> None:
    """Wait until every partition answers; a KRaft broker names a leader before it has become it."""
    asked = [
        {
            "name": name,
            "partitions": [{"partition_index": i, "timestamp": -1} for i in range(count)],
        }
        for name, count in partitions.items()
    ]
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = connection.ask("ListOffsets", 1, replica_id=-1, topics=asked)
        codes = Counter(
            one["error_code"] for topic in answer["topics"] for one in topic["partitions"]
        )
        if set(codes) == {0}:
            return
        time.sleep(0.05)
    raise AssertionError(f"some partitions never got a leader; errors and how many: {dict(codes)}")

"""Groups in the matrix: members come and go, every record once, commits that others read.

One group of a client: its first member takes all partitions, the others come and each takes some, they
go and the first takes all again; it goes too, comes back and goes on where it had committed; where the client
can, it goes back to a time. Between these steps records are written, and all must be handed out, none
twice: a member tells of a record once its commit succeeded. The offsets are then asked of the broker by
somebody else. What must be shared follows from the number of members alone.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.session import ANSWER_TIMEOUT_S, DriverError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from tests.clients.clients import Client
    from tests.clients.report import Report
    from tests.clients.session import Session

    Place = tuple[str, int]

PARTITIONS = 4
WAVE = 6  # records per partition, written at each step
REWIND_TO = 9  # the offset whose time a member goes back to
FIRST_MS, STEP_MS = 1_700_000_000_000, 1000  # times of records: by offset
POLL_MS = 400
STEP_TIMEOUT_S = 150.0
COMMITTED = (7, 1, 2**40 + 5)  # by partition; nothing is committed in one more
# (Not 0: kafka-node shows that as nothing.)


class Different(Exception):
    """A group did not do what it must; the message says what."""


class Member:
    """One member: the driver it lives in, what it owns and what it was handed."""

    def __init__(self, client: Client, session: Session) -> None:
        self.client = client
        self.session = session
        self.owned: set[Place] = set()
        self.records: list[tuple[int, int, str]] = []  # partition, offset, value

    def join(self, group: str, topic: str, assignor: str | None) -> None:
        self.ask(op="join", group=group, topic=topic, assignor=assignor)

    def poll(self) -> None:
        (answer,) = self.ask(op="poll", ms=POLL_MS)
        self.owned = {(place["topic"], place["partition"]) for place in answer["assignment"]}
        self.take(answer)

    def leave(self) -> None:
        for answer in self.ask(op="leave"):
            self.take(answer)
        self.owned = set()

    def take(self, answer: dict[str, Any]) -> None:
        self.records += [(r["partition"], r["offset"], r["value"]) for r in answer["records"]]

    def ask(self, **command: Any) -> list[dict[str, Any]]:
        try:
            return self.session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            raise Different(f"{self.client.name}, {command['op']}: {error}") from error


class Group:
    """One group on one topic: its members, what was written, what was handed out."""

    def __init__(self, server: str, name: str, members: Sequence[Member]) -> None:
        self.server = server
        self.name = name
        self.topic = f"topic-of-{name}"
        self.members = members
        self.present: list[Member] = []
        self.written = 0  # per partition
        self.all = {(self.topic, number) for number in range(PARTITIONS)}

    def run(self, assignor: str | None, *, rewinds: bool) -> int:
        """Everything the group must do; how many records it was handed. Raises Different."""
        first, *others = self.members
        self.write()
        self.join(first, assignor)
        self.wait("the first member has all", lambda: first.owned == self.all)
        for number, member in enumerate(others, 2):
            self.join(member, assignor)
            self.wait(f"{number} members share", self.shared)
        self.write()
        for member in others:
            member.leave()
            self.present.remove(member)
        self.wait("the rest have all again", self.shared)
        self.write()
        self.wait("one is left", self.shared)
        self.leave(first)
        self.write()
        self.join(first, assignor)
        self.wait("it is back", lambda: first.owned == self.all)
        handed = sum(len(member.records) for member in self.members)
        if rewinds:
            handed += self.rewind(first)
        self.leave(first)
        return handed

    def join(self, member: Member, assignor: str | None) -> None:
        member.join(self.name, self.topic, assignor)
        self.present.append(member)

    def leave(self, member: Member) -> None:
        member.leave()
        self.present.remove(member)
        ends = dict.fromkeys(range(PARTITIONS), self.written)
        if (found := committed(self.server, self.name, self.topic, PARTITIONS)) != ends:
            raise Different(f"committed are {found}, not {ends}")

    def shared(self) -> bool:
        """Whether every partition has one owner and every member at least one."""
        owned = Counter(place for member in self.present for place in member.owned)
        return owned == Counter(self.all) and all(member.owned for member in self.present)

    def write(self) -> None:
        """One more wave; idempotent, so that no record is there twice."""
        options = {"bootstrap.servers": self.server, "enable.idempotence": True, "log_level": 0}
        producer = Producer(options)
        for offset in range(self.written, self.written + WAVE):
            for partition in range(PARTITIONS):
                producer.produce(
                    self.topic,
                    value_of(self.topic, partition, offset),
                    partition=partition,
                    timestamp=FIRST_MS + offset * STEP_MS,
                )
        if producer.flush(60):
            raise Different("the records could not be written")
        self.written += WAVE

    def wait(self, what: str, owned: Callable[[], bool]) -> None:
        """Until the partitions are owned as they must and all that was written was handed out."""
        deadline = time.monotonic() + STEP_TIMEOUT_S
        working: dict[Member, Future[None]] = {}
        with ThreadPoolExecutor(len(self.present)) as pool:
            while True:
                # Each at its own pace: one may stay in a poll until the others have joined again.
                for member in self.present:
                    if member not in working:
                        working[member] = pool.submit(member.poll)
                futures.wait(working.values(), return_when=futures.FIRST_COMPLETED)
                take_finished(working)
                if owned() and self.complete():
                    futures.wait(working.values(), timeout=2 * POLL_MS / 1000)
                    take_finished(working)
                    if not working and self.complete() and owned():
                        return
                if time.monotonic() > deadline:
                    raise Different(f"{what}: not in {STEP_TIMEOUT_S:.0f} s; {self.words()}")

    def complete(self) -> bool:
        """Whether every record was handed out; Different if one was twice, or was another."""
        records = [record for member in self.members for record in member.records]
        counts = Counter((partition, offset) for partition, offset, _ in records)
        if twice := sorted(place for place, count in counts.items() if count > 1):
            raise Different(f"handed out twice: {twice[:4]}, {len(twice)} in all")
        for partition, offset, value in records:
            if value != value_of(self.topic, partition, offset):
                raise Different(f"{value!r} at {partition}/{offset}")
        return len(counts) == PARTITIONS * self.written

    def rewind(self, member: Member) -> int:
        """Have a member go back to a time; how many records it was handed from there."""
        member.ask(op="rewind", timestamp=FIRST_MS + REWIND_TO * STEP_MS - 1)
        before, member.records = member.records, []
        expected = [(p, o) for p in range(PARTITIONS) for o in range(REWIND_TO, self.written)]
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while len(member.records) < len(expected) and time.monotonic() < deadline:
            member.poll()
        found = sorted((partition, offset) for partition, offset, _ in member.records)
        member.records = before
        if found != expected:
            raise Different(f"back at a time it was handed {len(found)}, not {len(expected)}")
        return len(found)

    def words(self) -> str:
        """Who owns how many, and how much is missing."""
        owners = ", ".join(f"{m.client.name} {len(m.owned)}" for m in self.present)
        handed = sum(len(member.records) for member in self.members)
        return f"partitions: {owners}; records: {handed} of {PARTITIONS * self.written}"


def take_finished(working: dict[Member, Future[None]]) -> None:
    """Take the polls that are done; what they raised is raised."""
    for member in list(working):
        if working[member].done():
            working.pop(member).result()


def value_of(topic: str, partition: int, offset: int) -> str:
    """What stands in a record of a group's topic."""
    return f"{topic} {partition} {offset}"


def committed(server: str, group: str, topic: str, partitions: int) -> dict[int, int | None]:
    """A group's committed offsets by partition, asked by a client that is nowhere under test."""
    client = Consumer({"bootstrap.servers": server, "group.id": group, "log_level": 0})
    try:
        places = client.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=60)
        return {place.partition: None if place.offset < 0 else place.offset for place in places}
    finally:
        client.close()


def try_group(server: str, name: str, members: Sequence[Member], report: Report) -> None:
    """Run one group; the records handed out, or the difference, go to the report."""
    kinds = {member.client.name for member in members}
    assignor = "range" if len(kinds) > 1 else None
    try:
        group = Group(server, name, members)
        report.groups[name] = group.run(assignor, rewinds=members[0].client.rewinds)
    except Different as reason:
        report.problems.append(f"{name}: {reason}")


def commits_topic(client: Client) -> str:
    """The group, and the topic, of a client's commits."""
    return "commits-of-" + client.slug


def commit(session: Session, client: Client, report: Report) -> None:
    """Have a client commit offsets of a group without being its member."""
    topic = commits_topic(client)
    offsets = [
        {"topic": topic, "partition": number, "offset": offset}
        for number, offset in enumerate(COMMITTED)
    ]
    try:
        session.ask({"op": "commit", "group": topic, "offsets": offsets}, ANSWER_TIMEOUT_S)
    except DriverError as error:
        report.problems.append(f"{client.name} commits: {error}")


def read_commits(
    session: Session, client: Client, writers: Sequence[Client], report: Report
) -> None:
    """Have a client ask for what every other committed."""
    expected = [*COMMITTED, None]
    for writer in writers:
        topic = commits_topic(writer)
        places = [{"topic": topic, "partition": number} for number in range(len(expected))]
        command = {"op": "committed", "group": topic, "partitions": places}
        try:
            answers = session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{client.name} asks for {topic}: {error}")
            continue
        found = {answer["partition"]: answer["offset"] for answer in answers}
        if found == dict(enumerate(expected)):
            report.commits[writer.name, client.name] += len(expected)
        else:
            report.problems.append(f"{client.name} asks for {topic}: {found}, not {expected}")

"""Every state of a transactional id, and every call that a producer or a broker can make on it.

A cell is one state and one call. `Stage.play` brings an id of its own into the state, makes the call
once, and returns what was answered and what the coordinator says of the id after that. Producer ids and
epochs are the broker's own: they are told as what has become of those that the id had.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.broker.coordinators.transactions.requests import NONE, Given, Transactional, mark
from tests.oracle.brokers import make_topics
from tests.oracle.transactions import forging
from tests.oracle.transactions.forging import LAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.oracle import wire

LEVEL_2 = "4.1.1"
"""Apache Kafka's release that follows transaction.version 2."""
CONCURRENT, NOT_KNOWN = 51, 105
PREPARED = ("PrepareCommit", "PrepareAbort")
DEADLINE_S = 60
TIMEOUT_MS = 600_000  # nothing times out while the table is played
_strangers = itertools.count(6_000_000)  # producer ids that no broker has given


class Cell(NamedTuple):
    """A state and a call, by their names."""

    state: str
    call: str


class Subject(Transactional):
    """An id in one of the states, with the producer id and epoch that it had before."""

    before: Given | None = None

    def of(self, who: str) -> Given:
        """The producer id and epoch that somebody names."""
        producer_id, epoch = self.given
        return {
            "current": self.given,
            "before": self.before or Given(producer_id, epoch - 1),
            "older": Given(producer_id, epoch - 2),
            "newer": Given(producer_id, min(epoch + 1, 32_767)),
            "another": Given(producer_id + 3_000_000, epoch),
            "nobody": Given(-1, -1),
            "no epoch": Given(producer_id, -1),
            "no id": Given(-1, epoch),
        }[who]

    def named(self, who: str) -> Transactional:
        """A producer that says it is somebody."""
        made = Transactional(self.connection, self.id)
        made.given, made.sequences = self.of(who), dict(self.sequences)
        return made

    def relation(self, given: Given) -> tuple[str, int]:
        """What has become of the producer id, and of the epoch."""
        if given.producer_id == -1:
            return "none", given.epoch
        if given.producer_id == self.given.producer_id:
            return "same", given.epoch - self.given.epoch
        return "new", given.epoch


class Stage:
    """One broker, a topic with two partitions, and as many ids as are needed."""

    def __init__(self, connection: wire.Connection, topic: str) -> None:
        self.connection, self.topic = connection, topic
        self._numbers = itertools.count()
        self._forged = {epoch: iter(ids) for epoch, ids in forging.all_forged().items()}

    def prepare(self) -> None:
        """Makes the topic."""
        make_topics(self.connection, {self.topic: 2})
        for state in PREPARED:  # nothing of the table is the first of its kind that a broker does
            self.play(Cell(state, "ListTransactions"))

    def play(self, cell: Cell) -> dict[str, Any]:
        """The answer of a cell, and what follows."""
        state, call = STATES[cell.state], CALLS[cell.call]
        subject = self._subject(state)
        for step in state.steps:
            step(self, subject)
        answer = call.make(self, subject)
        after = self.settled(subject, state)
        return {"answer": answer, "after": after}

    def _subject(self, state: StateOf) -> Subject:
        if state.epoch is None:
            return Subject(self.connection, f"{self.topic}-{next(self._numbers)}")
        forged = next(self._forged[state.epoch])
        subject = Subject(self.connection, forged.transactional_id)
        subject.given = forged.given
        return subject

    def settled(self, subject: Subject, state: StateOf) -> dict[str, Any]:
        """What the coordinator says of the id when nothing is under way any more."""
        moving = () if state.is_stuck else (*PREPARED, *(("Ongoing",) if state.times_out else ()))
        told = self.until(subject, lambda told: told["transaction_state"] not in moving)
        if told["error_code"] == NOT_KNOWN:
            return {"error": NOT_KNOWN}
        given = Given(told["producer_id"], told["producer_epoch"])
        return {
            "error": told["error_code"],
            "state": told["transaction_state"],
            "timeout": told["transaction_timeout_ms"],
            "given": subject.relation(given),
            "is begun": told["transaction_start_time_ms"] >= 0,
            "partitions": sorted(
                (self.role(each["topic"]), index)
                for each in told["topics"]
                for index in each["partitions"]
            ),
        }

    def role(self, topic: str) -> str:
        """What a topic is here."""
        return "data" if topic == self.topic else topic

    def until(self, subject: Subject, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What the coordinator says once it is as wanted."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(told := subject.described()):
            assert time.monotonic() < deadline, told
            time.sleep(0.002)  # a foreign process can only be polled
        return told

    def await_state(self, subject: Subject, *names: str) -> None:
        """Waits until the id is in a state."""
        self.until(subject, lambda told: told["transaction_state"] in names)


# --- states ----------------------------------------------------------------------------------------


class StateOf(NamedTuple):
    """How an id comes into a state.

    `epoch` is that of an id that was forged. Nothing moves in a state that `is_stuck`; what `times_out`
    is open for a moment only.
    """

    steps: tuple[Any, ...]
    epoch: int | None = None
    is_stuck: bool = False
    times_out: bool = False
    since: str = "3.9.1"  # Apache Kafka's release that can be brought there


def begin(_: Stage, one: Subject) -> None:
    """The first InitProducerId, once the coordinator is there: Kafka may have been restarted."""
    one.first_init(timeout_ms=TIMEOUT_MS)


def bump(_: Stage, one: Subject) -> None:
    """InitProducerId that names what was given."""
    before = one.given
    assert one.init(known=before, timeout_ms=TIMEOUT_MS) == NONE
    one.before = before


def renew(_: Stage, one: Subject) -> None:
    """InitProducerId that names nothing."""
    before = one.given
    assert one.init(timeout_ms=TIMEOUT_MS) == NONE
    one.before = before


def unknown(_: Stage, one: Subject) -> None:
    """Nobody has asked for the id.

    Each has a producer id of its own: a partition knows one to which a marker was written before.
    """
    one.given = Given(next(_strangers), 3)


def add(stage: Stage, one: Subject) -> None:
    """The transaction begins, without a record."""
    assert one.add(stage.topic, 0) == [NONE]


def send(stage: Stage, one: Subject) -> None:
    """A record, and offsets of a group."""
    assert one.send(stage.topic, "sent") == NONE
    assert one.add_group(group_of(one)) == NONE
    deadline = time.monotonic() + DEADLINE_S
    while one.commit_offsets(group_of(one), stage.topic, {0: 1}) != [NONE]:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # a foreign process can only be polled


def send_adding(stage: Stage, one: Subject) -> None:
    """The transaction begins with its first record (transaction.version 2)."""
    assert one.send(stage.topic, "sent", version=12) == NONE


def end(*, commit: bool, version: int) -> Any:
    """The transaction ends, and its markers are written."""

    def step(stage: Stage, one: Subject) -> None:
        before = one.given
        assert one.end(commit=commit, version=version) == NONE
        one.before = before if version >= 5 else None
        stage.await_state(one, "CompleteCommit" if commit else "CompleteAbort")

    return step


def fenced(stage: Stage, one: Subject) -> None:
    """Another producer asked for the id, and so the transaction was aborted."""
    assert Transactional(one.connection, one.id).init(timeout_ms=TIMEOUT_MS) == CONCURRENT
    stage.await_state(one, "CompleteAbort")


def timed_out(stage: Stage, one: Subject) -> None:
    """Nobody ended the transaction in time."""
    assert one.init(timeout_ms=1) == NONE
    assert one.add(stage.topic, 0) == [NONE]
    stage.await_state(one, "CompleteAbort")


def stuck(*, commit: bool) -> Any:
    """The transaction ends, but its marker cannot be written: its partition has a later epoch."""

    def step(stage: Stage, one: Subject) -> None:
        assert one.add(stage.topic, 0) == [NONE]
        later = Given(one.given.producer_id, one.given.epoch + 5)
        assert write_marker(stage, later, commit=False, coordinator_epoch=0) == NONE
        assert one.end(commit=commit, version=4) == NONE
        stage.await_state(one, "PrepareCommit" if commit else "PrepareAbort")

    return step


STATES: dict[str, StateOf] = {
    "unknown": StateOf((unknown,)),
    "Empty": StateOf((begin,)),
    "Empty, bumped": StateOf((begin, bump)),
    "Empty, renewed": StateOf((begin, renew)),
    "Ongoing": StateOf((begin, renew, add)),
    "Ongoing, sent": StateOf((begin, renew, add, send)),
    "Ongoing, added by the broker": StateOf((begin, renew, send_adding), since=LEVEL_2),
    "CompleteCommit, version 0": StateOf((begin, renew, add, send, end(commit=True, version=4))),
    "CompleteAbort, version 0": StateOf((begin, renew, add, send, end(commit=False, version=4))),
    "CompleteCommit, version 2": StateOf(
        (begin, send_adding, end(commit=True, version=5)), since=LEVEL_2
    ),
    "CompleteAbort, version 2": StateOf(
        (begin, send_adding, end(commit=False, version=5)), since=LEVEL_2
    ),
    "CompleteAbort of nothing": StateOf((begin, end(commit=False, version=5)), since=LEVEL_2),
    "Empty after an end": StateOf(
        (begin, send_adding, end(commit=True, version=5), bump), since=LEVEL_2
    ),
    "PrepareCommit": StateOf((begin, renew, stuck(commit=True)), is_stuck=True),
    "PrepareAbort": StateOf((begin, renew, stuck(commit=False)), is_stuck=True),
    "CompleteAbort, fenced": StateOf((begin, renew, add, fenced)),
    "CompleteAbort, timed out": StateOf((timed_out,), times_out=True),
    "Empty, last epoch": StateOf((), LAST),
    "Ongoing, last epoch": StateOf((add, send), LAST),
    "CompleteCommit, last epoch": StateOf((add, end(commit=True, version=4)), LAST),
    "CompleteCommit, new producer id": StateOf(
        (add, end(commit=True, version=5)), LAST, since=LEVEL_2
    ),
    "CompleteAbort, new producer id": StateOf(
        (add, end(commit=False, version=5)), LAST, since=LEVEL_2
    ),
    "Empty, new producer id": StateOf((bump,), LAST),
    "Ongoing, last epoch but one": StateOf((add,), LAST - 1),
    "CompleteCommit, at the last epoch": StateOf(
        (add, end(commit=True, version=5)), LAST - 1, since=LEVEL_2
    ),
}


# --- calls -----------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One request of a version."""

    api: str
    version: int
    make: Callable[[Stage, Subject], Any]


def group_of(one: Transactional) -> str:
    """The group whose offsets an id sends."""
    return f"group of {one.id}"


def _init(version: int, who: str, timeout_ms: int = TIMEOUT_MS + 1) -> Any:
    def make(stage: Stage, one: Subject) -> Any:
        known = one.of(who)
        answer = stage.connection.ask(
            "InitProducerId",
            version,
            transactional_id=one.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )
        given = Given(answer["producer_id"], answer["producer_epoch"])
        return answer["error_code"], one.relation(given)

    return make


def _add(version: int, who: str, *partitions: int) -> Any:
    return lambda stage, one: sorted(one.named(who).add(stage.topic, *partitions, version=version))


def _verify(who: str, *partitions: int, only: bool) -> Any:
    return lambda stage, one: sorted(one.named(who).verified(stage.topic, *partitions, only=only))


def _add_group(version: int, who: str) -> Any:
    return lambda _, one: one.named(who).add_group(group_of(one), version)


def _commit_offsets(version: int, who: str) -> Any:
    def make(stage: Stage, one: Subject) -> Any:
        named = one.named(who)
        return named.commit_offsets(group_of(one), stage.topic, {0: 7}, version=version)

    return make


def _end(version: int, who: str, *, commit: bool) -> Any:
    def make(stage: Stage, one: Subject) -> Any:
        said = one.of(who)
        answer = stage.connection.ask(
            "EndTxn",
            version,
            transactional_id=one.id,
            producer_id=said.producer_id,
            producer_epoch=said.epoch,
            committed=commit,
        )
        if version < 5:
            return answer["error_code"]
        given = Given(answer["producer_id"], answer["producer_epoch"])
        return answer["error_code"], one.relation(given)

    return make


def _send(version: int, who: str, partition: int = 0, **lies: Any) -> Any:
    def make(stage: Stage, one: Subject) -> Any:
        named = one.named(who)
        return named.send(stage.topic, "late", partition=partition, version=version, **lies)

    return make


def _send_plainly(version: int, who: str) -> Any:
    """A batch that is of no transaction, of the same producer."""

    def make(stage: Stage, one: Subject) -> Any:
        named = one.named(who)
        named.id = None
        return named.send(stage.topic, "plain", version=version, attributes=0)

    return make


def write_marker(stage: Stage, given: Given, *, commit: bool, coordinator_epoch: int) -> int:
    """Writes a marker as another coordinator would; its error."""
    (code,) = mark(
        stage.connection, stage.topic, given, 0, commit=commit, coordinator_epoch=coordinator_epoch
    )
    return code


def coordinator_epoch_of(stage: Stage, given: Given) -> int:
    """The epoch that an operator names, who ends a transaction: that of the last marker, or 0."""
    asked = [{"name": stage.topic, "partition_indexes": [0]}]
    answer = stage.connection.ask("DescribeProducers", 0, topics=asked)
    producers = answer["topics"][0]["partitions"][0]["active_producers"]
    known = {each["producer_id"]: each["coordinator_epoch"] for each in producers}
    return max(known.get(given.producer_id, 0), 0)


def _mark(who: str, *, commit: bool) -> Any:
    def make(stage: Stage, one: Subject) -> Any:
        given = one.of(who)
        epoch = coordinator_epoch_of(stage, given)
        return write_marker(stage, given, commit=commit, coordinator_epoch=epoch)

    return make


def _listed(stage: Stage, one: Subject) -> Any:
    """Whether ListTransactions finds the id by the state that it says it is in."""
    state = one.described()["transaction_state"]
    answer = stage.connection.ask(
        "ListTransactions",
        0,
        state_filters=[state] if state else ["Dead"],
        producer_id_filters=[one.given.producer_id],
    )
    told = [each["transaction_state"] for each in answer["transaction_states"]]
    return answer["error_code"], told, answer["unknown_state_filters"]


PRODUCERS = ("current", "before", "older", "newer", "another")


def _all_calls() -> Iterator[tuple[str, Call]]:
    for version in (0, 1, 2, 3, 4, 5):
        who = ("nobody",) if version < 3 else (*PRODUCERS, "nobody", "no epoch", "no id")
        for each in who:
            yield (
                f"InitProducerId v{version} {each}",
                Call("InitProducerId", version, _init(version, each)),
            )
    for timeout_ms in (0, 900_001):
        make = _init(5, "current", timeout_ms)
        yield f"InitProducerId v5, timeout {timeout_ms}", Call("InitProducerId", 5, make)
    for version, each in itertools.product((0, 1, 2, 3), PRODUCERS):
        name = f"AddPartitionsToTxn v{version} {each}"
        yield name, Call("AddPartitionsToTxn", version, _add(version, each, 0))
    for partitions in ((1,), (0, 1), (0, 9)):
        name = f"AddPartitionsToTxn v3, partitions {partitions}"
        yield name, Call("AddPartitionsToTxn", 3, _add(3, "current", *partitions))
    for only, each in itertools.product((True, False), PRODUCERS):
        name = f"AddPartitionsToTxn v5, only {only}, {each}"
        yield name, Call("AddPartitionsToTxn", 5, _verify(each, 0, only=only))
    for only, partitions in itertools.product((True, False), ((1,), (0, 1), (0, 9))):
        name = f"AddPartitionsToTxn v5, only {only}, partitions {partitions}"
        yield name, Call("AddPartitionsToTxn", 5, _verify("current", *partitions, only=only))
    for version, each in itertools.product(range(5), PRODUCERS):
        name = f"AddOffsetsToTxn v{version} {each}"
        yield name, Call("AddOffsetsToTxn", version, _add_group(version, each))
    for version, each in itertools.product(range(6), PRODUCERS):
        name = f"TxnOffsetCommit v{version} {each}"
        yield name, Call("TxnOffsetCommit", version, _commit_offsets(version, each))
    for version, each, commit in itertools.product(range(6), PRODUCERS, (True, False)):
        name = f"EndTxn v{version} {'commit' if commit else 'abort'} {each}"
        yield name, Call("EndTxn", version, _end(version, each, commit=commit))
    for version, each in itertools.product((3, 9, 10, 11, 12), PRODUCERS):
        yield f"Produce v{version} {each}", Call("Produce", version, _send(version, each))
    for version in (10, 11, 12):
        make = _send(version, "current", 1)
        yield f"Produce v{version} to the other partition", Call("Produce", version, make)
        make = _send(version, "current", base_sequence=5)
        yield f"Produce v{version} with a gap", Call("Produce", version, make)
        make = _send_plainly(version, "current")
        yield f"Produce v{version} without a transaction", Call("Produce", version, make)
    for each, commit in itertools.product(("current", "before", "newer"), (True, False)):
        name = f"WriteTxnMarkers {'commit' if commit else 'abort'} {each}"
        yield name, Call("WriteTxnMarkers", 1, _mark(each, commit=commit))
    yield "ListTransactions", Call("ListTransactions", 0, _listed)


CALLS: dict[str, Call] = dict(_all_calls())
NEWEST = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
"""The newest versions in which a client follows transaction.version 0."""


def cells(kafka: str) -> list[Cell]:
    """The whole table of a release."""
    return [
        Cell(state, call)
        for (state, told), (call, asked) in itertools.product(STATES.items(), CALLS.items())
        if kafka == LEVEL_2
        or (told.since != LEVEL_2 and asked.version <= NEWEST.get(asked.api, asked.version))
    ]


def is_essential(cell: Cell) -> bool:
    """Whether a cell is compared in every run: how transactions begin and end, in the newest versions."""
    call = CALLS[cell.call]
    newest = {"InitProducerId": (5,), "EndTxn": (4, 5)}
    return call.version in newest.get(call.api, ())

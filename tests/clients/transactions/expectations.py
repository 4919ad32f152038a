"""What transactions of the matrix must leave behind, and what each client can do, from the rules alone.

Every writer takes the same steps with three producers of one transactional id, of which each fences the one
before. A transaction that ends leaves a marker, which takes an offset, in each partition that it wrote to; a
refused step leaves nothing. What a client cannot is said here with the reason, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.clients.clients import Client

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ISOLATIONS = (READ_COMMITTED, READ_UNCOMMITTED)
PARTITIONS = 2
COMMIT, ABORT = "commit", "abort"


class Abilities(NamedTuple):
    """What one client can do with transactions."""

    fenced: tuple[str, ...] = ()  # by which names it tells that a newer producer has its id
    no_writing: str = ""  # why it writes in no transaction
    no_offsets: str = ""  # why it sends no offsets in one
    no_isolation: str = ""  # why its consumer cannot choose; it shows everything then
    shows_markers: bool = False  # as if they were records


_OLD_PROTOCOL = "it is older than transactions (KIP-98)"
_OLDER = Abilities(no_writing=_OLD_PROTOCOL, no_isolation=_OLD_PROTOCOL)
_NEVER = Abilities(
    no_writing="it has no transactional producer", no_isolation="it has no isolation level"
)
# Its Fetch is new enough to be given markers, but it does not know them.
_MARKERS_TOO = _NEVER._replace(
    no_isolation="it has no isolation level, and shows markers as records", shows_markers=True
)
# Which error a client makes of it goes by where it hears of the new producer first: from the coordinator, or
# from the leader of a partition.
_JAVA = Abilities(fenced=("ProducerFencedException", "InvalidProducerEpochException"))
ABILITIES: dict[str, Abilities] = {
    "kcat": Abilities(no_writing="its command begins no transaction"),
    "confluent-kafka": Abilities(fenced=("_FENCED",)),
    "librdkafka 1.9": Abilities(fenced=("_FENCED",)),
    "librdkafka 0.9": _OLDER,
    "kafka-python 3.0": Abilities(fenced=("ProducerFencedError", "InvalidProducerEpochError")),
    "kafka-python 2.3": Abilities(fenced=("ProducerFencedError", "InvalidProducerEpochError")),
    "kafka-python 2.0": _MARKERS_TOO,
    "kafka-python 1.4": _MARKERS_TOO,
    "aiokafka": Abilities(fenced=("ProducerFenced",)),
    "java 0.8.2": _OLDER,
    "java 0.9.0": _OLDER,
    "java 0.10.0": _OLDER,
    "java 0.10.2": _OLDER,
    "java 0.11.0": Abilities(fenced=("ProducerFencedException",)),
    "java 1.1": Abilities(fenced=("ProducerFencedException",)),
    "java 2.8": _JAVA,
    "java 3.9": _JAVA,
    "java 4.1": _JAVA,
    "kafka-node 5": _NEVER,
    "no-kafka 3": _OLDER,
    "kafkajs 2": Abilities(fenced=("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")),
    "franz-go 1": Abilities(fenced=("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")),
}


class Step(NamedTuple):
    """One transaction, or a part of one, to every partition alike."""

    name: str  # of the producer; one that is new here is opened first, and fences the one before
    label: str  # what its records say; empty: it sends none
    records: int
    end: str | None  # null leaves the transaction open
    refused: bool = False


STEPS = (
    Step("first", "kept", 3, COMMIT),
    Step("first", "dropped", 2, ABORT),
    Step("first", "more", 2, COMMIT),
    Step("first", "unfinished", 2, None),
    Step("second", "half", 1, None),
    Step("first", "", 0, COMMIT, refused=True),
    Step("second", "whole", 1, COMMIT),
    Step("second", "open again", 1, None),
    Step("third", "newest", 2, COMMIT),
    Step("second", "late", 1, COMMIT, refused=True),
    Step("third", "last", 1, COMMIT),
)


class Stored(NamedTuple):
    """One record as it lies in a partition."""

    offset: int
    value: str
    committed: bool


MARKER = "a marker"


class Log:
    """What a partition must hold, as transactions of one producer at a time come to it."""

    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.markers: list[int] = []
        self._open: list[tuple[int, str]] = []
        self._end = 0

    def append(self, values: Iterable[str]) -> None:
        """Records of the transaction that is open."""
        for value in values:
            self._open.append((self._end, value))
            self._end += 1

    def finish(self, *, committed: bool) -> None:
        """The transaction's end, and its marker if it wrote here."""
        if self._open:
            self.records += [Stored(offset, value, committed) for offset, value in self._open]
            self._open.clear()
            self.markers.append(self._end)
            self._end += 1

    def seen(self, isolation: str | None, *, markers: bool = False) -> list[tuple[int, str]]:
        """What a reader is handed; one that knows no isolation is handed everything."""
        everything = isolation != READ_COMMITTED
        found = [(one.offset, one.value) for one in self.records if everything or one.committed]
        return sorted(found + [(offset, MARKER) for offset in self.markers if markers])


def topic_of(writer: Client) -> str:
    """The topic of a writer's transactions."""
    return "transactions-of-" + writer.slug


def copies_of(writer: Client) -> str:
    """The topic a writer copies to, and its group."""
    return "copies-of-" + writer.slug


def values_of(step: Step, partition: int) -> list[str]:
    """What the records of a step say in one partition."""
    return [f"{step.label} {number} in {partition}" for number in range(step.records)]


def logs_of_steps() -> list[Log]:
    """The partitions as the steps must leave them."""
    logs = [Log() for _ in range(PARTITIONS)]
    last = STEPS[0].name
    opened = [last]
    for step in STEPS:
        for partition, log in enumerate(logs):
            if step.refused:
                continue
            if step.name not in opened:
                log.finish(committed=False)  # whoever comes new aborts what was open
            log.append(values_of(step, partition))
            if step.end is not None:
                log.finish(committed=step.end == COMMIT)
        opened.append(step.name)
    return logs


def fenced(answer: dict[str, Any], client: Client) -> str | None:
    """The name by which a client told that a newer producer has its id, at once or as it aborted.

    A client that learns of it between two records names it in the message of another error.
    """
    told = [each for each in (answer.get("error"), answer.get("abort")) if each]
    names = ABILITIES[client.name].fenced
    exact = (each["name"] for each in told if each["name"] in names)
    named = (name for each in told for name in names if name in str(each.get("message")))
    return next(exact, None) or next(named, None)


def logs_of_copies(
    copies: Sequence[tuple[list[tuple[int, int]], str]], values: dict[tuple[int, int], str]
) -> list[Log]:
    """The partitions as copies must leave them.

    `copies` are what each transaction read, as partition and offset, and how it ended.
    """
    logs = [Log() for _ in range(PARTITIONS)]
    for read, end in copies:
        for partition, offset in read:
            logs[partition].append([f"{values[partition, offset]} copied"])
        for log in logs:
            log.finish(committed=end == COMMIT)
    return logs

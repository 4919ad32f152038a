"""What clients did and were told: the events that the checkers judge.

Clients in several threads add events; an event is complete when it is added. Times in seconds are
those of the machine's monotonic clock, which all processes share, and say which event was over before
another began. Times in milliseconds are the timestamps of records.

A transaction is named by its client, the client's incarnation and a number. What is about to be asked of
it is an event of its own, so that a client that is killed leaves behind what it had begun.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NO_OFFSET = -1


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Acknowledged(NamedTuple):
    """A record has been acknowledged; `offset` is NO_OFFSET where the client does not know it."""

    producer: str
    place: Place
    number: int
    offset: int


class Refused(NamedTuple):
    """A producer gave up on a record, which may be stored all the same."""

    producer: str
    place: Place
    number: int
    reason: str


class Sought(NamedTuple):
    """A reader begins a stream at an offset."""

    reader: str
    stream: int
    place: Place
    offset: int


class Polled(NamedTuple):
    """A reader got a record. A stream is what it gets between two seeks or assignments.

    A reader of committed data knows when that was, and the transaction in which it reads, if any.
    """

    reader: str
    stream: int
    place: Place
    offset: int
    value: bytes
    time_ms: int = 0
    at_s: float = 0.0
    txn: str = ""


class Committed(NamedTuple):
    """A commit of a group was acknowledged."""

    group: str
    place: Place
    offset: int
    began_s: float
    ended_s: float


class Told(NamedTuple):
    """A group asked for its committed offset; NO_OFFSET is the answer that there is none.

    `is_stable` is one that waits for the markers of transactions that are decided.
    """

    group: str
    place: Place
    offset: int
    began_s: float
    ended_s: float
    is_stable: bool = True


class Led(NamedTuple):
    """A broker has acknowledged a record with acks=1, as the leader that it takes itself for."""

    broker: int
    place: Place
    began_s: float  # when it was asked


class CutOff(NamedTuple):
    """A broker was cut off from the metadata alone. `lease_s` is how long its session lasts then."""

    broker: int
    began_s: float
    ended_s: float
    lease_s: float


class Began(NamedTuple):
    """A client has begun a transaction; no request need have been sent for it."""

    txn: str
    transactional_id: str
    at_s: float


class Sent(NamedTuple):
    """A record of a transaction is about to be sent."""

    txn: str
    place: Place
    value: bytes


class Stored(NamedTuple):
    """A record of a transaction has been acknowledged."""

    txn: str
    place: Place
    value: bytes
    offset: int


class OffsetSent(NamedTuple):
    """An offset of a group is about to be sent with a transaction."""

    txn: str
    group: str
    place: Place
    offset: int


class Asked(NamedTuple):
    """The end of a transaction is about to be asked for."""

    txn: str
    is_commit: bool
    at_s: float


class Ended(NamedTuple):
    """A client was told that its transaction is committed or aborted."""

    txn: str
    is_commit: bool
    at_s: float


class Ends(NamedTuple):
    """The ends of a partition when all transactions should be over."""

    place: Place
    last_stable_offset: int
    high_watermark: int


class Failed(NamedTuple):
    """A client cannot go on, or something else happened that must not."""

    who: str
    reason: str


class Believed(NamedTuple):
    """A broker has done what a stranger asked in the name of another broker."""

    broker: str
    what: str


OfTransaction: TypeAlias = Began | Sent | Stored | OffsetSent | Asked | Ended
Event: TypeAlias = (
    OfTransaction
    | Acknowledged
    | Refused
    | Sought
    | Polled
    | Committed
    | Told
    | Led
    | CutOff
    | Ends
    | Failed
    | Believed
)


class History:
    """The events of one run of a cluster, in the order in which they ended."""

    def __init__(self, stamped: Iterable[str] = ()) -> None:
        """`stamped` are the topics with message.timestamp.type=LogAppendTime."""
        self.stamped = frozenset(stamped)
        self.events: list[Event] = []
        self.acknowledged: defaultdict[str, int] = defaultdict(int)  # by producer
        self.polled: defaultdict[str, int] = defaultdict(int)  # by reader
        self.failed: list[Failed] = []

    def add(self, event: Event) -> None:
        """Adds an event; for use by any thread."""
        self.events.append(event)
        if isinstance(event, Acknowledged):
            self.acknowledged[event.producer] += 1
        elif isinstance(event, Polled):
            self.polled[event.reader] += 1
        elif isinstance(event, Failed):
            self.failed.append(event)

    def write(self, path: Path) -> None:
        """Writes the events as lines of JSON, for whoever looks for the cause of a problem."""
        with path.open("w") as file:
            for event in self.events:
                fields = {
                    name: value.decode() if isinstance(value, bytes) else value
                    for name, value in event._asdict().items()
                }
                file.write(json.dumps({"event": type(event).__name__, **fields}) + "\n")


class Said(NamedTuple):
    """What the value of a record says."""

    writer: str  # a producer or a transaction
    place: str
    number: int  # among the writer's records of that partition
    more: str  # the record that it is a copy of, as in-0@17; or padding


def value_of(writer: str, place: Place, number: int, more: str = "") -> bytes:
    """Returns the value of a record, which says where it belongs."""
    return f"{writer}|{place}|{number}|{more}".encode()


def said(value: bytes) -> Said | None:
    """Returns what a value says; None if no client of ours wrote it."""
    parts = value.decode("utf-8", "replace").split("|")
    if len(parts) != 4 or not parts[2].isdecimal():
        return None
    return Said(parts[0], parts[1], int(parts[2]), parts[3])


def source_of(place: Place, offset: int) -> str:
    """Returns how a copy names the record that it was made of."""
    return f"{place}@{offset}"

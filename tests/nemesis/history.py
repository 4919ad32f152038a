"""What clients did and were told: the events that a checker judges.

Clients in several threads add events; an event is complete when it is added. Times in seconds are
those of the machine's monotonic clock, and say which event was over before another began. Times in
milliseconds are the timestamps of records.
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


class Polled(NamedTuple):
    """A consumer got a record. A stream is what it gets between two seeks or assignments."""

    reader: str
    stream: int
    place: Place
    offset: int
    value: bytes
    time_ms: int


class Committed(NamedTuple):
    """A commit of a group was acknowledged."""

    group: str
    place: Place
    offset: int
    began_s: float
    ended_s: float


class Told(NamedTuple):
    """A group asked for its committed offset; NO_OFFSET is the answer that there is none."""

    group: str
    place: Place
    offset: int
    began_s: float


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


class Failed(NamedTuple):
    """A client cannot go on, or something else happened that must not."""

    who: str
    reason: str


class Believed(NamedTuple):
    """A broker has done what a stranger asked in the name of another broker."""

    broker: str
    what: str


Event: TypeAlias = (
    Acknowledged | Refused | Polled | Committed | Told | Led | CutOff | Failed | Believed
)


class History:
    """The events of one life of a cluster, in the order in which they ended."""

    def __init__(self, stamped: Iterable[str] = ()) -> None:
        """`stamped` are the topics with message.timestamp.type=LogAppendTime."""
        self.stamped = frozenset(stamped)
        self.events: list[Event] = []
        self.acknowledged: defaultdict[str, int] = defaultdict(int)  # by producer
        self.polled: defaultdict[str, int] = defaultdict(int)  # by reader

    def add(self, event: Event) -> None:
        """Adds an event; for use by any thread."""
        self.events.append(event)
        if isinstance(event, Acknowledged):
            self.acknowledged[event.producer] += 1
        elif isinstance(event, Polled):
            self.polled[event.reader] += 1

    def write(self, path: Path) -> None:
        """Writes the events as lines of JSON, for whoever looks for the cause of a problem."""
        with path.open("w") as file:
            for event in self.events:
                fields = {
                    name: value.decode() if isinstance(value, bytes) else value
                    for name, value in event._asdict().items()
                }
                file.write(json.dumps({"event": type(event).__name__, **fields}) + "\n")


def value_of(producer: str, place: Place, number: int, padding: int = 0) -> bytes:
    """Returns the value of a producer's record, which says where it belongs."""
    return f"{producer}:{place}:{number}:".encode() + b"." * padding


def parsed(value: bytes) -> tuple[str, str, int] | None:
    """Returns producer, place and number of a value; None if no producer wrote it."""
    parts = value.decode("utf-8", "replace").split(":")
    if len(parts) != 4 or not parts[2].isdecimal() or parts[3].strip("."):
        return None
    return parts[0], parts[1], int(parts[2])

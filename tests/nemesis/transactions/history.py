"""What transactional clients did and were told: the events that the checker of transactions judges.

A transaction is named by its client, the client's incarnation and a number. What is about to be asked
is an event of its own, so that a client that is killed leaves behind what it had begun. Times are
those of the machine's monotonic clock, which all processes share.

The value of a record says which transaction wrote it, where it belongs, which one of the transaction's
records of that partition it is, and of which other record it is a copy, if it is one.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tests.nemesis.history import Failed, Place, Polled


class Began(NamedTuple):
    """A client has begun a transaction; no request need have been sent for it."""

    txn: str
    transactional_id: str
    at_s: float


class Sent(NamedTuple):
    """A record is about to be sent."""

    txn: str
    place: Place
    value: bytes


class Stored(NamedTuple):
    """A record has been acknowledged."""

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


class OffsetTold(NamedTuple):
    """A group asked for its committed offset; NO_OFFSET is the answer that there is none.

    `is_stable` is one that waits for the markers of transactions that are decided.
    """

    group: str
    place: Place
    offset: int
    began_s: float
    ended_s: float
    is_stable: bool = True


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


class Sought(NamedTuple):
    """A reader of committed data begins a stream at an offset."""

    reader: str
    stream: int
    place: Place
    offset: int


class Got(NamedTuple):
    """A reader of committed data got a record; `txn` is the transaction in which it reads, if any."""

    reader: str
    stream: int
    place: Place
    offset: int
    value: bytes
    at_s: float
    txn: str = ""


class Ends(NamedTuple):
    """The ends of a partition when all transactions should be over."""

    place: Place
    last_stable_offset: int
    high_watermark: int


Event: TypeAlias = (
    Began
    | Sent
    | Stored
    | OffsetSent
    | OffsetTold
    | Asked
    | Ended
    | Sought
    | Got
    | Ends
    | Polled
    | Failed
)
KINDS = {
    each.__name__: each
    for each in (Began, Sent, Stored, OffsetSent, OffsetTold, Asked, Ended, Got, Failed)
}


class Said(NamedTuple):
    """What a value says."""

    txn: str
    place: str
    index: int
    source: str  # the record that it is a copy of, as in-0@17; empty if it is none


def value_of(txn: str, place: Place, index: int, source: str = "") -> bytes:
    """Returns the value of a record."""
    return f"{txn}|{place}|{index}|{source}".encode()


def source_of(place: Place, offset: int) -> str:
    """Returns how a copy names the record that it was made of."""
    return f"{place}@{offset}"


def said(value: bytes) -> Said | None:
    """Returns what a value says; None if no client wrote it."""
    parts = value.decode("utf-8", "replace").split("|")
    if len(parts) != 4 or not parts[2].isdecimal():
        return None
    return Said(parts[0], parts[1], int(parts[2]), parts[3])

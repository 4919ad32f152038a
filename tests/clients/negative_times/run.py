"""Times before 1970 and the clients (KIP-228): what each sends, shows and asks for.

A broker can store, serve and find such times; a client may refuse them, change them, or show others. What
every client does is declared in expectations.py and tried here against a running broker, so
that a change is noticed; the table of docs/time.md is made from the same declarations.

What a client sent is read back over the wire with kafka-python's reader, what it shows was written over the
wire, and what it finds is known from the times alone: no client is judged by another.
"""

from __future__ import annotations

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.broker.asking import create, fetch, produce
from tests.clients.environments import Unavailable
from tests.clients.session import DriverError, Session
from tests.oracle import codecs, recordset, wire
from tests.oracle.recordset import Rec

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka.record import MemoryRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.clients import Client

LOWEST = -(2**63)
DAY_BEFORE_MS = -86_400_000
# What producers send, each alone: a day before 1970, the last time there is before "no time", the
# smallest of all, and -1 itself.
SENT = (DAY_BEFORE_MS, -2, LOWEST, -1)
# What consumers read, offsets 0..5; -1 is no time.
READ = (DAY_BEFORE_MS, -2, -7, LOWEST, -1, 1_600_000_000_000)
# What is asked of ListOffsets, and the offset that answers it in READ.
ASKED = {-7: 1, DAY_BEFORE_MS + 1: 1, LOWEST: 0}
FORMATS = {"format 2": (2, "3.0", 9), "format 1": (1, "0.10.2", 2)}
KEPT = {"retention_ms": "-1"}
TIMEOUT_S = 100.0
PARALLEL = 2


class Outcome(NamedTuple):
    """What came of everything one client was told to do, each in a word or a sentence.

    `sent`: by time, "as sent", "stored as T", or the client's exception; `shown`: "as stored", or the times
    shown instead, or the problem; `found`: by time, "right", the wrong offset, or the exception.
    """

    sent: dict[int, str]
    shown: dict[str, str]
    found: dict[int, str]


class Place(NamedTuple):
    """A partition to read from."""

    topic: str
    partition: int


def run(server: str, chosen: Sequence[Client], *, make: bool) -> tuple[dict[str, Outcome], dict]:
    """Try every client at `server`; outcomes by client name, and those skipped with the reason."""
    prepare(server, chosen)
    skipped: dict[str, str] = {}
    sessions = []
    for client in chosen:
        try:
            command = client.command(server, make=make)
        except Unavailable as reason:
            skipped[client.name] = str(reason)
            continue
        sessions.append((client, Session(client.name, command)))

    def attempt(pair: tuple[Client, Session]) -> Outcome:
        client, session = pair
        with session:
            return outcome_of(server, client, session)

    with ThreadPoolExecutor(PARALLEL) as pool:
        outcomes = list(pool.map(attempt, sessions))
    return {client.name: one for (client, _), one in zip(sessions, outcomes, strict=True)}, skipped


def name_of(client: Client) -> str:
    """The topic that a client writes to, a partition for each time."""
    return f"sent-by-{client.slug}"


def prepare(server: str, chosen: Sequence[Client]) -> None:
    """Make the topics, and write what consumers read."""
    with wire.Connection(server, timeout_s=60) as connection:
        for client in chosen:
            create(connection, name_of(client), len(SENT), **KEPT, message_format_version="3.0")
        for name, (magic, release, version) in FORMATS.items():
            topic = topic_of(name)
            create(connection, topic, 2, **KEPT, message_format_version=release)
            recs = [Rec(time, b"v%d" % number) for number, time in enumerate(READ)]
            for partition, codec in enumerate((codecs.NONE, codecs.GZIP)):
                if magic == 2:
                    data = recordset.batch(recs, codec)
                elif codec:
                    data = recordset.wrapper(magic, recs, codec)
                else:
                    data = recordset.plain_set(magic, recs)
                answer = produce(connection, topic, data, version=version, partition=partition)
                assert not answer["error_code"], answer


def topic_of(name: str) -> str:
    """The topic that consumers read in one format."""
    return "read-" + name.replace(" ", "-")


def stored(connection: wire.Connection, place: Place) -> list[int]:
    """The times in a partition; -1 where there is none."""
    answer = fetch(connection, place.topic, version=4, partition=place.partition)
    times, found = [], MemoryRecords(answer["records"])
    while (batch := found.next_batch()) is not None:
        times += [-1 if record.timestamp is None else record.timestamp for record in batch]
    return times


def outcome_of(server: str, client: Client, session: Session) -> Outcome:
    """All that one client does."""
    sent, found = {}, {}
    if client.sets_timestamps:
        with wire.Connection(server, timeout_s=60) as connection:
            for partition, time in enumerate(SENT):
                place = Place(name_of(client), partition)
                sent[time] = send(session, connection, place, time)
    shown = {name: show(session, client, name) for name in FORMATS}
    if client.finds != "nothing":
        found = {time: find(session, time) for time in ASKED}
    return Outcome(sent, shown, found)


def send(session: Session, connection: wire.Connection, place: Place, time: int) -> str:
    """Have the client produce one record with a time."""
    record = {"key": "k", "value": "v", "timestamp": time}
    batch = {"topic": place.topic, "partition": place.partition, "records": [record]}
    try:
        answers = ask(session, op="produce", codec="none", idempotent=None, batches=[batch])
    except DriverError as error:
        refusal = said(error, time)
        return refusal if not stored(connection, place) else f"{refusal}, but stored"
    if answers and "error" in answers[0]:
        return f"error {answers[0]['error']['name']}"
    there = stored(connection, place)
    if there == [time]:
        return "as sent"
    return f"stored as {', '.join(map(str, there))}"


def show(session: Session, client: Client, name: str) -> str:
    """Have the client read a topic, plain and compressed."""
    words = []
    wanted = [
        {"topic": topic_of(name), "partition": number, "from": 0, "count": len(READ)}
        for number in (0, 1)
    ]
    try:
        answers = ask(session, op="consume", timeout_ms=60_000, partitions=wanted)
    except DriverError as error:
        return str(error)
    if not client.shows_timestamps:
        complete = all(len(answer["records"]) == len(READ) for answer in answers)
        return "no times" if complete else "not all records"
    for answer in answers:
        times = [record["timestamp"] for record in answer["records"]]
        if [-1 if time is None else time for time in times] == list(READ):
            words.append("as stored")
        else:
            words.append("shows " + ", ".join(map(str, times)))
    return words[0] if len(set(words)) == 1 else f"plain {words[0]}; compressed {words[1]}"


def find(session: Session, time: int) -> str:
    """Have the client ask for a time."""
    wanted = [{"topic": topic_of("format 2"), "partition": 0, "timestamp": time}]
    try:
        (answer,) = ask(session, op="find", partitions=wanted)
    except DriverError as error:
        return said(error, time)
    return "right" if answer["offset"] == ASKED[time] else f"offset {answer['offset']}"


def ask(session: Session, **command: Any) -> list[dict[str, Any]]:
    """One command."""
    return session.ask(command, TIMEOUT_S)


def said(error: DriverError, time: int) -> str:
    """What a driver told of an exception, T for the time, without the package and the partition."""
    text = str(error).replace(str(time), "T").partition(" (")[0]
    return re.sub(r"^(?:\w+\.)+(?=\w+:)| for partition .*?(?= is T)", "", text)

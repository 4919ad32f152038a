"""One client at work while brokers restart: it sends without end, and its group reads what it sends.

A Load keeps one producer open, and two members of one group, each in a driver of its own. What was
acknowledged, handed out and told as an error is collected; `judge` compares it with what the log holds.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.clients.session import ANSWER_TIMEOUT_S, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from tests.clients.clients import Client

PARTITIONS = 3
MEMBERS = 2
SEND_MS = 1000  # how long one command sends; it ends when all is acknowledged
EVERY_MS = 20
POLL_MS = 400
SETTLE_S = 90.0

Log = dict[int, list[str]]  # by partition, the values in the order of their offsets


class Work(NamedTuple):
    """What a client did, as it tells it: the same for every client."""

    topic: str
    idempotent: bool
    sent: int
    acknowledged: list[tuple[int, int, int]]  # number, partition, offset
    errors: list[str]  # one for each record that failed
    handed: list[tuple[int, int, str]]  # partition, offset, value
    longest_send_ms: int
    longest_silence_ms: int  # between two records handed to anybody in the group
    failures: Sequence[str] = ()  # of drivers, each of which did no more after it
    keeps_order: bool = True  # whether the client promises it, where it is not idempotent


class Verdict(NamedTuple):
    """What was wrong, and what was counted."""

    wrong: list[str]
    sent_twice: int  # only where the producer is not idempotent
    handed_twice: int
    out_of_order: int = 0  # partitions; only where the client promises no order


def value_of(topic: str, number: int) -> str:
    """The value of a record, by its number."""
    return f"{topic} {number}"


def judge(work: Work, log: Log) -> Verdict:
    """Compares what a client was told with what the log of its topic holds."""
    wrong = [f"error: {error}" for error in (*work.failures, *work.errors[:3])]
    stored = Counter(value for values in log.values() for value in values)
    lost = [
        number
        for number, partition, offset in work.acknowledged
        if log[partition][offset : offset + 1] != [value_of(work.topic, number)]
    ]
    if lost:
        wrong.append(f"{len(lost)} acknowledged records are not where they were stored: {lost[:5]}")
    if len(work.acknowledged) + len(work.errors) != work.sent:
        wrong.append(f"{work.sent} were sent, {len(work.acknowledged)} acknowledged")
    twice = [value for value, count in stored.items() if count > 1]
    if work.idempotent and twice:
        wrong.append(f"{len(twice)} records are there twice: {twice[:5]}")
    mixed = [partition for partition, values in log.items() if not _is_in_order(values)]
    if work.idempotent or work.keeps_order:
        wrong += [f"partition {partition} is out of order" for partition in mixed]
    handed = Counter((partition, offset) for partition, offset, _ in work.handed)
    everything = {(p, offset) for p, values in log.items() for offset in range(len(values))}
    if missing := sorted(everything - set(handed)):
        wrong.append(f"{len(missing)} records were never handed out: {missing[:5]}")
    other = [
        (partition, offset)
        for partition, offset, value in work.handed
        if log[partition][offset : offset + 1] != [value]
    ]
    if other:
        wrong.append(f"{len(other)} records were handed out that are not in the log: {other[:5]}")
    return Verdict(wrong, len(twice), sum(1 for count in handed.values() if count > 1), len(mixed))


def _is_in_order(values: Sequence[str]) -> bool:
    """Whether records come in the order of their numbers, each where it is stored first."""
    numbers = [int(value.rpartition(" ")[2]) for value in dict.fromkeys(values)]
    return numbers == sorted(numbers)


class Load:
    """A client that works from `start` to `finish`; a context manager that ends its drivers."""

    def __init__(self, client: Client, server: str) -> None:
        self.client = client
        self.topic = "rolled-" + client.slug
        self.idempotent = client.idempotence != "never"
        self._server = server
        self._stack = ExitStack()
        self._over = threading.Event()
        self._acknowledged: list[tuple[int, int, int]] = []
        self._errors: list[str] = []
        self._handed: list[tuple[int, int, str]] = []
        self._sent = 0
        self._longest_send_ms = 0
        self._longest_silence_s = 0.0
        self._last_handed_s = 0.0

    def __enter__(self) -> Self:
        """Starts the drivers. Raises Unavailable, and DriverError."""
        command = self.client.command(self._server)
        with ExitStack() as stack, ThreadPoolExecutor(1 + MEMBERS) as threads:
            starting = [
                threads.submit(stack.enter_context, Session(self.client.name, command))
                for _ in range(1 + MEMBERS)
            ]
            self._sender, *self._members = (each.result() for each in starting)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._stack.close()

    @property
    def version(self) -> str:
        """The client's own word."""
        return self._sender.version

    def start(self) -> None:
        """Begins to send and to read; returns when every member has been handed records."""
        self._threads = self._stack.enter_context(ThreadPoolExecutor(1 + MEMBERS))
        self._sending = self._threads.submit(self._send)
        self._reading = [self._threads.submit(self._read, one) for one in self._members]

    @property
    def handed(self) -> int:
        """How many records were handed out so far."""
        return len(self._handed)

    def measure_from_now(self) -> None:
        """Forgets the pauses so far: drivers that have just started are slow by themselves."""
        self._longest_send_ms, self._longest_silence_s = 0, 0.0

    def has_failed(self) -> bool:
        """Whether the sender or a member has ended by a failure of its own."""
        return any(one.done() and one.exception() for one in (self._sending, *self._reading))

    def finish(self) -> Work:
        """Stops sending, waits until all was handed out; returns all, also why a driver failed."""
        self._over.set()
        failures = []
        for who, thread in (("sends", self._sending), *(("reads", each) for each in self._reading)):
            if (error := thread.exception()) is not None:
                failures.append(f"{who}: {error}")
        return Work(
            self.topic,
            self.idempotent,
            self._sent,
            self._acknowledged,
            self._errors,
            self._handed,
            self._longest_send_ms,
            round(self._longest_silence_s * 1000),
            failures,
            self.client.keeps_order,
        )

    def _send(self) -> None:
        while not self._over.is_set():
            (answer,) = self._sender.ask(
                {
                    "op": "send",
                    "topic": self.topic,
                    "partitions": PARTITIONS,
                    "from": self._sent,
                    "ms": SEND_MS,
                    "every_ms": EVERY_MS,
                    "idempotent": self.idempotent,
                },
                ANSWER_TIMEOUT_S,
            )
            self._take_sent(answer)

    def _take_sent(self, answer: Mapping[str, Any]) -> None:
        self._acknowledged += [tuple(each) for each in answer["acknowledged"]]
        self._errors += [f"record {number}: {text}" for number, text in answer["errors"]]
        self._sent = answer["next"]
        self._longest_send_ms = max(self._longest_send_ms, answer["longest_ms"])

    def _read(self, member: Session) -> None:
        joining = {"op": "join", "group": self.topic, "topic": self.topic, "assignor": None}
        joining["at_least_once"] = True
        member.ask(joining, ANSWER_TIMEOUT_S)
        deadline_s = None
        while deadline_s is None or time.monotonic() < deadline_s:
            (answer,) = member.ask({"op": "poll", "ms": POLL_MS}, ANSWER_TIMEOUT_S)
            self._take_handed(answer["records"])
            if self._over.is_set() and self._sending.done():
                if self._has_all():
                    break
                deadline_s = deadline_s or time.monotonic() + SETTLE_S
        for answer in member.ask({"op": "leave"}, ANSWER_TIMEOUT_S):
            self._take_handed(answer["records"])

    def _take_handed(self, records: Sequence[Mapping[str, Any]]) -> None:
        if not records:
            return
        now_s = time.monotonic()
        if self._last_handed_s:
            self._longest_silence_s = max(self._longest_silence_s, now_s - self._last_handed_s)
        self._last_handed_s = now_s
        self._handed += [(each["partition"], each["offset"], each["value"]) for each in records]

    def _has_all(self) -> bool:
        stored = {(partition, offset) for _, partition, offset in self._acknowledged}
        return stored <= {(partition, offset) for partition, offset, _ in list(self._handed)}

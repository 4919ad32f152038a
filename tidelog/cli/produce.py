"""`tidelog produce`: lines, or JSON lines, become records, with any time there is, before 1970 too.

Every record that was acknowledged is counted, and every one that was not is told at the end, with the exit
status 1. A line that cannot be read ends it with status 2; what came before it is written.
kafka-python sends what it is given, but its send() refuses two things that Kafka has: records without key
and value, and headers without a value. Those are handed to the layer below.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, BinaryIO

from tidelog.cli.kafka import (
    Kafka,
    add_broker,
    check_broker,
    no_broker,
    sentence_of,
    telling,
)
from tidelog.cli.records import Record, from_json, is_relative, time_of
from tidelog.cli.shared import USAGE, CommandError, add_http, bar, counted, run, tell

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

_AHEAD = 10_000  # records that wait for their acknowledgement at most
_MOST_BYTES = 50 << 20  # the broker says what is too large, not the client
_KNOWN_WITHIN_MS = 10_000
_GIVE_UP_S = 30.0
_WIDEST_BATCH_MS = 2**62  # a batch holds times as differences from its first
_FORMAT_IS_OLD = 43  # UNSUPPORTED_FOR_MESSAGE_FORMAT
_TOLD = 3  # kinds of errors


def add_produce(parser: argparse.ArgumentParser) -> None:
    """The command line of `tidelog produce`."""
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("--file", metavar="FILE", help="read this instead of standard input")
    add(
        "--json",
        action="store_true",
        help='lines are {"key": ..., "value": ..., "timestamp": ..., "headers": ...}, '
        "as `tidelog consume --json` writes them",
    )
    add("--key-separator", metavar="TEXT", help="what stands before it in a line is the key")
    add("--empty-is-null", action="store_true", help="an empty key or value is none at all")
    add(
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a header of every record; may be given many times",
    )
    add(
        "--time",
        metavar="TIME",
        help="of records that have none of their own: 2026-01-01T00:00Z, -2h, or ms (else: now)",
    )
    add(
        "--shift",
        action="store_true",
        help='take 1969-12-31T23:59:59.999Z, which is -1 and means "no time", for the next millisecond',
    )
    add(
        "--partition", metavar="N", help='one for all; "any" passes over those that JSON lines name'
    )
    add("--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none")
    add("--acks", choices=["0", "1", "all"], default="all", help="who has to have it (all)")
    add_broker(parser)
    add_http(parser)


def run_produce(options: argparse.Namespace) -> int:
    """Run `tidelog produce`; the exit status."""
    return run("produce", _produce, options)


def _produce(options: argparse.Namespace) -> None:
    reader = _Reader(options)
    with contextlib.ExitStack() as opened:
        source: BinaryIO
        if options.file is not None:
            try:
                source = opened.enter_context(open(options.file, "rb"))  # noqa: PTH123 - as it is given
            except OSError as error:
                raise CommandError(f"{options.file}: {error.strerror}", USAGE) from None
        elif sys.stdin is None:
            raise CommandError("standard input is closed", USAGE)
        else:
            source = sys.stdin.buffer
        check_broker(options.broker)
        sender = opened.enter_context(contextlib.closing(_Sender(options)))
        number, mistake = 0, None
        for number, line in enumerate(opened.enter_context(_watched(source)), 1):
            try:
                sender.send(reader.record_of(line))
            except (ValueError, CommandError) as error:
                mistake = f"line {number}: {error}"
                break
        sender.finish()
    if mistake:
        raise CommandError(
            f"{mistake} (written before it: {counted(sender.produced, 'record')})", USAGE
        )
    sender.tell_errors()
    tell(f"Produced {counted(sender.produced, 'record')} to {options.topic}.")


class _Reader:
    """Makes records of lines, as the options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._now_ms: int | None = None
        self._separator = os.fsencode(options.key_separator or "")
        if options.json and (self._separator or options.empty_is_null):
            raise CommandError("--key-separator and --empty-is-null are for plain lines", USAGE)
        self._headers: list[tuple[str, bytes | None]] = []
        for text in options.header:
            name, equals, value = text.partition("=")
            if not equals:
                raise CommandError(f"--header {text}: expected NAME=VALUE", USAGE)
            self._headers.append((name, os.fsencode(value)))
        self._time = None if options.time is None else self._read_time(options.time, "--time")

    def record_of(self, line: bytes) -> Record:
        """The record of a line. Raises ValueError and CommandError for a mistake in it."""
        line = line.removesuffix(b"\n").removesuffix(b"\r") if self._options.json else line
        if self._options.json:
            record = from_json(line, lambda text: self._read_time(text, "timestamp"))
        else:
            record = self._plain(line.removesuffix(b"\n"))
        return record._replace(
            headers=record.headers + self._headers,
            timestamp_ms=self._time if record.timestamp_ms is None else record.timestamp_ms,
        )

    def _plain(self, line: bytes) -> Record:
        key: bytes | None = None
        value: bytes | None = line
        if self._separator and self._separator in line:
            key, _, value = line.partition(self._separator)
        if self._options.empty_is_null:
            key, value = key or None, value or None
        return Record(key, value, [], None)

    def _read_time(self, text: str | int, what: str) -> int:
        if self._now_ms is None and is_relative(str(text)):
            self._now_ms = self._now()
        return time_of(text, self._now_ms or 0, shift=self._options.shift, what=what)

    def _now(self) -> int:
        """Now by the broker's clock, where its HTTP port answers; else by this machine's."""
        with Kafka(self._options.broker) as kafka:
            told = kafka.is_at(self._options.http, self._options.topic)
        return time.time_ns() // 1_000_000 if told is None else int(told["at_ms"])


class _Headers(list[tuple[str, bytes | None]]):
    """Headers some of which have no value: kafka-python can write them, but not add their lengths up.

    It adds up what is true; the sum is only told back.
    """

    def __bool__(self) -> bool:
        return False


class _Sender:
    """Sends records, a bounded number ahead, and counts what became of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Connect, and look whether topic and partition are there. Raises CommandError."""
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        self.produced = 0
        self._topic = options.topic
        self._errors: Counter[str] = Counter()
        self._waiting: deque[Any] = deque()
        self._times: tuple[int, int] | None = None  # of what may still be in one batch
        acks = {"0": 0, "1": 1, "all": "all"}[options.acks]
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=options.broker,
                client_id="tidelog",
                acks=acks,
                enable_idempotence=acks == "all",
                compression_type=None if options.compression == "none" else options.compression,
                linger_ms=5,
                batch_size=1 << 17,
                max_request_size=_MOST_BYTES,
                max_block_ms=_KNOWN_WITHIN_MS,
            )
        except (KafkaError, OSError) as error:
            raise no_broker(options.broker, error) from None
        try:
            self._partitions = self._found(options)
            self._honours_lines = options.partition is None
            self._partition = self._checked(options.partition)
        except BaseException:
            self.close()
            raise

    def _found(self, options: argparse.Namespace) -> set[int]:
        """The partitions of the topic, which the broker may make now. Raises CommandError."""
        try:
            with telling(f"nobody can write to {options.topic}: "):
                return set(self._producer.partitions_for(options.topic))
        except CommandError as error:
            if error.status != USAGE:
                with Kafka(options.broker) as kafka:
                    kafka.topics([options.topic])  # says it better if it is not there
            raise

    def _checked(self, text: str | None) -> int | None:
        if text in (None, "any"):
            return None
        if not (text.isascii() and text.isdecimal()):
            raise CommandError(f'--partition {text}: expected a number or "any"', USAGE)
        if int(text) not in self._partitions:
            raise CommandError(f"there is no partition {self._topic}-{text}", USAGE)
        return int(text)

    def send(self, record: Record) -> None:
        """Send one; waits where too many are on their way. Raises ValueError for what cannot be sent."""
        partition = record.partition if self._honours_lines else self._partition
        if partition is not None and partition not in self._partitions:
            raise ValueError(
                f"there is no partition {self._topic}-{partition} (--partition any passes over it)"
            )
        while len(self._waiting) >= _AHEAD or (self._waiting and self._waiting[0].is_done):
            self._take()
        self._part_times(record.timestamp_ms)
        needs_more = (record.key is None and record.value is None) or any(
            value is None for _, value in record.headers
        )
        try:
            send = self._send_bare if needs_more else self._producer.send
            self._waiting.append(
                send(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
            )
        except self._kafka_error() as error:
            self._note(error)

    def _send_bare(self, topic: str, *, partition: int | None, **record: Any) -> Any:
        """What send() does with a record, without its checks."""
        from kafka import TopicPartition

        producer = self._producer
        number = producer._partition(  # noqa: SLF001 - as the module says; the pin holds it
            topic, partition, record["key"], record["value"], record["key"], record["value"]
        )
        future, *_ = producer._accumulator.append(  # noqa: SLF001 - as above
            TopicPartition(topic, number),
            record["timestamp_ms"],
            record["key"],
            record["value"],
            _Headers(record["headers"]),
        )
        producer._sender.wakeup()  # noqa: SLF001 - as above
        return future

    def _part_times(self, time_ms: int | None) -> None:
        """Begin another batch where the difference of two times would be too large for one."""
        if time_ms is None:
            time_ms = time.time_ns() // 1_000_000
        low, high = self._times or (time_ms, time_ms)
        low, high = min(low, time_ms), max(high, time_ms)
        if high - low >= _WIDEST_BATCH_MS:
            self.finish()
            low = high = time_ms
        self._times = low, high

    def _take(self) -> None:
        """Wait for the oldest, and count it."""
        try:
            self._waiting.popleft().get(timeout=None)
            self.produced += 1
        except self._kafka_error() as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        hint = " (here: --acks 1)" if getattr(error, "errno", None) == _FORMAT_IS_OLD else ""
        self._errors[sentence_of(error) + hint] += 1

    @staticmethod
    def _kafka_error() -> type[Exception]:
        from kafka import errors

        known: type[Exception] = errors.KafkaError
        return known

    def finish(self) -> None:
        """Wait for all that is on its way."""
        while self._waiting:  # not flush(): it gives up where a batch was too large and is parted
            self._take()

    def close(self) -> None:
        """Leave the broker."""
        self._producer.close(timeout=_GIVE_UP_S)

    def tell_errors(self) -> None:
        """Raise CommandError if not every record was produced."""
        if not self._errors:
            return
        lost = self._errors.total()
        kinds = [
            sentence if count == 1 else f"{sentence} ({count} times)"
            for sentence, count in self._errors.most_common(_TOLD)
        ]
        more = len(self._errors) - len(kinds)
        raise CommandError(
            f"{lost} of {counted(lost + self.produced, 'record')} {'was' if lost == 1 else 'were'} not "
            f"written: {'; '.join(kinds)}" + (f"; and {more} other errors" if more else "")
        )


@contextlib.contextmanager
def _watched(source: BinaryIO) -> Iterator[Iterator[bytes]]:
    """The lines of the input, with a bar on a terminal where its size is known."""
    size = _size(source)
    if not size or not sys.stderr.isatty():
        yield iter(source)
        return
    with bar(size, of_bytes=True) as advance:
        yield _counting(source, advance)


def _counting(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    for line in source:
        advance(len(line))
        yield line


def _size(source: BinaryIO) -> int:
    """Bytes that are still to be read of a file; 0 where nobody knows."""
    try:
        found = os.fstat(source.fileno())
    except (OSError, ValueError):
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0

"""`tidelog produce`: turns lines or JSON lines into records, with any time, before 1970 too.

It counts every acknowledged record. It reports every other record at the end, with exit status 1.
An invalid line ends it with status 2; the records before that line are written. A topic that does not
exist is created with the first line, if the broker's settings allow that; the command says so.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from tidelog.cli.arguments import add_broker, add_flag, add_many, add_shift
from tidelog.cli.cluster import Cluster, raise_for_topic
from tidelog.cli.connecting import sentence_of
from tidelog.cli.escaping import escaped
from tidelog.cli.output import bar, print_lines
from tidelog.cli.records import Record, from_json, is_relative, time_of
from tidelog.cli.shared import CommandError, UsageError, machine_ms, warn_of_unit
from tidelog.client import ClientError, RequestError
from tidelog.client.calls.topics import describe
from tidelog.client.producer import ACKS_ALL, Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.kernels.rows_py import murmur2
from tidelog.protocol.records.layout import Compression
from tidelog.protocol.records.layout import Record as Sent
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from io import BufferedReader

_BATCH_BYTES = 1 << 17
_KNOWN_WITHIN_S = 10.0
_AGAIN_S = 0.1
_TOLD = 3  # kinds of errors


def add_produce(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog produce`."""
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("--file", metavar="FILE", help="read this, not standard input (-)")
    what = (
        'lines are {"key": ..., "value": ..., "timestamp": ..., "headers": ...}, as `tidelog consume --json` '
        "writes them"
    )
    add_flag(parser, "--json", what)
    add("--key-separator", metavar="TEXT", help="what stands before it in a line is the key")
    add_flag(parser, "--empty-is-null", "an empty key or value is none at all")
    add_many(parser, "--header", "NAME=VALUE", "a header of every record; may be given many times")
    what = (
        "of records that have none of their own: 2026-01-01T00:00Z, -2h, now, or ms (else: this "
        "machine's time)"
    )
    add("--time", metavar="TIME", help=what)
    add_shift(parser)
    what = 'one for all; "any" passes over those that JSON lines name'
    add("--partition", metavar="N", help=what)
    add("--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none")
    add("--acks", choices=["0", "1", "all"], default="all", help="who has to have it (all)")
    add_broker(parser)
    parser.set_defaults(run=_produce)


def _produce(options: argparse.Namespace) -> None:
    reader = _Reader(options)
    with contextlib.ExitStack() as opened:
        source: BufferedReader
        if options.file not in (None, "-"):
            try:
                source = opened.enter_context(open(options.file, "rb"))  # noqa: PTH123 - as it is given
            except OSError as error:
                raise UsageError(f"{options.file}: {error.strerror}") from None
        elif sys.stdin is None:
            raise UsageError("standard input is closed")
        else:
            source = cast("BufferedReader", sys.stdin.buffer)
        sender = _Sender(opened.enter_context(Cluster(options.broker)), options)
        size = _size(source) if sys.stderr.isatty() else 0
        watched = bar(size, of_bytes=True) if size else contextlib.nullcontext(lambda _: None)
        advance = opened.enter_context(watched)
        number = 0
        for lines in _lines(source, advance):
            batch = []
            if lines:
                sender.create_topic()
            try:
                for line in lines:
                    number += 1
                    batch.append(sender.placed(reader.record_of(line)))
            except (ValueError, CommandError) as error:
                sender.send(batch)
                written = some(sender.produced, "record")
                raise UsageError(f"line {number}: {error} (written before it: {written})") from None
            sender.send(batch)
    sender.tell_errors()
    print_lines(f"Produced {some(sender.produced, 'record')} to {options.topic}.")


def _lines(source: BufferedReader, advance: Callable[[int], None]) -> Iterator[list[bytes]]:
    """Yields the lines that have come whenever some have, so that a slow input does not wait."""
    rest = b""
    while chunk := source.read1(_BATCH_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines
        advance(len(chunk))
    if rest:
        yield [rest]


def _size(source: BufferedReader) -> int:
    """Returns the number of bytes of a file, or 0 if it is unknown."""
    try:
        found = os.fstat(source.fileno())
    except (OSError, ValueError):
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


class _Reader:
    """Turns lines into records, by the options."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._now_ms: int | None = None
        self._has_looked = False
        self._separator = os.fsencode(options.key_separator or "")
        if options.json and (self._separator or options.empty_is_null):
            raise UsageError("--key-separator and --empty-is-null are for plain lines")
        self._headers: list[tuple[str, bytes | None]] = []
        for text in options.header:
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"--header {text}: expected NAME=VALUE")
            self._headers.append((name, os.fsencode(value)))
        self._time: int | None = None
        self._awaits_now = options.time is not None and is_relative(options.time)
        if options.time is not None:
            # The topic may not exist yet, so the broker cannot be asked. This finds mistakes.
            self._time = self._checked(options.time, machine_ms(), "--time")
            warn_of_unit(options, "--time", options.time)

    def record_of(self, line: bytes) -> Record:
        """Returns the record of a line. Raises ValueError and CommandError for a mistake in it."""
        if self._options.json:
            line = line.removesuffix(b"\r")
            record = from_json(line, lambda text: self._read_time(text, "timestamp"))
        else:
            record = self._plain(line)
        if self._awaits_now:
            self._time = self._read_time(self._options.time, "--time")
            self._awaits_now = False
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
        if not self._has_looked:  # the lines that follow look alike
            self._has_looked = True
            warn_of_unit(self._options, what, text)
        return self._checked(text, self._now_ms or 0, what)

    def _checked(self, text: str | int, now_ms: int, what: str) -> int:
        return time_of(text, now_ms, shift=self._options.shift, what=what)

    def _now(self) -> int:
        """Returns the broker's time if its HTTP port answers, else this machine's.

        The topic must exist: by its id the broker is known to be the one with that port.
        """
        with Cluster(self._options.broker) as cluster:
            return cluster.now_ms(self._options.http, self._options.topic)


class _Sender:
    """Sends batches of records, and counts the results."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        """Checks that the partition exists if the topic does. Raises CommandError."""
        self.produced = 0
        self._cluster = cluster
        self._topic = options.topic
        self._errors: Counter[str] = Counter()
        self._count = 0  # of partitions; 0 while there is no topic
        self._honours_lines = options.partition is None
        self._partition = self._number(options.partition)
        topic = self._described(may_create=False)
        self._is_new = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise_for_topic(topic)
        if not topic.error_code:
            self._begin(len(topic.partitions))
        self._producer = Producer(
            cluster.client,
            acks={"0": 0, "1": 1, "all": ACKS_ALL}[options.acks],
            compression=Compression[options.compression.upper()],
        )

    def create_topic(self) -> None:
        """Lets the broker create the topic if there is none, and waits for leaders. Raises CommandError."""
        if self._count:
            return
        until = time.monotonic() + _KNOWN_WITHIN_S
        near = self._cluster.near_topic(self._topic) if self._is_new else ""
        while (topic := self._described(may_create=True)).error_code:
            if time.monotonic() > until:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    nobody = "and the broker creates none (auto.create.topics.enable)"
                    raise CommandError(f"there is no topic {self._topic}, {nobody}{near}")
                raise_for_topic(topic, f"nobody can write to {self._topic}: ")
            time.sleep(_AGAIN_S)
        self._begin(len(topic.partitions))
        if self._is_new:
            what = f"created topic {self._topic} with {some(self._count, 'partition')}{near}"
            sys.stderr.write(f"tidelog produce: {escaped(what)}\n")

    def _described(self, *, may_create: bool) -> Any:
        call = describe([self._topic], may_create=may_create)
        (topic,) = self._cluster.perform(call, f"nobody can write to {self._topic}: ").topics
        return topic

    def _begin(self, partition_count: int) -> None:
        self._count = partition_count
        if self._partition is not None and self._partition >= partition_count:
            raise UsageError(f"there is no partition {self._topic}-{self._partition}")

    @staticmethod
    def _number(text: str | None) -> int | None:
        if text in (None, "any"):
            return None
        if not (text.isascii() and text.isdecimal()):
            raise UsageError(f'--partition {text}: expected a number or "any"')
        return int(text)

    def placed(self, record: Record) -> tuple[int | None, Sent]:
        """Returns a record as it is sent, and its partition; one without a key may go to any.

        Raises ValueError for an invalid record.
        """
        partition = record.partition if self._honours_lines else self._partition
        if partition is not None and not 0 <= partition < self._count:
            raise ValueError(
                f"there is no partition {self._topic}-{partition} (--partition any passes over it)"
            )
        sent = Sent(
            0,
            machine_ms() if record.timestamp_ms is None else record.timestamp_ms,
            record.key,
            record.value,
            tuple((name.encode(), value) for name, value in record.headers),
        )
        if partition is None and record.key is not None:
            partition = (murmur2(record.key) & 0x7FFFFFFF) % self._count
        return partition, sent

    def send(self, batch: list[tuple[int | None, Sent]]) -> None:
        """Sends records to their partitions; those for any partition go together to one."""
        anywhere = random.randrange(self._count)  # noqa: S311 - spreads load
        parts: dict[int, list[Sent]] = {}
        for partition, record in batch:
            parts.setdefault(anywhere if partition is None else partition, []).append(record)
        for partition, records in parts.items():
            lost = 0
            try:
                for refused in self._producer.write(self._topic, partition, records):
                    lost += refused.count
                    self._note(refused.error, refused.count)
            except ClientError as error:
                self._note(error, len(records) - lost)
                lost = len(records)
            self.produced += len(records) - lost

    def _note(self, error: Exception, count: int) -> None:
        is_old = (
            isinstance(error, RequestError)
            and error.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        )
        self._errors[sentence_of(error) + (" (here: --acks 1)" if is_old else "")] += count

    def tell_errors(self) -> None:
        """Raises CommandError if not every record was produced."""
        if not self._errors:
            return
        lost = self._errors.total()
        kinds = [
            sentence if count == 1 else f"{sentence} ({count} times)"
            for sentence, count in self._errors.most_common(_TOLD)
        ]
        more = len(self._errors) - len(kinds)
        raise CommandError(
            f"{lost} of {some(lost + self.produced, 'record')} {'was' if lost == 1 else 'were'} not "
            f"written: {'; '.join(kinds)}" + (f"; and {more} other errors" if more else "")
        )

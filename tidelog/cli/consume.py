"""`tidelog consume`: prints records with both their times, as text or JSON lines.

It begins at a time or an offset, and reads up to the log end at its start, in offset order within a
partition; with --follow it continues. --from TIME begins at the first record at or after the time.
--to TIME ends before the first record after that start which is at or after the time. All records
in between are read, whatever their times; --within leaves out those whose times are not in between.
Append times come with the records, from tidelog's own brokers alone; elsewhere they are unknown.
The HTTP port is asked only for what is told from the broker's clock, and for times that Kafka's protocol
cannot express.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.arguments import (
    add_common,
    add_flag,
    add_shift,
    add_topic,
    number_given,
    partition_given,
)
from tidelog.cli.cluster import UNSAYABLE_MS, Cluster
from tidelog.cli.connecting import raised_as_sentences
from tidelog.cli.output import bar_beside_output
from tidelog.cli.records import (
    formatter,
    is_about_append_times,
    is_relative,
    json_lines,
    table_head,
    table_rows,
    time_of,
)
from tidelog.cli.shared import CommandError, UsageError, machine_ms, warn, warn_of_unit
from tidelog.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.consumer import Consumer
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from tidelog.cli.records import Writer
    from tidelog.client.consumed import Consumed
    from tidelog.protocol.topic_partition import TopicPartition

_POLL_MS = 200
_ROWS = 1000  # written at once: their memory is used again for the next ones
_SILENT_S = 30.0
_GONE = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
_LIKE_A_TIME = re.compile(r"1[0-9]{9}|1[0-9]{12}")  # of our days, in seconds or in milliseconds
_PLACES = "TIME, earliest, latest, an offset, or @MS for milliseconds"


class ReadBound(NamedTuple):
    """A start or an end: an offset (or EARLIEST or LATEST), or a time."""

    offset: int | None = None
    time_ms: int | None = None


def add_consume(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog consume`."""
    add_topic(parser)
    add = parser.add_argument
    add("--from", dest="start", metavar="PLACE", default="earliest", help=f"{_PLACES} (earliest)")
    add("--to", dest="end", metavar="PLACE", default="latest", help="end before it (latest)")
    add_flag(parser, "--within", "leave out what has no time between --from and --to")
    add("--max", metavar="N", help="so many records at most")
    add_flag(parser, "--follow", "wait for more when the end is reached")
    add_flag(parser, "--committed", "only what consumers of committed records see")
    add("--format", metavar="TEXT", help=r"what is written of each record: '%%o %%I %%k %%s\n'")
    add_flag(parser, "--no-append-times", "leave them out")
    add_shift(parser)
    add_common(parser)
    parser.set_defaults(run=_consume)


def _consume(options: argparse.Namespace) -> None:
    most = None if options.max is None else number_given("--max", options.max)
    only = partition_given(options)
    if options.json and options.format is not None:
        raise UsageError("--json and --format: one of them")
    if options.follow and options.end != "latest":
        raise UsageError("--follow has no end: leave out --to")
    with contextlib.ExitStack() as opened:
        cluster = opened.enter_context(Cluster(options.broker))
        (topic,) = cluster.topics([options.topic])
        numbers = [each.number for each in topic.partitions]
        if only is not None and only not in numbers:
            there = f"the topic has {some(len(numbers), 'partition')}"
            raise CommandError(f"there is no partition {options.topic}-{only}: {there}")
        places = [(options.topic, each) for each in (numbers if only is None else [only])]
        start, end = _places(cluster, options)
        spans = _spans(cluster, places, start, end, options)
        reader = _Reader(cluster, options, spans)
        records = _between(reader, start, end, within=options.within)
        _write(records, reader, options, most)


# --- where to begin and end -----------------------------------------------------------------------


def _places(cluster: Cluster, options: argparse.Namespace) -> tuple[ReadBound, ReadBound]:
    """Returns the start and the end; times from now on are by the broker's clock. Raises CommandError."""
    is_asked = is_relative(options.start) or is_relative(options.end)
    now_ms = cluster.now_ms(options.http, options.topic) if is_asked else machine_ms()
    start = _place("--from", options.start, now_ms, options)
    end = _place("--to", options.end, now_ms, options)
    if options.within and start.time_ms is None and end.time_ms is None:
        raise UsageError("--within needs a time in --from or --to")
    return start, end


def _place(option: str, text: str, now_ms: int, options: argparse.Namespace) -> ReadBound:
    """Parses a start or an end. Raises CommandError."""
    if text in ("earliest", "latest"):
        return ReadBound(offset=EARLIEST if text == "earliest" else LATEST)
    if text.isascii() and text.isdecimal():
        if _LIKE_A_TIME.fullmatch(text):
            ms = f"{text:0<13}"
            warn(options, f"{option} {text} is an offset: a time in milliseconds is written @{ms}")
        return ReadBound(offset=int(text))
    if re.fullmatch(r"[+-][0-9]+", text):
        raise UsageError(f"{option} {text}: milliseconds are written @{text}")
    warn_of_unit(options, option, text.removeprefix("@"))
    at = time_of(text.removeprefix("@"), now_ms, shift=options.shift, what=option)
    return ReadBound(time_ms=at)


def _spans(
    cluster: Cluster,
    places: list[TopicPartition],
    start: ReadBound,
    end: ReadBound,
    options: argparse.Namespace,
) -> dict[int, tuple[int, int]]:
    """Returns the first offset and the end offset of each partition. Raises CommandError."""
    firsts = cluster.offsets(places, EARLIEST)
    lasts = cluster.offsets(places, LATEST, isolation=_isolation(options))
    begin = dict.fromkeys(places, start.offset)
    if start.time_ms is not None:
        is_here = (
            start.time_ms in UNSAYABLE_MS
            and cluster.clock_at(options.http, options.topic) is not None
        )
        rows = cluster.rows_at(places, start.time_ms, "at", options.http, is_here=is_here)
        begin = {place: row.get("offset") for place, row in rows.items()}  # None: an error
    spans = {}
    for place in places:
        first = begin.get(place)
        if first is None:
            raise CommandError(f"it is unknown where that time is in {place[0]}-{place[1]}")
        if first == EARLIEST:
            first = firsts[place]
        elif first == LATEST:  # the log end also if no record is at or after the time
            first = lasts[place]
        last = lasts[place] if end.offset in (None, LATEST) else end.offset
        if last == EARLIEST:
            last = firsts[place]
        # A broker refuses to read from an offset outside of the log: it is the nearest inside.
        begins = max(min(first, lasts[place]), firsts[place])
        spans[place[1]] = (begins, min(last or 0, lasts[place]))
    return spans


def _isolation(options: argparse.Namespace) -> int:
    return READ_COMMITTED if options.committed else READ_UNCOMMITTED


def _between(
    reader: _Reader, start: ReadBound, end: ReadBound, *, within: bool
) -> Iterator[tuple[int, Consumed] | None]:
    """Yields what of the records is shown; None whenever there is no further record at the moment."""
    for read in reader.read():
        if read is None or (end.time_ms is None and not within):
            yield read
            continue
        partition, records = read
        if within:
            low = -(2**63) if start.time_ms is None else start.time_ms
            high = 2**63 if end.time_ms is None else end.time_ms
            records = records.only(
                low <= time_ms < high and time_ms != NO_TIMESTAMP for time_ms in records.timestamps
            )
        elif end.time_ms is not None:
            for row, time_ms in enumerate(records.timestamps):
                if time_ms != NO_TIMESTAMP and time_ms >= end.time_ms:
                    records = records.part(0, row)
                    reader.end(partition)
                    break
        yield partition, records


# --- reading --------------------------------------------------------------------------------------


class _Reader:
    """Reads partitions up to their ends, or with --follow without end."""

    def __init__(
        self,
        cluster: Cluster,
        options: argparse.Namespace,
        spans: Mapping[int, tuple[int, int]],
    ) -> None:
        self.total = sum(max(end - start, 0) for start, end in spans.values())
        self._topic = options.topic
        self._follows = options.follow
        self._ends = {
            number: end for number, (start, end) in spans.items() if options.follow or start < end
        }
        self._consumer = Consumer(
            cluster.client,
            {(options.topic, number): spans[number][0] for number in self._ends},
            isolation=_isolation(options),
            with_append_times=_shows_append_times(options),
        )

    def read(self) -> Iterator[tuple[int, Consumed] | None]:
        """Yields records of a partition; None whenever there is none at the moment. Raises CommandError."""
        heard = time.monotonic()
        while self._ends:
            try:
                with raised_as_sentences():
                    polled = self._consumer.poll(_POLL_MS)
            except CommandError as error:
                if error.name not in _GONE:
                    raise
                gone = f"topic {self._topic} has been deleted"
                raise CommandError(gone, error.status, error.name) from None
            for (_, number), found in polled.items():
                if self._follows:
                    yield number, found
                elif number in self._ends:
                    yield number, found.part(0, bisect_left(found.offsets, self._ends[number]))
            yield None
            if self._follows:
                continue
            if polled:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENT_S:
                raise CommandError(
                    f"nothing has come for {_SILENT_S:.0f} s, and the end is not reached"
                )
            for number, end in list(self._ends.items()):
                if self._consumer.positions[self._topic, number] >= end:
                    self.end(number)

    def end(self, partition: int) -> None:
        """Stops reading a partition."""
        self._ends.pop(partition, None)
        self._consumer.stop((self._topic, partition))


def _shows_append_times(options: argparse.Namespace) -> bool:
    if options.format is not None:
        return is_about_append_times(options.format)
    return not options.no_append_times


# --- writing --------------------------------------------------------------------------------------


def _write(
    read: Iterator[tuple[int, Consumed] | None],
    reader: _Reader,
    options: argparse.Namespace,
    most: int | None,
) -> None:
    write = _writer(options)
    out = sys.stdout.buffer
    left = sys.maxsize if most is None else most
    watched = (
        contextlib.nullcontext(lambda _: None)
        if options.follow
        else bar_beside_output(reader.total)
    )
    with watched as advance:
        if options.format is None and not options.json:
            out.write(table_head(with_append_times=_shows_append_times(options)))
        try:
            while left and (found := next(read, _END)) is not _END:
                if found is None:
                    out.flush()
                    continue
                partition, records = found
                count = min(len(records.offsets), left)
                for start in range(0, count, _ROWS):
                    out.write(write(partition, records.part(start, min(start + _ROWS, count))))
                left -= count
                advance(count)
        except KeyboardInterrupt:
            if not options.follow:
                raise
        out.flush()


_END: Any = object()


def _writer(options: argparse.Namespace) -> Writer:
    if options.format is not None:
        return formatter(options.format, options.topic)
    with_append_times = _shows_append_times(options)
    if options.json:
        return json_lines(options.topic, with_append_times=with_append_times)
    return table_rows(with_append_times=with_append_times)

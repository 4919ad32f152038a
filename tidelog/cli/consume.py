"""`tidelog consume`: prints records with both their times, as text or JSON lines.

It begins at a time or an offset, and reads up to the log end at its start, in offset order within a
partition; with --follow it continues. --from TIME begins at the first record at or after the time.
--to TIME ends before the first record after that start which is at or after the time. All records
in between are read, whatever their times; --within leaves out those whose times are not in between.
Append times come over HTTP, record by record. They are left out if the HTTP port is not this
broker's.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.arguments import (
    add_all,
    add_flag,
    add_shift,
    add_topic,
    number_given,
    partition_given,
)
from tidelog.cli.cluster import Cluster
from tidelog.cli.connecting import raised_as_sentences
from tidelog.cli.escaping import escaped
from tidelog.cli.output import bar
from tidelog.cli.records import Seen, formatter, is_about_append_times, shown, time_of, to_json
from tidelog.cli.shared import CommandError, UsageError, machine_ms
from tidelog.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.consumer import Consumer
from tidelog.control import ControlClient, ControlError
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from tidelog.client.consumer import Consumed
    from tidelog.protocol.topic_partition import TopicPartition

_TIMES_S = 60.0
_POLL_MS = 200
_SILENT_S = 30.0
_COLUMNS = "{:>9}  {:>10}  {:<24}  {}{}  {}\n"
_PLACES = "TIME, earliest, latest, an offset, or @MS for milliseconds"


class Place(NamedTuple):
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
    add_flag(parser, "--no-append-times", "do not ask for them: that is faster")
    add_shift(parser)
    add_all(parser)
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
            there = f"it has {len(numbers)}"
            raise CommandError(f"there is no partition {options.topic}-{only}: {there}")
        places = [(options.topic, each) for each in (numbers if only is None else [only])]
        here_ms = cluster.clock_at(options.http, options.topic)  # None: it has no HTTP port
        now_ms = machine_ms() if here_ms is None else here_ms
        start = _place("--from", options.start, now_ms, options)
        end = _place("--to", options.end, now_ms, options)
        if options.within and start.time_ms is None and end.time_ms is None:
            raise UsageError("--within wants a time in --from or --to")
        append_times = _append_times(options, is_here=here_ms is not None)
        if append_times is not None:
            opened.callback(append_times.close)
        spans = _spans(cluster, places, start, end, options.http, is_here=here_ms is not None)
        reader = _Reader(cluster, options, spans, append_times)
        records = _between(reader, start, end, within=options.within)
        _write(records, reader, options, most, with_append_times=append_times is not None)


# --- where to begin and end -----------------------------------------------------------------------


def _place(option: str, text: str, now_ms: int, options: argparse.Namespace) -> Place:
    """Parses a start or an end. Raises CommandError."""
    if text in ("earliest", "latest"):
        return Place(offset=EARLIEST if text == "earliest" else LATEST)
    if text.isascii() and text.isdecimal():
        return Place(offset=int(text))
    if re.fullmatch(r"[+-][0-9]+", text):
        raise UsageError(f"{option} {text}: milliseconds are written @{text}")
    at = time_of(text.removeprefix("@"), now_ms, shift=options.shift, what=option)
    return Place(time_ms=at)


def _spans(
    cluster: Cluster,
    places: list[TopicPartition],
    start: Place,
    end: Place,
    http: str,
    *,
    is_here: bool,
) -> dict[int, tuple[int, int]]:
    """Returns the first offset and the end offset of each partition. Raises CommandError."""
    firsts, lasts = cluster.offsets(places, EARLIEST), cluster.offsets(places, LATEST)
    begin = dict.fromkeys(places, start.offset)
    if start.time_ms is not None:
        rows = cluster.rows_at(places, start.time_ms, "at", http, is_here=is_here)
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
        spans[place[1]] = (max(first, firsts[place]), min(last or 0, lasts[place]))
    return spans


def _between(reader: _Reader, start: Place, end: Place, *, within: bool) -> Iterator[Seen | None]:
    """Yields the records to show; None whenever there is no further record at the moment."""
    for seen in reader.read():
        if seen is None:
            yield None
            continue
        time_ms = seen.timestamp_ms
        if within:
            is_late = end.time_ms is not None and time_ms >= end.time_ms
            is_early = start.time_ms is not None and time_ms < start.time_ms
            if time_ms == NO_TIMESTAMP or is_late or is_early:
                continue
        elif end.time_ms is not None and time_ms != NO_TIMESTAMP and time_ms >= end.time_ms:
            reader.end(seen.partition)
            continue
        yield seen


# --- reading --------------------------------------------------------------------------------------


class _Reader:
    """Reads partitions up to their ends, or with --follow without end."""

    def __init__(
        self,
        cluster: Cluster,
        options: argparse.Namespace,
        spans: Mapping[int, tuple[int, int]],
        append_times: ControlClient | None,
    ) -> None:
        self.total = sum(max(end - start, 0) for start, end in spans.values())
        self._topic = options.topic
        self._follows = options.follow
        self._append_times = append_times
        self._ends = {
            number: end for number, (start, end) in spans.items() if options.follow or start < end
        }
        self._consumer = Consumer(
            cluster.client,
            {(options.topic, number): spans[number][0] for number in self._ends},
            isolation=READ_COMMITTED if options.committed else READ_UNCOMMITTED,
        )

    def read(self) -> Iterator[Seen | None]:
        """Yields records; None whenever there is none at the moment. Raises CommandError."""
        heard = time.monotonic()
        while self._ends:
            with raised_as_sentences():
                polled = self._consumer.poll(_POLL_MS)
            for (_, number), found in polled.items():
                for each in found:
                    if number not in self._ends:
                        break
                    if not self._follows and each.record.offset >= self._ends[number]:
                        break
                    yield self._seen(number, each)
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

    def _seen(self, number: int, each: Consumed) -> Seen:
        asked, record = self._append_times, each.record
        return Seen(
            number,
            record.offset,
            record.timestamp,
            each.is_log_append_time,
            None if asked is None else _append_time(asked, self._topic, number, record.offset),
            record.key,
            record.value,
            [(name.decode(errors="replace"), value) for name, value in record.headers],
        )


def _append_time(asked: ControlClient, topic: str, partition: int, offset: int) -> int | None:
    """Returns the append time in ms, or None if it is unknown. Raises CommandError."""
    url = f"/v1/topics/{topic}/partitions/{partition}/records/{offset}/times"
    try:
        found: int | None = asked.ask("GET", url)["append_time_ms"]
    except ControlError as error:
        if error.name == "OFFSET_OUT_OF_RANGE":  # retention has deleted the record
            return None
        raise CommandError(str(error)) from None
    except (OSError, ValueError, KeyError) as error:
        raise CommandError(f"the HTTP port has gone away: {error}") from None
    return found


def _append_times(options: argparse.Namespace, *, is_here: bool) -> ControlClient | None:
    """Returns whom to ask for append times, if they are shown and available. Raises CommandError."""
    is_available = is_here and not options.no_append_times
    if options.format is not None:
        if not is_about_append_times(options.format):
            return None
        if not is_available:
            raise CommandError(
                f"--format asks for append times, and no HTTP port of this broker answers at "
                f"{options.http}: name it with --http"
            )
    return ControlClient(options.http, timeout_s=_TIMES_S) if is_available else None


# --- writing --------------------------------------------------------------------------------------


def _write(
    records: Iterator[Seen | None],
    reader: _Reader,
    options: argparse.Namespace,
    most: int | None,
    *,
    with_append_times: bool,
) -> None:
    write = _writer(options, with_append_times=with_append_times)
    out = sys.stdout.buffer
    written = 0
    watched = not options.follow and not sys.stdout.isatty() and sys.stderr.isatty()
    with bar(reader.total) if watched else contextlib.nullcontext(lambda _: None) as advance:
        if options.format is None and not options.json:
            append = f"{'append time':<24}  " if with_append_times else ""
            names = ("partition", "offset", "record time", append, "key", "value")
            out.write(_COLUMNS.format(*names).encode())
        try:
            while most is None or written < most:
                seen = next(records, _END)
                if seen is _END:
                    break
                if seen is None:
                    out.flush()
                    continue
                out.write(write(seen, options.topic))
                written += 1
                advance(1)
        except KeyboardInterrupt:
            if not options.follow:
                raise
        out.flush()


_END: Any = object()


def _writer(
    options: argparse.Namespace, *, with_append_times: bool
) -> Callable[[Seen, str], bytes]:
    if options.format is not None:
        return formatter(options.format)
    if options.json:
        return lambda seen, topic: (
            to_json(seen, topic, with_append_time=with_append_times) + "\n"
        ).encode()
    return lambda seen, _: _line(seen, with_append_times=with_append_times).encode()


def _line(seen: Seen, *, with_append_times: bool) -> str:
    append = f"{shown(seen.append_time_ms, 'unknown'):<24}  " if with_append_times else ""
    headers = "".join(f"  {escaped(name)}={_text(value)}" for name, value in seen.headers)
    return _COLUMNS.format(
        seen.partition,
        seen.offset,
        shown(seen.timestamp_ms, "none"),
        append,
        _text(seen.key),
        _text(seen.value) + headers,
    )


def _text(data: bytes | None) -> str:
    """Returns bytes as one line for a terminal; unprintable characters are escaped."""
    if data is None:
        return "null"
    return escaped(data.decode(errors="backslashreplace"))

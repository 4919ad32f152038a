"""`tidelog offsets` and `tidelog times`: look up the offset of a time, and the times of an offset.

They look up a record's own time or its append time, before 1970 too. An unknown value is shown as
unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import (
    add_common,
    add_flag,
    add_shift,
    add_topic,
    number_given,
    partition_given,
)
from tidelog.cli.output import print_json, print_lines, print_table, shown
from tidelog.cli.shared import FAILED, NONE, ask, warn_of_unit

if TYPE_CHECKING:
    import argparse

_TIME_HELP = "2026-01-01T00:00Z, -2h from the broker's now, or milliseconds"


def add_offsets(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog offsets`."""
    add_topic(parser)
    time = parser.add_mutually_exclusive_group()
    time.add_argument("--at", metavar="TIME", help=f"the first record at or after it: {_TIME_HELP}")
    what = "the first record appended at or after it"
    time.add_argument("--appended-at", metavar="TIME", help=what)
    add_shift(parser)
    add_flag(parser, "--committed", "only what consumers of committed records see")
    add_common(parser)
    parser.set_defaults(run=_offsets)


def look_up(
    options: argparse.Namespace, at: str | None, appended_at: str | None, *, capped: bool = False
) -> dict[str, Any]:
    """Returns the offsets of a time by the broker's answer. Raises CommandError.

    With `capped` no record counts with a time later than its append time.
    """
    partition_given(options)
    before = "--before" if options.command == "delete-records" else None
    return ask(
        options.http,
        "topics",
        options.topic,
        "offsets",
        query=(
            ("at", at),
            ("appended-at", appended_at),
            ("capped", "true" if capped else None),
            ("partition", options.partition),
            ("shift", "true" if options.shift else None),
            ("isolation", "read_committed" if getattr(options, "committed", False) else None),
        ),
        options={"at": before or "--at", "appended-at": before or "--appended-at"},
    )


def status_of(answer: dict[str, Any]) -> int:
    """Returns the exit status for an answer by partition: FAILED if one of them has an error in its place."""
    return FAILED if any("error" in row for row in answer["partitions"]) else 0


def _offsets(options: argparse.Namespace) -> int:
    """Prints the offsets; returns the exit status."""
    warn_of_unit(options, "--at", options.at)
    warn_of_unit(options, "--appended-at", options.appended_at)
    answer = look_up(options, options.at, options.appended_at)
    if options.json:
        print_json(answer)
    elif options.at is None and options.appended_at is None:
        _print_ends(answer)
    else:
        _print_found(answer)
    return status_of(answer)


def _print_ends(answer: dict[str, Any]) -> None:
    rows: list[tuple[object, ...]] = []
    for row in answer["partitions"]:
        number = row["partition"]
        if "error" in row:
            rows.append((number, row["error"], row["message"], "", ""))
            continue
        for what in ("first", "last", "largest"):
            rows.append((number, *_found(what, row[what])))
            number = ""
        rows.append(("", "end", row["end_offset"], "", ""))
    print_table((">partition", "", ">offset", "record time", "append time"), rows)


def _found(what: str, found: dict[str, Any]) -> tuple[str, str, str, str]:
    if found["offset"] in (NONE, None):  # None: unknown
        return what, "-", "-", "-"
    times = (shown(found, "timestamp", "none"), shown(found, "append_time", "unknown"))
    return what, str(found["offset"]), *times


def _print_found(answer: dict[str, Any]) -> None:
    name, verb = (
        ("at", "at or after") if "at_ms" in answer else ("appended_at", "appended at or after")
    )
    print_lines(f"{answer['topic']}: the first record {verb} {shown(answer, name)}", "")
    columns = (">partition", ">offset", "record time", "append time", ">log start", ">end")
    rows: list[tuple[object, ...]] = []
    for row in answer["partitions"]:
        if "error" in row:
            rows.append((row["partition"], row["error"], row["message"], "", "", ""))
            continue
        _, offset, *times = _found("", row)
        if unknown := row.get("unknown"):
            offset = f"{unknown['start_offset']} to {unknown['end_offset']}?"
        ends = (row["log_start_offset"], row["end_offset"])
        rows.append((row["partition"], offset if offset != "-" else "none", *times, *ends))
    print_table(columns, rows)
    if any(row.get("unknown") for row in answer["partitions"]):
        print_lines(
            "",
            "?: the append times there are unknown; the answer is in that range, or right after it.",
        )
    for row in answer["partitions"]:
        if row.get("absent"):
            first, last = row["absent"]["start_offset"], row["absent"]["end_offset"] - 1
            which = f"offset {first}" if first == last else f"offsets {first} to {last}"
            name = f"{answer['topic']}-{row['partition']}"
            after = f"{row['offset']} is the next record that is there."
            print_lines("", f"{name}: compaction has removed {which}; {after}")


# --- tidelog times -------------------------------------------------------------------------------


def add_times(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog times`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", metavar="PARTITION")
    parser.add_argument("offset", metavar="OFFSET")
    add_common(parser)
    parser.set_defaults(run=_times)


def _times(options: argparse.Namespace) -> None:
    number_given("PARTITION", options.partition)
    path = ("topics", options.topic, "partitions", options.partition, "records", options.offset)
    answer = ask(options.http, *path, "times")
    if options.json:
        print_json(answer)
        return
    own = {
        "data": "none: the record has no time",
        "control": "none: it marks the end of a transaction",
        "absent": "none: compaction has removed the record",
    }[answer["kind"]]
    rows = [
        ("record time", shown(answer, "timestamp", own), _ms(answer, "timestamp")),
        ("append time", shown(answer, "append_time", "unknown"), _ms(answer, "append_time")),
    ]
    kind = f" ({answer['timestamp_type']})" if answer["timestamp_type"] else ""
    name = f"{answer['topic']}-{answer['partition']}, offset {answer['offset']}{kind}"
    print_table((name, "", ">ms"), rows)


def _ms(answer: dict[str, Any], name: str) -> str:
    return "" if answer[f"{name}_ms"] is None else str(answer[f"{name}_ms"])

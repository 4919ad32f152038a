"""`tidelog explain`: shows for every segment its times, and when which policy deletes it.

It also shows what keeps a segment. With `--set` it shows the same under other settings, and how
much the next round of retention would delete with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import (
    add_common,
    add_flag,
    add_many,
    add_topic,
    partition_given,
    setting_of,
)
from tidelog.cli.output import print_json, print_lines, print_table, shown
from tidelog.cli.shared import ask
from tidelog.cli.times.offsets import status_of
from tidelog.text import size_of, some

if TYPE_CHECKING:
    import argparse

_COLUMNS = ("offsets", ">size", "first, largest event", "first, last append", "goes")


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog explain`."""
    add_topic(parser)
    what = "as if the topic had this setting (retention.ms=7d); may be given many times"
    add_many(parser, "--set", "KEY=VALUE", what)
    add_flag(parser, "--why", "what each policy waits for, in sentences")
    add_common(parser)
    parser.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    """Prints the explanation; returns the exit status, which is FAILED where a leader has not answered."""
    partition_given(options)
    changes = ["=".join(setting_of(text)) for text in options.set]
    query = [("partition", options.partition), *(("set", text) for text in changes)]
    answer = ask(options.http, "topics", options.topic, "explain", query=query)
    status = status_of(answer)
    if options.json:
        print_json(answer)
        return status
    print_lines(f"{answer['topic']} at {shown(answer, 'now')}: {_listed(answer['settings'])}")
    if "deletion_time_ms" in answer:
        print_lines(
            f"The clock has leapt: the deletion time is {shown(answer, 'deletion_time')}. See: tidelog "
            "clock status"
        )
    print_lines(f"retention.time.basis comes from: {answer['basis_from']}.")
    for partition in answer["partitions"]:
        print_lines("")
        _print_partition(answer, partition, with_reasons=options.why)
    return status


def _print_partition(
    answer: dict[str, Any], partition: dict[str, Any], *, with_reasons: bool
) -> None:
    name = f"{answer['topic']}-{partition['partition']}"
    if "error" in partition:
        print_lines(f"{name}: {partition['error']}: {partition['message']}")
        return
    start, end = partition["log_start_offset"], partition["high_watermark"]
    no_append = "unknown" if partition["log_end_offset"] else "none"
    print_lines(
        f"{name}: {some(max(end - start, 0), 'record')} from {start} on, "
        f"{size_of(partition['size'])}; maxEventTime {shown(partition, 'max_event_time', 'none')}, "
        f"last append {shown(partition, 'last_append_time', no_append)}"
    )
    segments = partition["segments"]
    print_lines("")
    rows = [_row(segment) for segment in segments]
    print_table(_COLUMNS, rows, wraps="goes", lines=_COLUMNS[2:4])
    if with_reasons:
        print_lines(
            "", *(f"{segment['base_offset']}: {segment['sentence']}" for segment in segments)
        )
    if any(segment["has_unknown_append_times"] for segment in segments):
        print_lines(
            "", "?: some append times are unknown; when the broker found the batches is used."
        )
    with_it = f"With {_listed(answer['preview'])}: " if answer["preview"] else ""
    print_lines("", _going(partition["going"], with_it))
    if answer["preview"]:
        print_lines(_going(partition["going_as_it_is"], "As it is: "))


def _row(segment: dict[str, Any]) -> tuple[str, ...]:
    first, end = segment["base_offset"], segment["end_offset"]
    doubt = "?" if segment["has_unknown_append_times"] else ""
    unknown = "unknown" if segment["size"] else "-"
    return (
        (f"{first} to {end - 1}" if end > first else f"from {first}")
        + (" active" if segment["is_active"] else ""),
        size_of(segment["size"]),
        _both(shown(segment, "first_time"), shown(segment, "largest_time")),
        _both(
            shown(segment, "first_append_time", unknown) + doubt,
            shown(segment, "last_append_time", unknown) + doubt,
        ),
        _deletion(segment),
    )


def _both(first: str, last: str) -> str:
    """Returns two times, one above the other, or one if they are equal."""
    return first if first == last else f"{first}\n{last}"


def _deletion(segment: dict[str, Any]) -> str:
    """Returns when and by which policy a segment is deleted, or what keeps it."""
    held_by = segment["held_by"]
    if segment["policy"] is not None:
        if held_by is None:
            return f"now, by {segment['policy']}"
        text = f"{shown(segment, 'due')}, by {segment['policy']}"
        return text + (f", behind {segment['held_by_segment']}" if _is_behind(segment) else "")
    if held_by == "no policy":
        return "never: no policy is set"
    if _is_behind(segment):
        return f"stays behind {segment['held_by_segment']}"
    if held_by == "retention.max.eventtime.ms":
        return f"with an event at {shown(segment, 'due_event_time')}, by {held_by}"
    if held_by == "retention.bytes":
        return "when the log has grown, by retention.bytes"
    return f"stays: {held_by}"


def _is_behind(segment: dict[str, Any]) -> bool:
    return segment["held_by_segment"] is not None


def _going(going: dict[str, Any], prefix: str) -> str:
    """Returns how much the next round deletes."""
    the = "the" if prefix else "The"
    if not going["segments"]:
        return f"{prefix}{the} next round of retention deletes nothing."
    return (
        f"{prefix}{the} next round of retention deletes {some(going['segments'], 'segment')}, "
        f"{some(going['records'], 'record')}, {size_of(going['bytes'])} "
        f"(by {', '.join(going['policies'])})."
    )


def _listed(settings: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())

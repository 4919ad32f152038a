"""`tidelog doctor`: what is wrong with brokers and the times of their logs, and which command helps.

Exit status: 0 if nothing was found, 1 if something was, 2 if the broker or one of its logs could not
be asked, or for a mistake in the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_common, partition_given
from tidelog.cli.output import print_folded, print_json, print_lines, print_table, shown, span_of
from tidelog.cli.shared import USAGE, UsageError, ask
from tidelog.text import some

if TYPE_CHECKING:
    import argparse

FOUND, UNKNOWN = 1, USAGE
_NAMED = 20  # of what could not be examined


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog doctor`."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="one topic alone")
    parser.add_argument("--partition", metavar="N", help="one partition of the topic alone")
    add_common(parser)
    parser.set_defaults(run=_doctor, failed=UNKNOWN)


def _doctor(options: argparse.Namespace) -> int:
    """Prints what was found; returns the exit status. Raises CommandError."""
    if partition_given(options) is not None and options.topic is None:
        raise UsageError("--partition needs a TOPIC")
    query = [("topic", options.topic), ("partition", options.partition)]
    answer = ask(options.http, "doctor", query=query)
    if options.json:
        print_json(answer)
    else:
        _print(answer)
    if answer["findings"]:
        return FOUND
    return UNKNOWN if answer["errors"] else 0


def _print(answer: dict[str, Any]) -> None:
    findings = answer["findings"]
    if findings:
        columns = ("where", "finding", ">figure", "command")
        print_table(columns, [_row(each) for each in findings], wraps="command")
        print_lines("")
        for each in findings:
            print_folded(f"{_where(each)}: {each['sentence']}")
        print_lines("")
    for error in answer["errors"][:_NAMED]:
        print_lines(f"{_where(error)} could not be examined: {error['message']}.")
    if (more := len(answer["errors"]) - _NAMED) > 0:
        print_lines(f"{more} more could not be examined: --json names all.")
    if answer["segments_unread"]:
        print_lines(
            f"The times of {some(answer['segments_unread'], 'segment')} are not known yet, and "
            "there are too many to read at once: ask again, or for one topic."
        )
    number = some(len(findings), "finding") if findings else "nothing found"
    examined = some(answer["partitions_examined"], "partition")
    if answer["topic"] is not None:
        examined += f" of {answer['topic']}"
    print_lines(f"{examined} examined at {shown(answer, 'now')}: {number}.")


def _row(finding: dict[str, Any]) -> tuple[str, ...]:
    return _where(finding), finding["finding"], _figure(finding), finding["command"]


def _where(entry: dict[str, Any]) -> str:
    """Returns a partition's name, or the topic's; without one, that of the broker (older ones do not say)."""
    if entry["topic"] is not None:
        number = entry["partition"]
        return str(entry["topic"]) if number is None else f"{entry['topic']}-{number}"
    return f"broker {entry['broker']}" if "broker" in entry else "the broker"


def _figure(finding: dict[str, Any]) -> str:
    figure, unit = finding["figure"], finding["unit"]
    if unit == "batches":
        return "1 batch" if figure == 1 else f"{figure:,} batches"
    return span_of(figure) if unit == "ms" else some(figure, unit.removesuffix("s"))

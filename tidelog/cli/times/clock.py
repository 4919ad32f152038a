"""`tidelog clock`: the broker's clock, and the way back from times that a wrong clock left.

`status` shows what the clock shows and how far it is trusted.

A clock that has leapt is not trusted: records are deleted by the deletion time, which goes on without
the leap. If the clock is right, `accept` says so. It asks for confirmation, because retention then
deletes by the clock's time.

`reset TOPIC` lets append times, and largest event times, that are ahead of the clock go back to it.
The broker does so by itself when it sees that its clock went back; the command is for the rest. In a
cluster a broker resets the partitions that it leads, and the command names the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import (
    add_actions,
    add_common,
    add_flag,
    add_topic,
    add_yes,
    partition_given,
)
from tidelog.cli.output import print_answer, print_json, print_lines, print_table, shown, span_of
from tidelog.cli.shared import CommandError, ask, confirm
from tidelog.text import some

if TYPE_CHECKING:
    import argparse


def add_clock(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog clock`."""
    reset = "let a topic's append times and largest event times that are ahead go back to the clock"
    actions = {
        "status": (_status, "what the clock shows, and how far it is trusted"),
        "accept": (_accept, "trust the clock although it has leapt"),
        "reset": (_reset, reset),
    }
    for action, one in add_actions(parser, actions, add_common, "status"):
        if action == "reset":
            add_topic(one)
        if action != "status":
            add_flag(one, "--dry-run", "only say what it would do")
            add_yes(one)


def _status(options: argparse.Namespace) -> None:
    answer = ask(options.http, "clock")
    if options.json:
        print_json(answer)
        return
    whose = "the machine's" if answer["clock"] == "system" else "a manual one"
    of = f" of broker {answer['broker']}" if "broker" in answer else ""
    print_lines(f"The clock{of} shows {shown(answer, 'now')}. It is {whose}.")
    leap = answer["leap"]
    if leap is not None:
        print_lines(
            f"It leapt from {shown(leap, 'from')} to {shown(leap, 'to')}, and is not trusted: the "
            f"deletion time is {shown(answer, 'deletion_time')}, {span_of(answer['ahead_ms'])} behind it.",
            "If the clock is wrong, correct it. If it is right, run: tidelog clock accept",
        )
    elif answer["behind_ms"]:
        print_lines(
            f"It is behind by up to {span_of(answer['behind_ms'])}, by the time that the machine has "
            f"been running. The deletion time is {shown(answer, 'deletion_time')}."
        )
    else:
        print_lines("It is trusted.")
    waiting = answer.get("topics_ahead", ())
    if waiting:
        print_lines(
            f"Append times are ahead of it, and stand still, in: {', '.join(waiting)}. Other brokers have "
            "copies, so they go back only by: tidelog clock reset TOPIC"
        )
    if answer.get("other_brokers"):  # an older broker does not say
        print_lines(
            "Other brokers have their own: tidelog cluster status compares them, and tidelog doctor finds "
            "times that are ahead in what any of them leads."
        )
    for step in answer.get("steps_back", ()):  # nor this
        to = shown(step, "to")
        print_lines(
            f"Went back from {shown(step, 'from')} to {to}, by "
            f"{span_of(step['from_ms'] - step['to_ms'])}. What has a later append time from before "
            f"counts as written at {to}."
        )
    for step in answer["steps"]:
        print_lines(
            f"Corrected at {shown(step, 'to')}: it had been {span_of(step['shift_ms'])} behind. Append "
            "times that it gave then count as later."
        )


def _accept(options: argparse.Namespace) -> None:
    answer = ask(options.http, "clock")
    leap = answer["leap"]
    if leap is None:
        trusted = "The clock is trusted: there is nothing to accept."
        print_answer(options, {**answer, "accepted": False}, trusted)
        return
    now = shown(answer, "now")
    if not options.json:
        print_lines(
            f"The clock shows {now}, {span_of(answer['ahead_ms'])} after the time that is trusted, "
            f"{shown(answer, 'deletion_time')}.",
            "Once it is accepted, retention, compaction and the expiry of offsets go by it. What was "
            "written before counts as written that much later.",
        )
    if options.dry_run:
        print_answer(options, {**answer, "accepted": False})
        return
    confirm(
        options,
        f"Is it {now} now?",
        f"retention would go by {now}: add --yes if the clock is right, --dry-run to look only",
        "the clock was not accepted",
    )
    answer = ask(options.http, "clock", "accept", body={"to_ms": leap["to_ms"]})
    print_answer(options, {**answer, "accepted": True}, "Accepted.")


# --- reset ---------------------------------------------------------------------------------------


def _reset(options: argparse.Namespace) -> None:
    partition = partition_given(options)
    query = [("partition", options.partition)]
    found = ask(options.http, "topics", options.topic, "clock", query=query)
    rows = _checked(found)
    ahead = [row for row in rows if row["reset"] is not None]
    if not options.json:
        _print_preview(found, ahead)
    elsewhere = [row for row in ahead if row.get("leader") != found.get("broker")]
    ahead = [row for row in ahead if row not in elsewhere]
    if not ahead or options.dry_run:
        print_answer(options, {**found, "done": False})
        if not options.dry_run:
            _refuse(found["topic"], elsewhere)
        return
    what = f"{some(len(ahead), 'partition')} of {found['topic']}"
    confirm(
        options,
        f"Reset {what}?",
        f"{what} would be reset for good: add --yes to do it, --dry-run to look only",
        "nothing was reset",
    )
    body = {"topic_id": found["topic_id"], "partition": partition}
    answer = ask(options.http, "topics", options.topic, "clock", "reset", body=body)
    numbers = {row["partition"] for row in ahead}
    tried = [row for row in answer["partitions"] if row["partition"] in numbers]
    done = [row for row in _checked({**answer, "partitions": tried}) if row["reset"] is not None]
    print_answer(options, {**answer, "done": True}, "", f"Reset: {some(len(done), 'partition')}.")
    _refuse(answer["topic"], elsewhere)


def _refuse(topic: str, elsewhere: list[dict[str, Any]]) -> None:
    """Raises CommandError if there are partitions that other brokers lead."""
    if elsewhere:
        named = ", ".join(
            f"{topic}-{row['partition']} (broker {row['leader']})" for row in elsewhere
        )
        raise CommandError(
            f"only its leader resets a partition, so run this there as well: {named}"
        )


def _checked(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the partitions of an answer. Raises CommandError if one of them failed."""
    for row in answer["partitions"]:
        if "error" in row:
            raise CommandError(f"{answer['topic']}-{row['partition']}: {row['message']}")
    return list(answer["partitions"])


def _print_preview(found: dict[str, Any], ahead: list[dict[str, Any]]) -> None:
    now = shown(found, "now")
    if not ahead:
        print_lines(f"{found['topic']}: no times are ahead of the clock, which shows {now}.")
        return
    print_lines(
        f"{found['topic']}: the clock shows {now}. Append times go on from there, and what was written "
        "before counts as written by then. The largest event time becomes that of the records that remain.",
        "",
    )
    columns = (">partition", ">from offset", "last append", "largest event", "then")
    times = ("last_append_time", "max_event_time", "next_max_event_time")
    print_table(
        columns,
        [
            (
                row["partition"],
                row["reset"]["offset"],
                *(shown(row["reset"], each) for each in times),
            )
            for row in ahead
        ],
    )

"""What would a retention policy delete? Tries it on the real log before it is set.

It uses the broker's own rules. It reports the bytes and records that the next round deletes (at
--at), and what rounds every --step over --horizon delete if nothing is appended; the first offset
and event that are kept; what is deleted soon after it was written; and the segments that a time
from the future keeps. It only reads. Exit status 1: a guard is broken.

    tidelog pipeline whatif --logs /var/lib/tidelog --topics orders --cluster localhost:9092
        --policy week:retention.ms=7d --policy event:retention.max.eventtime.ms=30d
        --horizon 14d --step 1h --guard week:max_killed_early=0

    tidelog pipeline whatif --broker localhost:9092 --topics orders --policy week:retention.ms=7d
    tidelog pipeline whatif --logs ./data --policy small:retention.bytes=1GiB --guard max_pinned_bytes=0

A running cluster is sampled: what its brokers do not tell, above all where segments begin, is
estimated, and the answer says so.

A policy overrides the topic's own settings, which are known if --cluster is given. `rules=kafka` in
a policy selects Apache Kafka's rules. Guards: max_deleted_bytes, max_deleted_records,
max_killed_early, max_pinned_bytes; each applies to every policy, or to the one named before a
colon. Logs that Apache Kafka wrote contain no append times: their records count as appended when a
broker of ours opened them, or now, and the answer says "estimated".
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipeline import options as common
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.report.output import say
from tidelog.pipeline.secured import add_command_config
from tidelog.pipeline.source import locations

if TYPE_CHECKING:
    import argparse

    from tidelog.pipeline.session import Session

_MOST_ROUNDS = 100_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the job."""
    _add_logs(parser.add_argument_group("which logs"))
    _add_trial(parser.add_argument_group("what to try"))
    common.add_run(parser)


def _add_logs(group: argparse._ArgumentGroup) -> None:
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--logs", metavar="DIR", action="append", help="log directories of a broker: exact"
    )
    where.add_argument(
        *common.BROKER,
        "--bootstrap",
        **common.ADDRESSES,
        help="a running cluster instead, which is sampled: estimated. What its topics have set is"
        " tried as `now`",
    )
    group.add_argument(
        "--topics", metavar="A,B|REGEX", help="names, or a regular expression (all but __ topics)"
    )
    group.add_argument(
        "--cluster",
        type=common.brokers,
        metavar="HOST:PORT,...",
        help="the cluster they belong to: its topics' own settings are tried too, as `now`",
    )
    add_command_config(group)


def _add_trial(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="NAME:SETTING=VALUE,...",
        help="settings of a topic under a name; spans may be written 7d; may be given many times",
    )
    group.add_argument("--at", type=common.instant, metavar="TIME", help="the first round (now)")
    group.add_argument(
        "--horizon",
        type=common.duration,
        default=0,
        metavar="SPAN",
        help="continue for so long (0)",
    )
    group.add_argument(
        "--step", type=common.duration, default=3_600_000, metavar="SPAN", help="a round each (1h)"
    )
    group.add_argument(
        "--early",
        type=common.duration,
        default=86_400_000,
        metavar="SPAN",
        help="what is deleted within this of its append was killed early (1d)",
    )
    group.add_argument(
        "--margin",
        type=common.duration,
        default=60_000,
        metavar="SPAN",
        help="how far after --at a time may be before it counts as from the future (1m)",
    )
    group.add_argument(
        "--guard",
        action="append",
        default=[],
        metavar="[POLICY:]NAME=NUMBER",
        help="a bound; exit status 1 where it is broken; may be given many times",
    )


def run(options: argparse.Namespace, session: Session) -> int:
    """Tries the policies; returns the exit status."""
    if options.broker is not None and options.cluster is not None:
        raise UsageError("--cluster goes with --logs: --broker names the cluster already")
    for location in options.logs or ():
        if locations.is_uri(location):
            raise UsageError(
                f"{location}: whatif reads directories; copy the partition's there first"
            )
        if not Path(locations.local(location)).is_dir():
            raise UsageError(f"{location} is no directory")
    if not options.policy and options.cluster is None and options.broker is None:
        raise UsageError("nothing to try: give --policy, or --cluster for what is set now")
    if options.step <= 0:
        raise UsageError("--step must be more than 0")
    if options.horizon // options.step >= _MOST_ROUNDS:
        raise UsageError(f"that is more than {_MOST_ROUNDS} rounds: take a longer --step")
    now_ms = time.time_ns() // 1_000_000
    at_ms = now_ms if options.at is None else options.at
    name = options.run or common.new_run_id("whatif", now_ms)
    from tidelog.pipeline.runs import whatif_run

    trial = whatif_run.Trial(options, session, name, at_ms)
    if options.dry_run:
        say(trial.described())
        return OK
    return whatif_run.leave(trial.report(), Path(options.out) / name, options.report)

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
from typing import TYPE_CHECKING, Final

from tidelog.pipeline import options as common
from tidelog.pipeline.declaring import Item, Many, Options, Text, declared
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.options import Instant, RunOptions
from tidelog.pipeline.report.output import say
from tidelog.pipeline.source import locations

if TYPE_CHECKING:
    from tidelog.pipeline.session import TaskSession

_MOST_ROUNDS = 100_000


@declared
class Logs(Options):
    """Which logs are tried."""

    section = "which logs"
    one_of = ("logs", "broker")
    needs_one = True

    logs: Many[str] = Many("log directories of a broker: exact", metavar="DIR")
    broker: Text = common.addresses(
        "a running cluster instead, which is sampled: estimated. What its topics have set is"
        " tried as `now`",
        also=(*common.BROKER, "--bootstrap"),
    )
    topics: Text = common.topics()
    cluster: Text = common.addresses(
        "the cluster they belong to: its topics' own settings are tried too, as `now`"
    )
    command_config: Text = Text(common.COMMAND_CONFIG, metavar="FILE")


@declared
class WhatifOptions(RunOptions, Logs):
    """The options of the job."""

    job = "whatif"
    section = "what to try"

    policy: Many[str] = Many(
        "settings of a topic under a name; spans may be written 7d; may be given many times",
        metavar="NAME:SETTING=VALUE,...",
    )
    at: Item[Instant | None] = common.moment("the first round (now)")
    horizon: Item[int] = common.span("continue for so long (0)", default=0)
    step: Item[int] = common.span("a round each (1h)", default=3_600_000)
    early: Item[int] = common.span(
        "what is deleted within this of its append was killed early (1d)", default=86_400_000
    )
    margin: Item[int] = common.span(
        "how far after --at a time may be before it counts as from the future (1m)", default=60_000
    )
    guard: Many[str] = Many(
        "a bound; exit status 1 where it is broken; may be given many times",
        metavar="[POLICY:]NAME=NUMBER",
    )


OPTIONS: Final = WhatifOptions


def run(options: WhatifOptions, session: TaskSession) -> int:
    """Tries the policies; returns the exit status."""
    if options.broker is not None and options.cluster is not None:
        raise UsageError("--cluster goes with --logs: --broker names the cluster already")
    for location in options.logs:
        if locations.is_uri(location):
            raise UsageError(
                f"{location}: whatif reads directories; copy the partition's there first"
            )
        if not Path(locations.local(location)).is_dir():
            raise UsageError(f"{location} is not a directory")
    if not options.policy and options.cluster is None and options.broker is None:
        raise UsageError("nothing to try: give --policy, or --cluster for what is set now")
    if options.step <= 0:
        raise UsageError("--step must be more than 0")
    if options.horizon // options.step >= _MOST_ROUNDS:
        raise UsageError(f"that is more than {_MOST_ROUNDS} rounds: take a longer --step")
    at_ms = time.time_ns() // 1_000_000 if options.at is None else options.at
    from tidelog.pipeline.runs import whatif_run

    trial = whatif_run.Trial(options, session, at_ms)
    if options.dry_run:
        say(trial.described())
        return OK
    return whatif_run.leave(trial.report(), options.run_directory, options.report)

"""Copy topics from one cluster (or from log directories) to another, unchanged.

Every record keeps its key, value, headers, partition and event time; a topic with LogAppendTime in
the target gives records its own times. Each record is written exactly once if the target has
transactions or if nobody else writes to its partitions (--delivery), even if processes are killed:
repeat the run with the same --run. The file offsets.parquet in the directory of the run says where
every record went, as ranges of offsets; failover reads it. With --follow the job continues in
rounds.

    tidelog pipeline mirror --broker a:9092 --to-broker b:9092 --topics orders --create --run first
    tidelog pipeline mirror --broker a:9092 --to-broker b:9092 --topics orders --create --follow 5
    tidelog pipeline mirror --logs ./data --upto log-end --to-broker b:9092 --topics orders --create
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipeline import options as shared
from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.plan import PLAN, at_work
from tidelog.pipeline.replay import targets
from tidelog.pipeline.runs import MIRROR

if TYPE_CHECKING:
    import argparse

    from tidelog.pipeline.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the job."""
    shared.add_source(parser)
    targets.add_target(parser)
    group = parser.add_argument_group("mirroring")
    shared.add_rename(group)
    shared.add_ends(group)
    group.add_argument(
        "--allow-gone",
        action="store_true",
        help="continue if retention deleted records before they were read (else that is an error)",
    )
    group.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="continue with new records, in a round every so many seconds, until interrupted",
    )
    group.add_argument("--rounds", type=int, metavar="N", help="with --follow: stop after so many")
    shared.add_run(parser)


def run(options: argparse.Namespace, session: Session) -> int:
    """Mirrors once, or in rounds; returns the exit status."""
    from tidelog.pipeline.runs import mirror_run

    name = options.run or shared.new_run_id(MIRROR, time.time_ns() // 1_000_000)
    directory = Path(options.out) / name
    first = directory if options.follow is None else mirror_run.directory_of(directory, 0)
    shared.as_begun(options, first / PLAN)
    selection = shared.selection_of(
        options, isolation=options.isolation, allow_gone=options.allow_gone, upto=options.upto
    )
    _refuse_a_circle(options)
    one = mirror_run.Round(name, directory, selection)
    if options.dry_run:
        if options.follow is not None:
            raise UsageError("--follow has no --dry-run")
        return mirror_run.mirror(options, session, one)
    if options.follow is not None and options.broker is None:
        raise UsageError("--follow needs --broker")
    with at_work(directory):
        work = mirror_run.mirror if options.follow is None else mirror_run.follow
        return work(options, session, one)


def _refuse_a_circle(options: argparse.Namespace) -> None:
    """Raises UsageError if a topic would be mirrored onto itself."""
    same = options.broker is not None and {*options.broker.split(",")} & {
        *options.to_broker.split(",")
    }
    if same:
        names, _ = shared.topics_of(options.topics)
        renamed = dict(options.rename)
        if not names or any(renamed.get(name, name) == name for name in names):
            raise UsageError(
                "source and target are the same cluster: name the topics, and give each another name"
                " with --rename"
            )

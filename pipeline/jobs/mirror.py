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

from typing import TYPE_CHECKING, Final

from tidelog.pipeline import options as shared
from tidelog.pipeline.declaring import Choice, Flag, Item, Many, declared
from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.options import Isolation, RunOptions, TimedSource, UpTo
from tidelog.pipeline.plan import PLAN, at_work
from tidelog.pipeline.replay.targets import Writing
from tidelog.pipeline.runs import MIRROR

if TYPE_CHECKING:
    from tidelog.pipeline.session import TaskSession


@declared
class MirrorOptions(RunOptions, Writing, TimedSource):
    """The options of the job."""

    job = MIRROR
    section = "mirroring"

    rename: Many[tuple[str, str]] = shared.pairs("write a topic under another name", "TOPIC=NEW")
    isolation: Choice[Isolation] = shared.isolation()
    upto: Choice[UpTo] = shared.upto()
    allow_gone: Flag = Flag(
        "continue if retention deleted records before they were read (else that is an error)"
    )
    follow: Item[float | None] = Item(
        "continue with new records, in a round every so many seconds, until interrupted",
        parse=shared.real,
        metavar="SECONDS",
    )
    rounds: Item[int | None] = Item(
        "with --follow: stop after so many", parse=shared.whole, metavar="N"
    )


OPTIONS: Final = MirrorOptions


def run(options: MirrorOptions, session: TaskSession) -> int:
    """Mirrors once, or in rounds; returns the exit status."""
    from tidelog.pipeline.runs import mirror_run

    directory = options.run_directory
    first = directory if options.follow is None else mirror_run.directory_of(directory, 0)
    options = shared.as_begun(options, first / PLAN)
    selection = shared.selection_of(
        options, isolation=options.isolation, allow_gone=options.allow_gone, upto=options.upto
    )
    _refuse_a_circle(options)
    one = mirror_run.Round(options.run, directory, selection)
    if options.dry_run:
        if options.follow is not None:
            raise UsageError("--follow has no --dry-run")
        return mirror_run.mirror(options, session, one)
    if options.follow is not None and options.broker is None:
        raise UsageError("--follow needs --broker")
    with at_work(directory):
        work = mirror_run.mirror if options.follow is None else mirror_run.follow
        return work(options, session, one)


def _refuse_a_circle(options: MirrorOptions) -> None:
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

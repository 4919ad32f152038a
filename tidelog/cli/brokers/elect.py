"""`tidelog cluster elect`: lets the first replicas lead again, or any replica where nobody leads.

A preferred election moves the leadership to a partition's first replica, if that is in sync. Nothing is
lost. An unclean one (`--unclean`) elects any replica that is up for a partition without a leader: what
that replica does not have is gone, so the partitions are named, and the command asks. Exit status: 1 if a
partition has not got the leader that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_flag, add_yes
from tidelog.cli.brokers.assignments import metadata
from tidelog.cli.cluster import Cluster
from tidelog.cli.connecting import sentence_of
from tidelog.cli.output import print_json, print_lines, print_table
from tidelog.cli.places import places_given, places_in
from tidelog.cli.shared import FAILED, UsageError, confirm
from tidelog.client.calls import brokers as calls
from tidelog.protocol.errors import ErrorCode
from tidelog.text import some

if TYPE_CHECKING:
    import argparse

    from tidelog.client import RequestError
    from tidelog.protocol.topic_partition import TopicPartition

_AT_ONCE = 1000  # partitions in one request


def add_elect(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster elect`."""
    what = "topics, or some of their partitions (TOPIC:0,2); all, if none is named"
    parser.add_argument("places", metavar="TOPIC", nargs="*", help=what)
    add_flag(parser, "--unclean", "any replica, where nobody leads: records may be lost")
    add_yes(parser)


def run_elect(options: argparse.Namespace) -> int:
    """Runs `tidelog cluster elect`; returns the exit status. Raises CommandError."""
    if options.unclean and not options.places:
        raise UsageError("--unclean needs TOPIC, because records may be lost")
    with Cluster(options.broker) as cluster:
        wanted = places_given(options.places)
        if not wanted:
            wanted = dict.fromkeys(each.name for each in cluster.topics())
        places = places_in(cluster, wanted)
        if options.unclean:
            what = f"records of {', '.join(wanted)} that the new leaders do not have"
            refusal = f"{what} would be lost for good: add --yes"
            confirm(options, f"Lose {what}?", refusal, "nobody was elected")
        found: dict[TopicPartition, RequestError | None] = {}
        for start in range(0, len(places), _AT_ONCE):
            call = calls.elect(places[start : start + _AT_ONCE], unclean=options.unclean)
            found |= cluster.perform(call)
        leaders = {
            (topic.name, each.partition_index): each.leader_id
            for topic in metadata(cluster).topics
            for each in topic.partitions
        }
    return _print(options, found, leaders)


def _print(
    options: argparse.Namespace,
    found: dict[TopicPartition, RequestError | None],
    leaders: dict[TopicPartition, int],
) -> int:
    rows: list[dict[str, Any]] = []
    for (topic, number), error in sorted(found.items()):
        if error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        leader = leaders.get((topic, number), -1)
        reason = None if error is None else sentence_of(error)
        row = {"topic": topic, "partition": number, "leader": leader if leader >= 0 else None}
        rows.append({**row, "elected": error is None, "error": reason})
    unneeded = len(found) - len(rows)
    if options.json:
        print_json({"elections": rows, "not_needed": unneeded})
    else:
        columns = ("partition", ">leader", "")
        cells = [
            (f"{each['topic']}-{each['partition']}", each["leader"], each["error"] or "elected")
            for each in rows
        ]
        if rows:
            print_table(columns, cells)
            print_lines("")
        print_lines(f"No election is needed for {some(unneeded, 'partition')}.")
    return FAILED if any(each["error"] for each in rows) else 0

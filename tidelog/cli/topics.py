"""`tidelog topics`: lists, describes, creates, deletes and alters topics, over Kafka's protocol.

Actions that delete say what, and ask for confirmation, or need --yes without a terminal. The
command warns before it changes the broker's own topics.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_actions, add_many, add_yes, number_given
from tidelog.cli.brokers.assignments import begin_moves
from tidelog.cli.brokers.resize import moves_to
from tidelog.cli.cluster import Cluster
from tidelog.cli.configs import DEFAULT, Changes, add_asking, alter, as_json, settings_of
from tidelog.cli.escaping import escaped
from tidelog.cli.output import print_answer, print_json, print_lines, print_table
from tidelog.cli.shared import UsageError, confirm
from tidelog.client import EARLIEST, LATEST
from tidelog.text import size_of, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from tidelog.cli.brokers.resize import Moves
    from tidelog.cli.cluster import TopicStatus

_OWN = {  # what happens to the broker's own topics
    "__consumer_offsets": "it contains the committed offsets of groups",
    "__transaction_state": "it contains the state of transactions",
}
_MOST_PARTITIONS, _MOST_REPLICAS = 2**31 - 1, 2**15 - 1  # of the protocol's fields


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog topics`; without an action it lists topics."""
    actions = {
        "list": (_list, "list the topics"),
        "describe": (_describe, "ids, partitions, offsets, sizes and what somebody has set"),
        "create": (_create, "make topics"),
        "delete": (_delete, "delete topics and what is in them"),
        "alter": (_alter, "add partitions or replicas, change settings"),
    }
    for action, one in add_actions(parser, actions):
        if action == "describe":
            one.add_argument("topics", metavar="TOPIC", nargs="*", help="all, if none is named")
        elif action != "list":
            one.add_argument("topics", metavar="TOPIC", nargs="+")
        if action in ("create", "alter"):
            one.add_argument("--partitions", metavar="N", help="how many, in all")
            what = "a setting (retention.ms=7d); may be given many times"
            add_many(one, "--set", "KEY=VALUE", what)
            what = "on how many brokers each partition is"
            if action == "create":
                what += " (the broker's default.replication.factor)"
            one.add_argument("--replication-factor", metavar="N", help=what)
        if action == "alter":
            add_many(one, "--unset", "KEY", "take it back")
            add_asking(one)
        if action == "delete":
            add_yes(one)


def _list(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        topics = cluster.topics()
    if options.json:
        _print_named(topics)
        return
    print_table(
        ("topic", ">partitions", "id", ""),
        [
            (each.name, len(each.partitions), each.topic_id, "internal" if each.is_internal else "")
            for each in topics
        ],
    )


def _print_named(topics: Iterable[TopicStatus]) -> None:
    print_json([_named(topic) | {"partitions": len(topic.partitions)} for topic in topics])


def _named(topic: TopicStatus) -> dict[str, Any]:
    return {"topic": topic.name, "topic_id": topic.topic_id, "internal": topic.is_internal}


def _describe(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        described = [_described(cluster, topic) for topic in cluster.topics(options.topics or None)]
    if options.json:
        print_json(described)
        return
    for number, topic in enumerate(described):
        if number:
            print_lines("")
        _print_topic(topic)


def _described(cluster: Cluster, topic: TopicStatus) -> dict[str, Any]:
    name = topic.name
    places = [(name, each.number) for each in topic.partitions if not each.has_error]
    starts, ends = (cluster.offsets(places, at) for at in (EARLIEST, LATEST))
    sizes = cluster.sizes(topic)
    changed = [entry for entry in cluster.settings(name) if entry.source != DEFAULT]
    return {
        **_named(topic),
        "settings": {entry.name: as_json(entry) for entry in changed},
        "partitions": [
            {
                "partition": each.number,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.in_sync),
                "log_start_offset": starts.get((name, each.number)),
                "end_offset": ends.get((name, each.number)),
                "size": sizes.get(each.number),
            }
            for each in topic.partitions
        ],
    }


def _print_topic(topic: Mapping[str, Any]) -> None:
    partitions = some(len(topic["partitions"]), "partition")
    internal = ", internal" if topic["internal"] else ""
    print_lines(f"{topic['topic']}: id {topic['topic_id']}, {partitions}{internal}", "")
    print_table(
        (">partition", ">leader", "replicas", "in sync", ">start", ">end", ">size"),
        [
            (
                each["partition"],
                each["leader"] if each["leader"] >= 0 else "none",
                ", ".join(map(str, each["replicas"])),
                ", ".join(map(str, each["isr"])),
                each["log_start_offset"],
                each["end_offset"],
                None if each["size"] is None else size_of(each["size"]),
            )
            for each in topic["partitions"]
        ],
    )
    print_lines("")
    if not topic["settings"]:
        print_lines("Nobody has set anything: every setting is the default.")
        return
    print_table(
        ("setting", "value", "from", "default"),
        [
            (name, entry["value"] or "", entry["source"], entry["default"] or "")
            for name, entry in topic["settings"].items()
        ],
    )


def _create(options: argparse.Namespace) -> None:
    count = _count("--partitions", options.partitions, _MOST_PARTITIONS)
    factor = _count("--replication-factor", options.replication_factor, _MOST_REPLICAS)
    settings = settings_of(options.set)
    with Cluster(options.broker) as cluster:
        for name in options.topics:
            cluster.create_topic(name, count, settings, replication_factor=factor)
            if not options.json:
                print_lines(f"Created {name}.")
        if options.json:
            _print_named(cluster.topics(options.topics))


def _count(option: str, text: str | None, most: int) -> int:
    """Returns the number that an option gives; -1, the broker's default, if it is not given."""
    return -1 if text is None else number_given(option, text, 1, most)


def _delete(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        topics = cluster.topics(options.topics)
        names = [topic.name for topic in topics]
        listed = ", ".join(names)
        own = _own(topics)
        confirm(
            options,
            f"{own}Delete {listed} and all records there, for good?",
            f"{own}{listed} and all records there would be deleted for good: add --yes",
            "nothing was deleted",
        )
        cluster.delete_topics(names)
    print_answer(options, [_named(topic) for topic in topics], f"Deleted {listed}.")


def _own(topics: Iterable[TopicStatus]) -> str:
    """Returns a warning if one of these topics is the broker's own, else an empty text."""
    return "".join(
        f"{topic.name} is the broker's own: {_OWN.get(topic.name, 'it needs it')}. "
        for topic in topics
        if topic.is_internal
    )


def _alter(options: argparse.Namespace) -> None:
    count = factor = None
    if options.partitions is not None:
        count = _count("--partitions", options.partitions, _MOST_PARTITIONS)
    if options.replication_factor is not None:
        factor = _count("--replication-factor", options.replication_factor, _MOST_REPLICAS)
    changes: Changes = {**settings_of(options.set), **dict.fromkeys(options.unset)}
    if count is None and factor is None and not changes:
        raise UsageError("nothing to alter: --partitions, --replication-factor, --set or --unset")
    altered_topics = []
    with Cluster(options.broker) as cluster:
        topics = cluster.topics(options.topics)
        if own := _own(topics):
            sys.stderr.write(f"tidelog topics alter: warning: {escaped(own.rstrip())}\n")
        if factor is not None:
            moves_to(cluster, options.topics, factor)  # refuses what is impossible
        for topic in topics:
            name = topic.name
            changed = not options.dry_run
            altered = {"topic": name, "changes": {}, "changed": changed, "deletes": []}
            if changes:
                altered = alter(cluster, name, changes, options)
            if count is not None:
                cluster.add_partitions(name, count, validate_only=options.dry_run)
                if options.dry_run and not options.json:
                    print_lines(f"{name} would have {some(count, 'partition')}.")
            moves = {} if factor is None else moves_to(cluster, [name], factor)
            replicas = {index: each for (_, index), each in sorted(moves.items())}
            altered_topics.append(altered | {"partitions": count, "replicas": replicas})
            if changed:
                begin_moves(cluster, moves)
            if not options.json:
                if moves:
                    _print_moves(name, moves, begun=changed)
                if moves or changes or count is not None:
                    print_lines(*([f"Changed {name}."] if changed else []))
                else:
                    print_lines(
                        f"{name} has {some(factor or 0, 'replica')} of each partition already."
                    )
    if options.json:
        print_json(altered_topics)


def _print_moves(topic: str, moves: Moves, *, begun: bool) -> None:
    """Says which brokers have a partition's replicas from now on."""
    rows = [
        (f"{topic}-{index}", ", ".join(map(str, replicas)))
        for (_, index), replicas in sorted(moves.items())
    ]
    print_table(("partition", "replicas"), rows)
    if begun:
        print_lines(
            "New replicas are being copied: tidelog cluster status --unhealthy shows the rest."
        )

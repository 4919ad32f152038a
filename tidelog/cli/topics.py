"""`tidelog topics`: lists, describes, creates, deletes and alters topics, over Kafka's protocol.

Actions that delete say what, and ask for confirmation, or need --yes without a terminal. The
command warns before it changes the broker's own topics.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tidelog.cli.cluster import Cluster
from tidelog.cli.configs import Changes, add_asking, alter, as_json, settings_of
from tidelog.cli.escaping import escaped
from tidelog.cli.shared import (
    USAGE,
    CommandError,
    add_actions,
    add_yes,
    confirm,
    print_json,
    print_lines,
    print_table,
    run_action,
)
from tidelog.client import EARLIEST, LATEST
from tidelog.text import size_of, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from tidelog.cli.cluster_parts import Topic

_OWN = {  # what happens to the broker's own topics
    "__consumer_offsets": "it contains the committed offsets of groups",
    "__transaction_state": "it contains the state of transactions",
}
_SET_HELP = "a setting (retention.ms=7d); may be given many times"
_MOST_PARTITIONS, _MOST_REPLICAS = 2**31 - 1, 2**15 - 1  # of the protocol's fields
_DESCRIBED = {
    "list": "list the topics",
    "describe": "ids, partitions, offsets, sizes and what somebody has set",
    "create": "make topics",
    "delete": "delete topics and what is in them",
    "alter": "add partitions, change settings",
}


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog topics`; without an action it lists topics."""
    for action, one in add_actions(parser, _DESCRIBED):
        if action == "describe":
            one.add_argument("topics", metavar="TOPIC", nargs="*", help="all, if none is named")
        elif action != "list":
            one.add_argument("topics", metavar="TOPIC", nargs="+")
        if action in ("create", "alter"):
            one.add_argument("--partitions", metavar="N", help="how many, in all")
            one.add_argument(
                "--set", metavar="KEY=VALUE", action="append", default=[], help=_SET_HELP
            )
        if action == "create":
            one.add_argument(
                "--replication-factor",
                metavar="N",
                help="on how many brokers each partition is (the broker's default.replication.factor)",
            )
        if action == "alter":
            one.add_argument(
                "--unset", metavar="KEY", action="append", default=[], help="take it back"
            )
            add_asking(one)
        if action == "delete":
            add_yes(one)


def run_topics(options: argparse.Namespace) -> int:
    """Runs `tidelog topics`; returns the exit status."""
    actions = {
        "list": _list,
        "describe": _describe,
        "create": _create,
        "delete": _delete,
        "alter": _alter,
    }
    return run_action("topics", actions, options)


def _list(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        topics = cluster.topics()
    if options.json:
        print_json([_named(topic) | {"partitions": len(topic.partitions)} for topic in topics])
        return
    print_table(
        ("topic", "partitions", "id", ""),
        [
            (
                topic.name,
                str(len(topic.partitions)),
                topic.topic_id,
                "internal" if topic.is_internal else "",
            )
            for topic in topics
        ],
        right=("partitions",),
    )


def _named(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
    }


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


def _described(cluster: Cluster, topic: Topic) -> dict[str, Any]:
    name = topic.name
    numbers = [each.number for each in topic.partitions if not each.has_error]
    starts, ends = (cluster.offsets(name, numbers, at) for at in (EARLIEST, LATEST))
    sizes = cluster.sizes(topic)
    changed = [entry for entry in cluster.settings(name) if entry.source != "default"]
    return {
        **_named(topic),
        "settings": {entry.name: as_json(entry) for entry in changed},
        "partitions": [
            {
                "partition": each.number,
                "leader": each.leader,
                "log_start_offset": starts.get(each.number),
                "end_offset": ends.get(each.number),
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
        ("partition", "leader", "start", "end", "size"),
        [
            (
                str(each["partition"]),
                str(each["leader"]) if each["leader"] >= 0 else "none",
                *(
                    "-" if each[name] is None else str(each[name])
                    for name in ("log_start_offset", "end_offset")
                ),
                "-" if each["size"] is None else size_of(each["size"]),
            )
            for each in topic["partitions"]
        ],
        right=("partition", "leader", "start", "end", "size"),
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
            topics = cluster.topics(options.topics)
            print_json([_named(topic) | {"partitions": len(topic.partitions)} for topic in topics])


def _count(option: str, text: str | None, most: int) -> int:
    """Returns the number that an option gives; -1, the broker's default, if it is not given."""
    if text is None:
        return -1
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text[:12]) <= most:
        raise CommandError(f"{option} {text}: expected a number from 1 to {most}", USAGE)
    return int(text)


def _delete(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        topics = cluster.topics(options.topics)
        names = [topic.name for topic in topics]
        listed = ", ".join(names)
        own = _own(topics)
        confirm(
            f"{own}Delete {listed} and all that is in there, for good?",
            refusal=f"{own}{listed} and all that is in there would be gone for good: add --yes",
            declined="nothing was deleted",
            yes=options.yes,
        )
        cluster.delete_topics(names)
    if options.json:
        print_json([_named(topic) for topic in topics])
    else:
        print_lines(f"Deleted {listed}.")


def _own(topics: Iterable[Topic]) -> str:
    """Returns a warning if one of these topics is the broker's own, else an empty text."""
    return "".join(
        f"{topic.name} is the broker's own: {_OWN.get(topic.name, 'it needs it')}. "
        for topic in topics
        if topic.is_internal
    )


def _alter(options: argparse.Namespace) -> None:
    count = None
    if options.partitions is not None:
        count = _count("--partitions", options.partitions, _MOST_PARTITIONS)
    changes: Changes = {**settings_of(options.set), **dict.fromkeys(options.unset)}
    if count is None and not changes:
        raise CommandError("nothing to alter: --partitions, --set or --unset", USAGE)
    altered_topics = []
    with Cluster(options.broker) as cluster:
        topics = cluster.topics(options.topics)
        if own := _own(topics):
            sys.stderr.write(f"tidelog topics alter: warning: {escaped(own.rstrip())}\n")
        for topic in topics:
            name = topic.name
            changed = not options.dry_run
            altered: dict[str, Any] = {
                "topic": name,
                "changes": {},
                "changed": changed,
                "deletes": [],
            }
            if changes:
                altered = alter(cluster, name, changes, options)
            if count is not None and changed:
                cluster.add_partitions(name, count)
            altered_topics.append(altered | {"partitions": count})
            if changed and not options.json:
                print_lines(f"Changed {name}.")
    if options.json:
        print_json(altered_topics)

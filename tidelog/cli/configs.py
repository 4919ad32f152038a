"""`tidelog configs`: shows and changes settings of a topic or of the broker, with their sources.

The broker first validates a change. If the next round of retention would delete more with it than
without it, the command says how much, and asks for confirmation. The numbers come from the preview of
the leaders, as in `tidelog explain --set`. It asks too if one of them is not known. `list` and `remove`
ask no broker (`stored_configs.py`).
"""

from __future__ import annotations

from argparse import SUPPRESS
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.arguments import add_actions, add_broker, add_flag, add_json, add_yes, value_given
from tidelog.cli.brokers.adopt import add_settings
from tidelog.cli.cluster import Cluster
from tidelog.cli.nearest import did_you_mean
from tidelog.cli.output import print_json, print_lines, print_table
from tidelog.cli.shared import USAGE, CommandError, UsageError, ask, confirm
from tidelog.client.calls.settings import SOURCE_TOPIC
from tidelog.text import size_of, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.cli.cluster import TopicStatus
    from tidelog.client.calls.settings import Setting

Changes = dict[str, str | None]

_NAMED = 3  # reasons in one sentence
DEFAULT = 5
"""The source of a setting that nobody has set."""
_SOURCES = {
    SOURCE_TOPIC: "topic",
    2: "broker, set live",
    3: "all brokers, set live",
    4: "broker's start",
    DEFAULT: "default",
}
_LIVE = (2, 3)
DELETING = ("retention.", "cleanup.policy", "log.retention.", "log.cleanup.policy")
"""How settings begin whose change may delete records."""


class Deletion(NamedTuple):
    """What the next round of retention would delete of a topic only because of the change."""

    topic: str
    segments: int
    records: int
    bytes: int
    policies: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{some(self.segments, 'segment')}, {some(self.records, 'record')}, "
            f"{size_of(self.bytes)} of {self.topic} (by {', '.join(self.policies)})"
        )


def add_configs(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog configs`."""
    add_broker(parser)
    actions = {
        "show": (_show_or_change, "list the settings"),
        "set": (_show_or_change, "change settings"),
        "unset": (_show_or_change, "remove settings"),
        "list": (_stored, "list what is stored in the metadata, without a broker"),
        "remove": (_stored, "remove what is stored there, without a broker"),
    }
    directory = "list and remove: the first log directory of a broker that is stopped"
    parser.add_argument("--directory", metavar="DIR", help=directory)
    for action, one in add_actions(parser, actions, add_json, None):
        if action == "show":
            what = "a topic, and single settings"
            one.add_argument("names", metavar="TOPIC [KEY]", nargs="*", help=what)
            add_flag(one, "--changed", "only those that somebody has set")
        elif action == "set":
            what = "retention.ms=7d, say"
            one.add_argument("names", metavar="TOPIC KEY=VALUE", nargs="*", help=what)
        elif action == "unset":
            one.add_argument("names", metavar="TOPIC KEY", nargs="*")
        elif action == "remove":
            one.add_argument("names", metavar="KEY", nargs="+")
            what = (
                "whose they are, as `list` shows it: brokers (all of them), broker:2, topic:NAME, "
                "quota:ENTITY"
            )
            one.add_argument("--of", metavar="OWNER", default="brokers", help=what)
            add_yes(one)
        if action in ("list", "remove"):
            one.add_argument("--directory", metavar="DIR", default=SUPPRESS, help=directory)
            add_settings(one)
        else:
            add_flag(one, "--of-broker", "the broker's settings; no TOPIC is named")
            add_broker(one)
        if action in ("set", "unset"):
            add_asking(one)


def add_asking(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that may delete."""
    add_flag(parser, "--dry-run", "only show what would happen")
    add_yes(parser)


def _stored(options: argparse.Namespace) -> None:
    from tidelog.cli.stored_configs import run_stored

    run_stored(options)


def _show_or_change(options: argparse.Namespace) -> None:
    if options.directory is not None:
        raise UsageError(f"{options.action} asks a broker: --directory is for list and remove")
    names = list(options.names)
    if options.of_broker:
        topic = None
    elif names and "=" not in names[0]:
        topic = names.pop(0)
    else:
        raise UsageError("TOPIC is missing (or --of-broker)")
    if options.action == "show":
        with Cluster(options.broker) as cluster:
            _check_topic(cluster, topic)
            _show(cluster, topic, names, options)
        return
    if not names:
        raise UsageError("no setting is named")
    changes: Changes = dict.fromkeys(names)
    if options.action == "set":
        changes = {**settings_of(names)}
    elif wrong := [name for name in names if "=" in name]:
        raise UsageError(f"{wrong[0]}: unset takes names alone")
    with Cluster(options.broker) as cluster:
        _check_topic(cluster, topic)
        answer = alter(cluster, topic, changes, options)
        if options.json:
            print_json(answer)
        elif answer["changed"]:
            print_lines(f"Changed {topic or 'the broker'}: {_listed(changes)}.")


def _check_topic(cluster: Cluster, topic: str | None) -> None:
    """Raises CommandError for a topic that does not exist."""
    if topic is not None:
        cluster.topics([topic])


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """Parses KEY=VALUE; a value may have a unit ("7d", "64MiB"). Raises CommandError."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UsageError(f"{text}: expected KEY=VALUE")
        value = value_given(name, value)
        if found.setdefault(name, value) != value:
            raise UsageError(f"{name} is given twice")
    return found


# --- showing -------------------------------------------------------------------------------------


def _show(
    cluster: Cluster, topic: str | None, names: Sequence[str], options: argparse.Namespace
) -> None:
    entries = cluster.settings(topic, names)
    if unknown := [name for name in names if name not in {entry.name for entry in entries}]:
        near = did_you_mean(unknown[0], [entry.name for entry in cluster.settings(topic)])
        raise UsageError(f"there is no setting {unknown[0]}{near}")
    shown = [entry for entry in entries if not (options.changed and entry.source == DEFAULT)]
    of = {"topic": topic, **({} if topic is not None else {"broker": cluster.broker_here()})}
    if options.json:
        print_json(of | {"settings": {entry.name: as_json(entry) for entry in shown}})
        return
    if topic is None:
        print_lines(f"Settings of broker {of['broker']}:", "")
    print_table(
        ("setting", "value", "from", "default", "meaning"),
        [
            (
                entry.name,
                "(hidden)" if entry.is_sensitive else entry.value or "",
                _source(entry.source) + (" (fixed)" if entry.is_read_only else ""),
                _default(entry) or "",
                entry.documentation,
            )
            for entry in shown
        ],
        wraps="meaning",
    )


def as_json(entry: Setting) -> dict[str, Any]:
    """Returns a setting as JSON."""
    return {
        "value": entry.value,
        "source": _source(entry.source),
        "default": _default(entry),
        "read_only": entry.is_read_only,
        "doc": entry.documentation,
        "synonyms": [
            {"name": name, "value": value, "source": _source(source)}
            for name, value, source in entry.synonyms
        ],
    }


def _source(number: int) -> str:
    return _SOURCES.get(number, str(number))


def _default(entry: Setting) -> str | None:
    """Returns the value if the setting is not set anywhere."""
    return entry.synonyms[-1][1] if entry.synonyms else None


def _listed(changes: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{name} removed" if value is None else f"{name}={value}" for name, value in changes.items()
    )


# --- changing ------------------------------------------------------------------------------------


def alter(
    cluster: Cluster, topic: str | None, changes: Changes, options: argparse.Namespace
) -> dict[str, Any]:
    """Changes settings after it has reported and confirmed what that deletes.

    Returns the report as JSON. Raises CommandError.
    """
    _check_unset(cluster, topic, changes)
    cluster.alter(topic, changes, validate_only=True)
    deletions, unknown = _deletions(cluster, topic, changes, options)
    going = f"for good {'; '.join(map(str, deletions))}" if deletions else "nothing more"
    sentence = f"with {_listed(changes)} the next round of retention deletes {going}"
    if unknown:
        known = f". It deletes for good {'; '.join(map(str, deletions))}" if deletions else ""
        sentence = (
            f"what {_listed(changes)} would delete is unknown, because {_some(unknown)}{known}"
        )
    refusal = f"{sentence}: add --yes to change it, --dry-run to look only"
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    if options.dry_run:
        if not options.json:
            print_lines(sentence)
    else:
        if deletions or unknown:
            confirm(options, f"{sentence} Change it?", refusal, "nothing was changed")
        cluster.alter(topic, changes)
    return {
        "topic": topic,
        "changes": changes,
        "changed": not options.dry_run,
        "deletes": None if unknown else [each._asdict() for each in deletions],
        "unknown": unknown,
    }


def _some(reasons: Sequence[str]) -> str:
    more = len(reasons) - _NAMED
    return "; ".join(reasons[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _check_unset(cluster: Cluster, topic: str | None, changes: Changes) -> None:
    """Raises CommandError for removing a setting that is unknown or not set; brokers accept both."""
    names = [name for name, value in changes.items() if value is None]
    if names:
        entries = (*cluster.settings(topic), *cluster.settings(topic, names))
        known = {name for each in entries for name in (each.name, *(s[0] for s in each.synonyms))}
        sources = _LIVE if topic is None else (SOURCE_TOPIC,)
        there = {each.name for each in entries if each.source in sources}
        there.update(s[0] for each in entries for s in each.synonyms if s[2] in sources)
        for name in names:
            if name not in known:
                raise UsageError(f"there is no setting {name}{did_you_mean(name, sorted(known))}")
            if name not in there:
                raise CommandError(f"{topic or 'the broker'} has not set {name}: nothing to remove")


def _deletions(
    cluster: Cluster, topic: str | None, changes: Changes, options: argparse.Namespace
) -> tuple[list[Deletion], list[str]]:
    """Returns what the changes would delete, by topic, and why more of it is unknown.

    Raises CommandError.
    """
    found: list[Deletion] = []
    unknown: list[str] = []
    if not any(name.startswith(DELETING) for name in changes):
        return found, unknown
    is_one_of_several = len(cluster.node_ids()) > 1
    for each in cluster.topics(None if topic is None else [topic]):
        entries = cluster.settings(each.name)
        effective = _effective(entries, changes, is_own=topic is not None)
        if effective:
            try:
                deletion, reasons = _preview(
                    options.http, each, effective, is_one_of_several=is_one_of_several
                )
            except CommandError as error:
                if error.status == USAGE:
                    raise
                return found, [*unknown, str(error)]
            found += [] if deletion is None else [deletion]
            unknown += reasons
    return found, unknown


def _effective(entries: Sequence[Setting], changes: Changes, *, is_own: bool) -> dict[str, str]:
    """Returns the settings of a topic that change, if the changes are its own or the broker's.

    One that is removed has its fallback value. The broker's do not change what a topic has of its own.
    """
    found = {}
    for entry in entries:
        names = {entry.name} if is_own else {name for name, _, _ in entry.synonyms}
        if not is_own and entry.source == SOURCE_TOPIC:
            continue
        gone = (SOURCE_TOPIC,) if is_own else _LIVE
        below = [value for _, value, source in entry.synonyms if source not in gone]
        for name, value in changes.items():
            becomes = value if value is not None else next(iter(below), None)
            if name in names and becomes is not None:
                found[entry.name] = becomes
    return found


def _preview(
    address: str, topic: TopicStatus, settings: Mapping[str, str], *, is_one_of_several: bool
) -> tuple[Deletion | None, list[str]]:
    """Returns what is deleted only with these settings, None if nothing, and why more is unknown.

    Raises CommandError.
    """
    query = [("set", f"{name}={value}") for name, value in settings.items()]
    answer = ask(address, "topics", topic.name, "explain", query=query)
    if answer["topic_id"] != topic.topic_id:
        raise CommandError(f"what answers at {address} is another broker")
    sums = dict.fromkeys(("segments", "records", "bytes"), 0)
    policies: set[str] = set()
    unknown: list[str] = []
    for partition in answer["partitions"]:
        number = partition["partition"]
        if "error" in partition:
            unknown.append(f"{topic.name}-{number}: {partition['message']}")
            continue
        if is_one_of_several and "leader" not in partition:
            unknown.append(f"the broker at {address} has an older version, which asks no leader")
            break
        for name in sums:
            sums[name] += partition["going"][name] - partition["going_as_it_is"][name]
        policies.update(partition["going"]["policies"])
    if sums["bytes"] <= 0 and sums["records"] <= 0:
        return None, unknown
    return Deletion(topic.name, **sums, policies=tuple(sorted(policies))), unknown

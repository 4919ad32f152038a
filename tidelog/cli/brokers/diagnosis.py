"""What is wrong with a cluster, and what helps, by what its brokers say: pure functions.

`findings` takes what `gathering.gathered` returns. Each finding has a name, whom it concerns, a
sentence, and what helps: a command, a setting, or something to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.brokers.gathering import not_asked
from tidelog.cli.output import span_of
from tidelog.text import first_of, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CLOCKS_APART_MS = 1_000
"""Clocks of two brokers that differ by more are a finding."""

_VERSIONS = ("inter_broker_protocol_version", "message_format_version")
_READ_ONLY = (
    "It leads nothing and is in no in-sync set, so it takes no records; it goes on copying from the "
    "leaders, and what it has can be read from it"
)

Answer = dict[str, Any]


class Finding(NamedTuple):
    """Something that is wrong, and the brokers (by id) and partitions that it concerns."""

    finding: str
    sentence: str
    help: str
    brokers: Sequence[int] = ()
    partitions: Sequence[str] = ()


def findings(answer: Answer) -> list[Finding]:
    """Returns what is wrong, what keeps clients from their records first."""
    return [each for look in _LOOKS for each in look(answer)]


# --- the metadata -----------------------------------------------------------------------------------


def _metadata(answer: Answer) -> Iterator[Finding]:
    errors = {broker: own["metadata_error"] for broker, own in _owns(answer)}
    brokers = [broker for broker, error in errors.items() if error]
    if brokers:
        told = "; ".join(dict.fromkeys(errors[broker] for broker in brokers))
        yield Finding(
            "metadata out of reach",
            f"{_brokers(brokers)} cannot change the metadata: {told}. A leader there goes on while an "
            "in-sync replica follows it, or if no other one could be elected; else it is suspended. No "
            "in-sync set changes, and topics and settings stay as they are",
            "see whether the metadata store runs and can be reached: for etcd `etcdctl endpoint health "
            "--cluster` and `etcdctl alarm list`, for a file its disk; the setting is metadata.store",
            brokers,
        )


def _suspended(answer: Answer) -> Iterator[Finding]:
    for broker, own in _owns(answer):
        names = own.get("suspended_partitions") or []
        if names:
            yield Finding(
                "leaders suspended",
                f"Broker {broker} is cut off from the metadata, and no in-sync replica follows it in "
                f"{first_of(names)}: another broker may lead by now, so it refuses clients there",
                f"see why broker {broker} does not reach the metadata store; it goes on by itself when it "
                "does, or when an in-sync replica follows it again",
                [broker],
                names,
            )


_READINESS = {
    "metadata went back": "stop every broker, then start them again; docs/cluster.md says what they do",
    "all leaders suspended": "see why it does not reach the metadata store; it goes on by itself then",
    "log offline": "read its log for the error, repair the disk, then restart it",
    "directory full": "make room, or keep less: retention.ms, retention.bytes",
}
"""What helps against a reason for which /readyz is 503."""
_NAMED_BY = {"log offline": "failed_logs", "directory full": "full_disk_logs"}


def _readiness(answer: Answer) -> Iterator[Finding]:
    """Yields why brokers are not ready, as far as no other finding names it."""
    found: dict[str, dict[int, list[str]]] = {}
    for each in answer["brokers"]:
        is_away = each["state"] != "serving"
        for one in (each.get("own") or {}).get("not_ready", ()):
            reason = one["reason"]
            is_named = each.get(_NAMED_BY.get(reason))
            if not is_named and not (is_away and reason == "broker not serving"):
                found.setdefault(reason, {}).setdefault(each["broker"], []).append(one["sentence"])
    for reason, by_broker in found.items():
        said = "; ".join(dict.fromkeys(one for each in by_broker.values() for one in each))
        yield Finding(
            reason,
            f"{_brokers(list(by_broker))} should get no clients (/readyz is 503): {said}",
            _READINESS.get(reason, "wait, if somebody starts or stops it; else read its log"),
            list(by_broker),
        )


def _controller(answer: Answer) -> Iterator[Finding]:
    several = len(answer["brokers"]) > 1
    if several and answer["controller"] is None:
        yield Finding(
            "no controller",
            "No broker is the controller, so nobody elects leaders. Any broker that serves becomes it "
            "as soon as it reaches the metadata",
            "see why no broker serves",
        )


# --- brokers ----------------------------------------------------------------------------------------


def _states(answer: Answer) -> Iterator[Finding]:
    for each in answer["brokers"]:
        broker, state = each["broker"], each["state"]
        own = each.get("own") or {}
        why = own.get("not_serving")
        of_it = f"{some(each['replicas'], 'replica')} of partitions"
        if state == "away":
            said = f" It says: {why}." if why else ""
            yield Finding(
                "broker missing",
                f"Broker {broker} has no session: its process has ended, hangs, or does not reach the "
                f"metadata.{said} It has {of_it}, which are out of sync until it is back",
                f"start it again; if it is gone for good, `tidelog broker remove {broker}` moves its "
                f"replicas to others, and `tidelog broker forget {broker}` forgets it",
                [broker],
            )
        elif state == "fenced":
            said = f" ({why})" if why else ""
            yield Finding(
                "broker fenced",
                f"Broker {broker} is fenced{said}. {_READ_ONLY}",
                "wait: it is unfenced when it has caught up with the metadata; if that lasts, read its "
                "log",
                [broker],
            )
        elif state == "stopping":
            yield Finding(
                "broker stopping",
                f"Broker {broker} is stopping: it lets others lead, and ends",
                "nothing, if somebody stops it; else look who sent SIGTERM",
                [broker],
            )


def _silent(answer: Answer) -> Iterator[Finding]:
    unknown = not_asked(answer)
    if unknown is not None:
        brokers, why = unknown
        yield Finding(
            "brokers not asked",
            f"{_brokers(brokers)} could not be examined from here",
            why,
            brokers,
        )
    for each in answer["brokers"]:
        if each["unreachable"] and each["is_name_known"]:
            yield Finding(
                "broker silent",
                f"Broker {each['broker']} has a session, but gives no answer at {each['http']} "
                f"({each['unreachable']})",
                "see whether it hangs, and whether its HTTP port can be reached from here",
                [each["broker"]],
            )


_DISKS = (
    (
        "failed_logs",
        "log failed",
        "A write of {logs} of broker {broker} has failed: they are offline there",
        "read the broker's log for the error, repair the disk, then restart broker {broker}",
    ),
    (
        "full_disk_logs",
        "disk full",
        "The disk of {logs} of broker {broker} is full: it leads none of them",
        "make room, or keep less: retention.ms, retention.bytes",
    ),
    (
        "slow_disk_logs",
        "disk slow",
        "The disk of {logs} of broker {broker} is slow: others lead where they can",
        "see what else uses the disk; log.dir.slow.ms is the limit",
    ),
)


def _disks(answer: Answer) -> Iterator[Finding]:
    for each in answer["brokers"]:
        for field, name, sentence, remedy in _DISKS:
            logs = each.get(field) or []
            if logs:
                told = {"logs": first_of(logs), "broker": each["broker"]}
                yield Finding(
                    name, sentence.format(**told), remedy.format(**told), [each["broker"]], logs
                )
    for broker, own in _owns(answer):
        for directory, why in (own.get("unwritable_directories") or {}).items():
            yield Finding(
                "log directory unwritable",
                f"Nothing can be written to {directory} of broker {broker} ({why}): the next write to one "
                "of its logs fails, and takes that log offline there",
                f"stop broker {broker}, repair or replace the disk, and start it again: "
                "docs/cluster.md has the steps (A dead disk)",
                [broker],
            )


def _clocks(answer: Answer) -> Iterator[Finding]:
    known = {
        each["broker"]: each["clock_offset_ms"]
        for each in answer["brokers"]
        if each["clock_offset_ms"] is not None
    }
    if not known:
        return
    first, last = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    apart_ms = known[last] - known[first]
    if apart_ms > CLOCKS_APART_MS:
        yield Finding(
            "clocks apart",
            f"The clock of broker {last} is {span_of(apart_ms)} ahead of that of broker {first}. Append "
            "times and retention go by the clock of the leader, so they change with it",
            "let both machines follow the same time servers (chronyc tracking); `tidelog clock` says "
            "how far a broker trusts its clock",
            [first, last],
        )


def _versions(answer: Answer) -> Iterator[Finding]:
    for field in _VERSIONS:
        by_value: dict[str, list[int]] = {}
        for broker, own in _owns(answer):
            by_value.setdefault(own[field], []).append(broker)
        if len(by_value) > 1:
            setting = field.replace("_", ".")
            if field == "message_format_version":
                setting = "log.message.format.version"
            told = "; ".join(
                f"{value} on {_brokers(brokers, first='broker')}"
                for value, brokers in sorted(by_value.items())
            )
            yield Finding(
                "versions differ",
                f"{setting} is not the same on all brokers: {told}. That is right only in the middle of "
                "a migration",
                f"set {setting} to one value in the properties of all brokers, then `tidelog cluster "
                "roll`; docs/migration.md has the order",
                sorted(broker for brokers in by_value.values() for broker in brokers),
            )


# --- partitions -------------------------------------------------------------------------------------


def _leaderless(answer: Answer) -> Iterator[Finding]:
    found = _in_state(answer, "offline")
    if found:
        brokers = sorted({broker for each in found for broker in each["isr"] or each["elr"]})
        yield Finding(
            "no leader",
            f"Nobody leads {first_of(_names(found))}: nothing is written or read there. The replicas that "
            f"have all records are on {_brokers(brokers, first='broker')}{_reasons(found)}",
            _help_for_leaderless(brokers, dict(_owns(answer))),
            brokers,
            _names(found),
        )


def _help_for_leaderless(brokers: list[int], owns: dict[int, dict[str, Any]]) -> str:
    if running := [broker for broker in brokers if broker in owns]:
        named = _brokers(running, first="broker")
        return f"see why no session is there for {named}; nothing has to be elected by hand"
    return (
        f"start {_brokers(brokers, first='broker')}; if the records may be lost, "
        "`tidelog cluster elect TOPIC --unclean`"
    )


def _under_min_isr(answer: Answer) -> Iterator[Finding]:
    found = _in_state(answer, "under-min-isr")
    if found:
        yield Finding(
            "too few in sync",
            f"Fewer replicas than min.insync.replicas are in sync in {first_of(_names(found))}: acks=all is "
            f"refused, and consumers see nothing new{_reasons(found)}",
            f"bring back {_brokers(_missing(found), first='broker')}, or lower it: `tidelog configs set "
            f"{found[0]['topic']} min.insync.replicas={max(len(found[0]['isr']), 1)}`",
            _missing(found),
            _names(found),
        )


def _under_replicated(answer: Answer) -> Iterator[Finding]:
    found = _in_state(answer, "under-replicated")
    if found:
        yield Finding(
            "replicas missing",
            f"Not all replicas are in sync in {first_of(_names(found))}{_reasons(found)}",
            "bring back the brokers that are named; one that is behind catches up by itself, and "
            "`tidelog cluster status --unhealthy` says how far it is",
            _missing(found),
            _names(found),
        )


def _preferred(answer: Answer) -> Iterator[Finding]:
    found = [
        each
        for each in answer["partitions"]
        if each["leader"] is not None
        and each["leader"] != each["replicas"][0]
        and each["replicas"][0] in each["isr"]
    ]
    if found:
        yield Finding(
            "leaders not preferred",
            f"Another replica than the first one leads {first_of(_names(found))}, so some brokers have more "
            "to do than others",
            "wait: a broker leads again after leader.imbalance.check.interval.seconds (300), unless its "
            "disk is slow; at once with `tidelog cluster elect`",
            sorted({each["replicas"][0] for each in found}),
            _names(found),
        )


_LOOKS: Sequence[Callable[[Answer], Iterator[Finding]]] = (
    _readiness,
    _leaderless,
    _under_min_isr,
    _metadata,
    _suspended,
    _controller,
    _states,
    _silent,
    _disks,
    _under_replicated,
    _clocks,
    _versions,
    _preferred,
)


# --- words ------------------------------------------------------------------------------------------


def _owns(answer: Answer) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields what brokers say of themselves, as far as they were asked."""
    for each in answer["brokers"]:
        if each.get("own"):
            yield each["broker"], each["own"]


def _in_state(answer: Answer, state: str) -> list[dict[str, Any]]:
    return [each for each in answer["partitions"] if each["state"] == state]


def _names(partitions: list[dict[str, Any]]) -> list[str]:
    return [f"{each['topic']}-{each['partition']}" for each in partitions]


def _missing(partitions: list[dict[str, Any]]) -> list[int]:
    return sorted({one["broker"] for each in partitions for one in each["missing"]})


def _brokers(brokers: Sequence[int], *, first: str = "Broker") -> str:
    return f"{first}{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


def _reasons(partitions: list[dict[str, Any]]) -> str:
    """Returns why replicas are missing, each reason of each broker once."""
    found = dict.fromkeys(
        (one["broker"], one["why"]) for each in partitions for one in each["missing"]
    )
    told = "; ".join(f"broker {broker}: {why}" for broker, why in sorted(found))
    return f" ({told})" if told else ""

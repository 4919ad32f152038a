"""Diagnoses a broker, its clock, its logs and their times, as JSON: a route of `api`.

The reasons why clients cannot connect come first (`readiness`). In a cluster a broker examines the logs
that it leads, and reports the damage that scrubbing has found in any replica here. Each finding has a
sentence, a figure, and a command that helps. An open log is examined as it is; one that a clean stop closed
is examined by the times that the stop stored, and stays closed. Times of segments that nobody has read yet
are read, up to a limit for each request; this also finds the batches of other brokers that Java clients
refuse. Times in a wrong unit are also counted as they arrive: later they are in the middle of a segment,
where no diagnosis finds them. Bad batches are those that scrubbing has found; no diagnosis searches for them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.http.answers import HttpError, time_fields
from tidelog.broker.http.readiness import reasons
from tidelog.config.instants import to_iso
from tidelog.protocol.errors import BrokerError
from tidelog.storage.log.retention.diagnosis import against_wrong_unit, diagnose
from tidelog.storage.log.retention.findings import (
    APPEND,
    END_BY_AGE,
    EXPLAIN,
    MILLISECONDS,
    NAME_MISSING,
    REFUSE_FUTURE,
    REFUSE_OLD,
    RESET,
    SEGMENTS,
    Finding,
    Readings,
)
from tidelog.storage.time.stamping import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.broker.http.api_query import ApiQuery
    from tidelog.broker.http.services import Services
    from tidelog.broker.logs.maintenance.clock_watch import ClockStatus
    from tidelog.storage.log.retention.findings import Facts

_MOST_READ_BYTES = 1 << 30  # of segments whose times are unknown, for one request
_RELEASE_S = 0.0002

LEAPT = "clock has leapt"
BEHIND = "clock is behind"
BAD_BATCHES = "bad batches"
UNREADABLE = "Java clients stop"
ARRIVED = "times in a wrong unit arrived"
_ACCEPT, _STATUS, _SCRUB, _CLUSTER, _SETTINGS = "accept", "status", "scrub", "cluster", "settings"
_SCRUB_ALL = "scrub all"  # also the active segment

# The command of each remedy.
COMMANDS = {
    _ACCEPT: "tidelog clock accept",
    _STATUS: "tidelog clock status",
    _CLUSTER: "tidelog cluster doctor",
    _SCRUB: "tidelog scrub --log-dirs {directory} --topic {topic}",
    _SCRUB_ALL: "tidelog scrub --log-dirs {directory} --topic {topic} --with-active",
    _SETTINGS: "tidelog configs show {topic} --changed",
    RESET: "tidelog clock reset {topic}",
    END_BY_AGE: "tidelog configs set {topic} segment.ms=7d",
    APPEND: "tidelog produce {topic} --partition {partition} --key-separator :",
    REFUSE_OLD: "tidelog configs set {topic} message.timestamp.before.max.ms=3650d",
    REFUSE_FUTURE: "tidelog configs set {topic} message.timestamp.after.max.ms=1d",
    NAME_MISSING: "tidelog configs set {topic} message.timestamp.missing.values={value}",
    EXPLAIN: "tidelog explain {topic} --partition {partition} --why",
}


class _Log(NamedTuple):
    """The findings of one log, its segments with unread times, and the bytes that were read."""

    findings: list[Finding]
    unread_segments: int
    read_bytes: int


def doctor(query: ApiQuery) -> dict[str, Any]:
    """Returns the findings about the broker, the clock and the times of all topics, or of one."""
    topic = topic_of(query)
    names = sorted(query.services.metadata.image.topics) if topic is None else [topic]
    services = query.services
    findings = [*of_readiness(services)]
    findings += (
        _shown(services, None, None, each) for each in _of_clock(services.clock_watch.status())
    )
    errors: list[dict[str, Any]] = []
    partitions = unread_segments = 0
    left_bytes = _MOST_READ_BYTES
    for name, index in _partitions(query, names):
        if query.answers_for(name, index):
            try:
                log = _examined(query, name, index, left_bytes)
            except BrokerError as error:
                if "partition" in query.given:
                    raise
                errors.append(unexamined(name, index, error))
            else:
                partitions += 1
                left_bytes -= log.read_bytes
                unread_segments += log.unread_segments
                directory = services.store.directory_of(name, index)
                findings += (
                    _shown(services, name, index, each, directory) for each in log.findings
                )
            finally:
                time.sleep(_RELEASE_S)  # releases the interpreter's lock for the loop
        findings += _of_scrubbing(services, name, index)
    if "partition" not in query.given:  # they are counted by topic
        findings += (each for name in names for each in _of_arrivals(query, name))
    return {
        "topic": topic,
        **time_fields("now", query.now_ms),
        "partitions_examined": partitions,
        "segments_unread": unread_segments,
        "errors": errors,
        "findings": findings,
    }


def topic_of(query: ApiQuery) -> str | None:
    """Returns the topic to examine, None for all of them. Raises HttpError."""
    topic = query.one("topic")
    if topic is None and "partition" in query.given:
        raise HttpError(400, "BAD_REQUEST", "partition=N needs topic=NAME")
    return topic


def unexamined(topic: str, index: int, error: BrokerError) -> dict[str, Any]:
    """Returns why a log could not be examined, as JSON."""
    named = {"topic": topic, "partition": index}
    return {**named, "error": error.code.name, "message": error.message}


def _partitions(query: ApiQuery, names: list[str]) -> Iterator[tuple[str, int]]:
    """Yields the partitions of topics, none while the broker starts or stops.

    Raises UnknownTopicOrPartition and HttpError.
    """
    for name in names:
        try:
            indexes = query._replace(path={"topic": name}).partitions()
        except BrokerError:
            if query.one("topic") is not None:
                raise
            continue  # it has just been deleted
        for index in indexes:
            if not query.services.ready:
                return
            yield name, index


def _examined(query: ApiQuery, topic: str, index: int, left_bytes: int) -> _Log:
    """Returns the findings of one log. Raises BrokerError."""
    services = query.services
    config = services.store.config_of(topic)
    facts: Facts | None = services.store.closed_facts(topic, index)
    read_bytes = 0
    if facts is None:
        retainer = services.partitions.get(topic, index).retainer
        unread_bytes = retainer.facts().unread_bytes
        facts = retainer.facts(left_bytes)
        read_bytes = max(unread_bytes - facts.unread_bytes, 0)
    readings = Readings(
        query.now_ms,
        services.clock_watch.deletion_ms(),
        services.config.log_retention_check_interval_ms,
    )
    findings = [*diagnose(facts, config, readings), *_of_framing(facts)]
    return _Log(findings, facts.unread_segments, read_bytes)


def of_readiness(services: Services) -> Iterator[dict[str, Any]]:
    """Yields why /readyz is 503, as JSON."""
    for each in reasons(services):
        sentence = f"Clients are sent elsewhere (/readyz is 503): {each.line}."
        finding = Finding(each.kind, 1, "reasons", sentence, _CLUSTER)
        yield _shown(services, each.topic, each.partition, finding)


def _of_clock(status: ClockStatus) -> Iterator[Finding]:
    """Yields the findings about the clock itself."""
    now, trusted = to_iso(status.now_ms), to_iso(status.deletion_ms)
    if status.leap is not None:
        yield Finding(
            LEAPT,
            status.ahead_ms,
            MILLISECONDS,
            f"The clock shows {now}, and has leapt: the deletion time is {trusted}. "
            "If it is right, accept it; otherwise correct the machine's clock.",
            _ACCEPT,
        )
    elif status.behind_ms:
        yield Finding(
            BEHIND,
            status.behind_ms,
            MILLISECONDS,
            f"The clock shows {now}, and is slow, or has stood still: what it stamps counts as later once "
            "it is right. Correct the machine's clock.",
            _STATUS,
        )


def _of_framing(facts: Facts) -> Iterator[Finding]:
    """Yields a finding if adopted segments have a compressed set that Java clients cannot read."""
    found = [
        offset
        for segment in facts.segments
        if (offset := segment.times.unreadable_offset) is not None
        and segment.candidate.end_offset > facts.log_start_offset
    ]
    if found:
        sentence = (
            f"The compressed batch at offset {found[0]}, which another broker stored, is framed as Java "
            "clients refuse it, and they stop there. They can go on behind it; others may read it, and write "
            "it to another topic, where all can. The command names all such batches, and where they end."
        )
        yield Finding(UNREADABLE, len(found), SEGMENTS, sentence, _SCRUB_ALL)


def _of_arrivals(query: ApiQuery, topic: str) -> Iterator[dict[str, Any]]:
    """Yields a finding for each wrong unit of times that arrived for a topic since the start, as JSON."""
    services = query.services
    counts = services.time_watch.topics.get(topic)
    if counts is None:
        return
    for unit, mismatch in tuple(counts.last_mismatches.items()):
        config = services.store.config_of(topic)
        rules = rules_of(config, config.target_magic)
        what, remedy = against_wrong_unit(mismatch.timestamp, rules, query.now_ms)
        count = counts.unit_mismatches[unit]
        batches = "1 batch" if count == 1 else f"{count:,} batches"
        sentence = (
            f"Since its start, broker {services.metadata.node_id} has got {batches} "
            f"with times that look like {unit}, refused ones included. The last, {mismatch.timestamp}, means "
            f"{to_iso(mismatch.timestamp)} here, and {to_iso(mismatch.meant)} in {unit}. {what}"
        )
        finding = Finding(
            ARRIVED, count, "batches", sentence, _SETTINGS if remedy == EXPLAIN else remedy
        )
        yield _shown(services, topic, None, finding)


def _of_scrubbing(services: Services, topic: str, index: int) -> Iterator[dict[str, Any]]:
    """Yields a finding for each damaged segment that scrubbing has found in a log, as JSON."""
    directory = services.store.directory_of(topic, index)
    for damage in services.metrics.scrub.damage(topic):
        if damage.partition != index:
            continue
        segment = f"The segment that begins at offset {damage.base_offset}"
        if damage.bad_batches:
            sentence = (
                f"{segment} has bad batches; the first, at byte {damage.position}, {damage.reason}. A "
                "consumer gets CORRUPT_MESSAGE there. If the replica of another broker is good, move the "
                "partition off this broker and back: it is copied anew."
            )
            finding = Finding(BAD_BATCHES, damage.bad_batches, "places", sentence, _SCRUB)
        else:
            sentence = (
                f"{segment} is as it was written, but the batch at offset {damage.offset} {damage.reason}. "
                "They stop there, and can go on behind it. The command names all such batches."
            )
            finding = Finding(UNREADABLE, 1, SEGMENTS, sentence, _SCRUB)
        yield _shown(services, topic, index, finding, directory)


def _shown(
    services: Services,
    topic: str | None,
    index: int | None,
    finding: Finding,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Returns a finding as JSON, with the command that helps; a finding without a topic is the broker's."""
    return {
        "broker": services.metadata.node_id,
        "topic": topic,
        "partition": index,
        "finding": finding.kind,
        "figure": finding.figure,
        "unit": finding.unit,
        "sentence": finding.sentence,
        "command": COMMANDS[finding.remedy].format(
            topic=topic, partition=index, directory=directory, value=finding.value
        ),
    }

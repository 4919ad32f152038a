"""Why groups may be answered otherwise than by Apache Kafka 3.9.1: a predicate for each reason, no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.differences import Reason, is_once, register
from tests.oracle.scenario import SILENT

if TYPE_CHECKING:
    from tests.oracle.scenario import Difference

REASONS: list[Reason] = []


def reason(name: str, source: str, why: str, **flags: bool) -> Any:
    """Register the decorated predicate."""
    return register(REASONS, name, source, why, **flags)


def codes(answer: Any) -> set[int]:
    """The errors of all partitions of an OffsetCommit or OffsetFetch answer."""
    topics = answer["topics"] if isinstance(answer, dict) else ()
    return {one["error_code"] for topic in topics for one in topic["partitions"]}


def has_joined(answer: Any) -> bool:
    """Whether an answer is that of a JoinGroup that went well."""
    return isinstance(answer, dict) and "leader" in answer and answer["error_code"] == 0


@reason(
    "offsets of the oldest clients are kept, too",
    "docs/groups.md: OffsetCommit and OffsetFetch v0 keep offsets here, as v1 does",
    "without a ZooKeeper Kafka has no place for them and answers UNSUPPORTED_VERSION",
    spoils_the_case=True,
)
def oldest_commits(d: Difference) -> bool:
    oldest = d.step.version == 0 and d.step.api in ("OffsetCommit", "OffsetFetch")
    return oldest and codes(d.kafka_answer) == {35}


@reason(
    "who asks for no group's offsets is told none",
    "DESIGN 2: every request that can be read is answered",
    "Kafka waits for none of none groups, and never answers",
)
def no_groups(d: Difference) -> bool:
    asked_nothing = d.step.api == "OffsetFetch" and d.tidelog_answer == {"groups": []}
    return asked_nothing and d.kafka == SILENT


@reason(
    "a protocol that is offered twice is known once",
    "facts 4.1: protocols that every member knows",
    "Kafka counts it twice, finds no protocol, fails inside and never answers",
)
def protocol_twice(d: Difference) -> bool:
    return d.case.name == "a protocol twice" and d.kafka == SILENT and has_joined(d.tidelog_answer)


@reason(
    "what members say of themselves is theirs",
    "facts 4.1: protocol-agnostic; broker/groups/subscriptions.py",
    "Kafka fails inside on a subscription that promises more than it holds, and never answers",
)
def lying_subscription(d: Difference) -> bool:
    lie = d.case.name.startswith("a subscription that promises more")
    return lie and d.kafka == SILENT and has_joined(d.tidelog_answer)


@reason(
    "a group that is named twice is described once",
    "docs/compatibility.md: limits",
    "its description may be thousands of times as long as its name",
)
def described_once(d: Difference) -> bool:
    return d.step.api == "DescribeGroups" and d.path == "groups" and is_once(d, "group_id")

"""Conversations of members and tools with Apache Kafka 3.9.1 and with tidelog: the same answers, or a reason.

The cases are in cases.py and offset_cases.py, the accepted differences in differences.py.
Both brokers are played to at the same time, each by its own thread; conversations in which sessions end have
threads of their own, for they take their time.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle import comparison, wire
from tests.oracle.brokers import Tidelog, make_topics
from tests.oracle.groups import conversation
from tests.oracle.groups.cases import MOST_MEMBERS, member_cases
from tests.oracle.groups.differences import REASONS
from tests.oracle.groups.offset_cases import offset_cases
from tests.oracle.scenario import SILENT

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "3.9.1"
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.max.size": str(MOST_MEMBERS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.check.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
}
UNFINISHED = (SILENT, conversation.NEVER, conversation.NOT_ASKED)
TOPICS = {"committed-a": 3, "committed-b": 1}


def prepare(bootstrap):
    """Make the topics offsets are committed for, and wake the coordinator."""
    with wire.Connection(bootstrap, timeout_s=60) as connection:
        make_topics(connection, TOPICS)
    conversation.wait_for_groups(bootstrap)


def played_to(bootstrap, cases, *, is_complete):
    """The answers of one broker to every case."""

    def play(case):
        try:
            return conversation.Stage(bootstrap, is_complete=is_complete).play(case)
        except Exception as error:
            error.add_note(f"in case {case.name!r} on {bootstrap}")
            raise

    slow = [case for case in cases if case.tags.get("slow")]
    with ThreadPoolExecutor(len(slow)) as pool:
        begun = {case.name: pool.submit(play, case) for case in slow}
        return [begun[case.name].result() if case.name in begun else play(case) for case in cases]


class Played:
    """Every case with the answers of both brokers."""

    def __init__(self, kafka, tidelog):
        self.cases = [*member_cases(), *offset_cases()]
        self.newest = [conversation.serves(one.bootstrap) for one in (kafka, tidelog)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(prepare, (kafka.bootstrap, tidelog.bootstrap)))
            theirs, ours = (
                pool.submit(played_to, one.bootstrap, self.cases, is_complete=one is tidelog)
                for one in (kafka, tidelog)
            )
            self.kafka, self.tidelog = theirs.result(), ours.result()


@pytest.fixture(scope="module")
def played(apache_kafka, tmp_path_factory):
    with (
        apache_kafka(KAFKA, **SETTINGS) as theirs,
        Tidelog(tmp_path_factory.mktemp("tidelog"), SETTINGS) as ours,
    ):
        return Played(theirs, ours)


@pytest.fixture(scope="module")
def verdict(played, summarize):
    found = comparison.judge(played.cases, played.kafka, played.tidelog, REASONS)
    summarize(f"groups of tidelog and Apache Kafka {KAFKA}", found.table())
    return found


def test_every_version_both_serve_is_asked(played):
    asked = {(step.api, step.version) for case in played.cases for step in case.steps}
    for api, newest in conversation.NEWEST.items():
        key = wire.SCHEMAS[api][0].API_KEY
        assert newest == min(broker[key] for broker in played.newest), api
        missing = set(range(newest + 1)) - {version for name, version in asked if name == api}
        assert not missing, f"{api}: {missing}"


def test_no_difference_without_a_reason(verdict):
    assert not verdict.unexplained, "\n" + verdict.complaint()


def test_every_reason_is_needed(verdict):
    unused = [
        one.name for one in REASONS if one.name not in verdict.explained and not one.sometimes
    ]
    assert not unused, f"reasons that explain nothing any more: {unused}"


def test_every_conversation_comes_to_its_end(played):
    """Where both brokers left somebody waiting, their answers would be equal, too."""
    stuck = [
        f"{case.name}: {step.name}"
        for case, answers in zip(played.cases, played.tidelog, strict=True)
        for step, answer in zip(case.steps, answers, strict=True)
        if answer in UNFINISHED
    ]
    assert not stuck


@pytest.mark.parametrize(
    ("api", "key", "change"),
    [
        ("JoinGroup", "generation_id", 1),
        ("JoinGroup", "leader", "x"),
        ("JoinGroup", "member_id", "x"),
        ("JoinGroup", "metadata", b"x"),
        ("JoinGroup", "error_code", 1),
        ("SyncGroup", "assignment", b"x"),
        ("Heartbeat", "error_code", 27),
        ("LeaveGroup", "error_code", 1),
        ("OffsetCommit", "error_code", 1),
        ("OffsetFetch", "committed_offset", 1),
        ("OffsetFetch", "metadata", "x"),
        ("DescribeGroups", "group_state", "x"),
        ("DescribeGroups", "member_assignment", b"x"),
        ("ListGroups", "group_state", "x"),
        ("DeleteGroups", "error_code", 1),
        ("OffsetDelete", "error_code", 1),
    ],
)
def test_a_planted_difference_is_caught(played, api, key, change):
    """Change one value in one answer that was equal: the comparison must complain of it."""
    for case, theirs, ours in zip(played.cases, played.kafka, played.tidelog, strict=True):
        before = comparison.judge([case], [theirs], [ours], REASONS)
        for number, step in enumerate(case.steps):
            answers = copy.deepcopy(ours)
            is_equal = step.api == api and ours[number] == theirs[number]
            if (
                not is_equal
                or before.explained
                or not comparison.plant(answers[number], key, change)
            ):
                continue
            after = comparison.judge([case], [theirs], [answers], REASONS)
            assert len(after.unexplained) == len(before.unexplained) + 1
            assert key in after.complaint(10**6)
            return
    pytest.fail(f"nothing to change: no equal answer of {api} has a {key}")

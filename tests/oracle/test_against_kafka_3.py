"""The same requests to Apache Kafka 3.9.1 and to tidelog: the same answers, or a reason.

The cases are in cases/: matrix.py (the matrix and random logs), edges.py, deletions.py and admin.py.
The accepted differences are in differences.py. Both brokers start once; the whole takes about two minutes.
"""

from __future__ import annotations

import copy
import time

import pytest

from tests.oracle import comparison
from tests.oracle.brokers import Player, wait_for_coordinators
from tests.oracle.cases import admin, deletions, edges, matrix
from tests.oracle.differences import REASONS

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "3.9.1"
GROUPS = {
    "matrix": matrix.matrix,
    "recompression": matrix.recompression,
    "windows": matrix.windows,
    "random logs": matrix.random_logs,
    "random logs below zero": matrix.random_times_below_zero,
    "edges": edges.edge_cases,
    "deletions": deletions.deletions,
    "admin": lambda _: admin.admin_cases(),
}


class Played:
    """Every case with the answers of both brokers, group by group."""

    def __init__(self, kafka, tidelog) -> None:
        base_ms = time.time_ns() // 1_000_000 - 10 * 60_000  # never mistaken for an append time
        self.cases = {name: make(base_ms) for name, make in GROUPS.items()}
        together = [case for group in self.cases.values() for case in group]
        self.log_dirs = kafka.log_dir, tidelog.log_dir
        self.kafka, self.tidelog = (
            self._split(Player(one.bootstrap, one.log_dir).play(together, matrix.TOPICS))
            for one in (kafka, tidelog)
        )

    def _split(self, answers):
        rest = iter(answers)
        return {name: [next(rest) for _ in group] for name, group in self.cases.items()}

    def judge(self, name):
        return comparison.judge(self.cases[name], self.kafka[name], self.tidelog[name], REASONS)


@pytest.fixture(scope="session")
def played(apache_kafka, tidelog):
    with apache_kafka(KAFKA) as theirs, tidelog() as ours:
        for one in (theirs, ours):
            wait_for_coordinators(one.bootstrap)
        return Played(theirs, ours)


@pytest.fixture(scope="session")
def verdicts(played, summarize):
    found = {name: played.judge(name) for name in GROUPS}
    total = comparison.Verdict()
    for name, verdict in found.items():
        summarize(f"tidelog and Apache Kafka {KAFKA}: {name}", verdict.table())
        total.add(verdict)
    summarize(f"tidelog and Apache Kafka {KAFKA}: all", total.table().splitlines()[0])
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_no_difference_without_a_reason(verdicts, group):
    verdict = verdicts[group]
    assert not verdict.unexplained, "\n" + verdict.complaint()


def test_every_reason_is_needed(verdicts):
    used = {name for verdict in verdicts.values() for name in verdict.explained}
    unused = [one.name for one in REASONS if one.name not in used and not one.sometimes]
    assert not unused, f"reasons that explain nothing any more: {unused}"


def test_uncompressed_logs_are_equal_byte_by_byte(played, summarize):
    """Nothing is parsed here, so nothing can be overlooked by a parser."""
    together = [case for group in played.cases.values() for case in group]
    compared = bytes_compared = 0
    for name, (theirs, ours) in comparison.plain_logs(together, played.log_dirs):
        assert ours == theirs, name
        compared += 1
        bytes_compared += sum(map(len, ours.values()))
    assert compared >= 15
    assert bytes_compared > 5_000
    summarize(f"logs like those of {KAFKA}", f"{compared} partitions, {bytes_compared} bytes")


@pytest.mark.parametrize(
    ("api", "key", "change"),
    [
        ("Produce", "base_offset", 1),
        ("Produce", "error_code", 2),
        ("Fetch", "high_watermark", 1),
        ("Fetch", "max_timestamp", 1),
        ("Fetch", "payload", b"x"),
        ("ListOffsets", "offset", 1),
        ("ListOffsets", "timestamp", 1),
        ("DeleteRecords", "low_watermark", 1),
        ("Metadata", "partition_index", 1),
        ("CreateTopics", "error_code", 1),
    ],
)
def test_an_injected_difference_is_caught(played, api, key, change):
    """Change one value in one answer that was equal: the comparison must complain of it."""
    for name, group in played.cases.items():
        for at, case in enumerate(group):
            for number, step in enumerate(case.steps):
                ours, theirs = played.tidelog[name][at][number], played.kafka[name][at][number]
                if step.api != api or ours != theirs:
                    continue
                answers = copy.deepcopy(played.tidelog[name][at])
                if not comparison.inject(answers[number], key, change):
                    continue
                kafka = [played.kafka[name][at]]
                before = comparison.judge([case], kafka, [played.tidelog[name][at]], REASONS)
                after = comparison.judge([case], kafka, [answers], REASONS)
                assert len(after.unexplained) == len(before.unexplained) + 1
                assert key in after.complaint(10**6)
                return
    pytest.fail(f"nothing to change: no equal answer of {api} has a {key}")

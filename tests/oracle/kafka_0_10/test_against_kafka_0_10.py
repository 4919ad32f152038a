"""The same produce requests to Apache Kafka 0.10.2.2 and to tidelog: the same `.log` files.

Formats 0 and 1 on the disk have one judge, the last broker that wrote nothing newer. Every case of
cases.py is written to topics of both formats in both brokers; then answers and files are
compared field by field, append times by name and compressed payloads decompressed. Uncompressed
CreateTime logs are also compared byte by byte.
"""

from __future__ import annotations

import time

import pytest

from tests.oracle import comparison
from tests.oracle.brokers import Player
from tests.oracle.kafka_0_10 import cases
from tests.oracle.kafka_0_10.differences import OLD_REASONS

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "0.10.2.2"


class Played:
    """The cases, both brokers' answers, and where their logs are."""

    def __init__(self, kafka, tidelog) -> None:
        base_ms = time.time_ns() // 1_000_000 - 10 * 60_000  # never mistaken for an append time
        self.cases = cases.old_cases(base_ms)
        self.log_dirs = kafka.log_dir, tidelog.log_dir
        self.kafka, self.tidelog = (
            Player(one.bootstrap, one.log_dir, old=True).play(self.cases, cases.TOPICS)
            for one in (kafka, tidelog)
        )
        self.verdict = comparison.judge(self.cases, self.kafka, self.tidelog, OLD_REASONS)


@pytest.fixture(scope="session")
def played(apache_kafka, tidelog, summarize):
    small = {"log.index.size.max.bytes": 65536}
    with apache_kafka(KAFKA, **small) as theirs, tidelog() as ours:
        found = Played(theirs, ours)
    summarize(f"tidelog and Apache Kafka {KAFKA}", found.verdict.table())
    return found


def test_no_difference_without_a_reason(played):
    assert not played.verdict.unexplained, "\n" + played.verdict.complaint()


def test_every_reason_is_needed(played):
    used = played.verdict.explained
    unused = [one.name for one in OLD_REASONS if one.name not in used and not one.sometimes]
    assert not unused, f"reasons that explain nothing any more: {unused}"


def test_uncompressed_logs_are_equal_byte_by_byte(played, summarize):
    """Nothing is parsed here, so nothing can be overlooked by a parser."""
    compared = bytes_compared = 0
    for name, (theirs, ours) in comparison.plain_logs(played.cases, played.log_dirs):
        if "window" in name:
            continue  # missing times, and format 0, are held against no window
        assert ours == theirs, name
        compared += 1
        bytes_compared += sum(map(len, ours.values()))
    assert compared >= 20
    assert bytes_compared > 5_000
    summarize(f"logs like those of {KAFKA}", f"{compared} partitions, {bytes_compared} bytes")

"""Kafka Streams on three brokers: words counted by day while brokers are killed.

At least once the sums come out exact as well, if the program itself is not killed; exactly once they do
whatever is killed.
"""

from __future__ import annotations

import shutil

import pytest

from tests.broker.subject import eventually
from tests.oracle import apache_kafka
from tests.tools.conftest import VERSIONS
from tests.tools.words import DEADLINE_S, PARTITIONS, Words

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

LINES = 60


def test_sums_are_exact_though_brokers_die(three, tmp_path):
    """One version counts while a broker is killed; the next one restores its state while another is."""
    apache_kafka.require(*(f"connect-{version}" for version in VERSIONS))
    words = Words(three.bootstrap)
    words.write(LINES)
    first, second = VERSIONS
    program = words.start(first, tmp_path)
    try:
        eventually(lambda: words.number_counted() > 0, DEADLINE_S, f"a count:\n{program.tail(60)}")
        three.kill(three.leader(f"{words.app}-counts-changelog"))
        words.write(LINES)
        eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
    finally:
        program.stop()
    words.take_leave()
    shutil.rmtree(tmp_path / "state")
    words.write(LINES)
    program = words.start(second, tmp_path)
    try:
        three.kill(three.leader(words.lines))
        eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
    finally:
        program.stop()
    words.check()
    assert words.offsets(f"{words.app}-words-repartition")[1] == words.expected.total()
    check_internal_topics(three, words.app)


def test_exactly_once_though_brokers_and_the_program_die(three, tmp_path):
    """Every count follows the one before it."""
    version = VERSIONS[-1]
    apache_kafka.require(f"connect-{version}")
    words = Words(three.bootstrap)
    for topic in ("__transaction_state", "counts", "lines"):
        before = words.number_counted()
        words.write(LINES)
        program = words.start(version, tmp_path, "exactly_once_v2")
        try:
            eventually(
                lambda before=before: words.number_counted() > before,
                DEADLINE_S,
                f"a count:\n{program.tail(60)}",
            )
            internal = {"counts": f"{words.app}-counts-changelog", "lines": words.lines}
            three.kill(three.leader(internal.get(topic, topic)))
        finally:
            program.kill()
    program = words.start(version, tmp_path, "exactly_once_v2")
    try:
        eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
    finally:
        program.stop()
    words.check()


def check_internal_topics(three, app):
    """Streams asks for the broker's default number of replicas, and every one is in sync."""
    own = [each for each in three.partitions() if each["topic"].startswith(app)]
    assert len(own) == 2 * PARTITIONS
    assert all(sorted(each["isr"]) == [1, 2, 3] for each in own)

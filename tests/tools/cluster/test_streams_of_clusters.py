"""Kafka Streams on three brokers: words counted by day while brokers are killed.

Records of all days come in no order. Between reading and counting lie a topic that is trimmed as it is read,
and one that counts are restored from. At least once the sums come out exact as well, if the program itself is
not killed; exactly once they do whatever is killed.
"""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.subject import eventually
from tests.oracle import apache_kafka
from tests.tools import java_tools
from tests.tools.conftest import VERSIONS
from tests.tools.words import DEADLINE_S, PARTITIONS, Words

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

LINES = 60


def test_sums_are_exact_though_brokers_die(three, tmp_path):
    """One version counts while a broker is killed; the next one restores its state while another is."""
    apache_kafka.require(*(f"{kind}-{each}" for each in VERSIONS for kind in ("connect", "tools")))
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
    words.take_leave(three.coordinator(words.app))
    shutil.rmtree(tmp_path / "state")
    words.write(LINES)
    program = words.start(second, tmp_path)
    try:
        three.kill(three.leader(words.lines))
        eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
        # Streams removes what it has committed, now and then; what is counted is not kept twice.
        eventually(words.purged, DEADLINE_S, "a topic that is trimmed")
    finally:
        program.stop()
    words.check()
    assert words.offsets(f"{words.app}-words-repartition")[1] == words.expected.total()
    check_internal_topics(three, words.app)
    check_reset(words, three, tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_exactly_once_though_brokers_and_the_program_die(three, tmp_path, version):
    """Every count follows the one before it, whatever was under way at a kill."""
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
    assert three.settings(f"{app}-words-repartition")["cleanup.policy"] == "delete"
    policies = three.settings(f"{app}-counts-changelog")["cleanup.policy"].split(",")
    assert set(policies) == {"compact", "delete"}


def check_reset(words, three, directory):
    """Kafka's tool turns the members out that nobody took leave of, removes topics, and begins anew."""
    reset = java_tools.start(
        VERSIONS[-1],
        "kafka-streams-application-reset",
        *("--bootstrap-server", words.bootstrap, "--application-id", words.app),
        *("--input-topics", words.lines, "--force"),
        directory=directory,
    )
    assert reset.process.wait(DEADLINE_S) == 0, reset.tail(60)
    assert "Force deleting all active members" in reset.out.read_text()
    topics = {each["topic"] for each in three.partitions()}
    assert topics >= {words.lines, words.counted}
    assert not [topic for topic in topics if topic.startswith(words.app)]
    consumer = Consumer({"bootstrap.servers": words.bootstrap, "group.id": words.app})
    parts = consumer.committed([TopicPartition(words.lines, i) for i in (0, 1)], timeout=20)
    consumer.close()
    assert [part.offset for part in parts] == [0, 0]

"""Kafka Streams: words counted by day, where records of all days come in no order.

Between reading and counting lie a topic that is trimmed as it is read, and one that counts are restored from.
Counted exactly once, no kill of the program or of the broker is seen in the counts.
"""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.subject import Subject, eventually
from tests.oracle import apache_kafka
from tests.tools import java_tools
from tests.tools.conftest import VERSIONS
from tests.tools.words import DEADLINE_S, Words

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]


@pytest.fixture
def broker(tmp_path):
    with Subject(tmp_path / "data", {"log.retention.ms": -1}) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


def test_words_by_day(broker, tmp_path):
    """Counted by one version; its state thrown away, restored and counted further by the next."""
    apache_kafka.require(*(f"{kind}-{each}" for each in VERSIONS for kind in ("connect", "tools")))
    words = Words(broker.bootstrap)
    for version in VERSIONS:
        if version != VERSIONS[0]:
            words.take_leave()
        words.write(60)
        program = words.start(version, tmp_path)
        try:
            eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
            # Streams removes what it has committed, now and then; what is counted is not kept twice.
            eventually(words.purged, DEADLINE_S, "a topic that is trimmed")
        finally:
            program.stop()
        shutil.rmtree(tmp_path / "state")
    words.check()
    between, store = f"{words.app}-words-repartition", f"{words.app}-counts-changelog"
    assert settings(broker, between)["cleanup.policy"] == "delete"
    assert set(settings(broker, store)["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert words.offsets(between)[1] == words.expected.total()
    check_reset(words, broker, tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_exactly_once_while_the_program_and_the_broker_are_killed(broker, tmp_path, version):
    """Every count follows the one before it, whatever was under way at a kill."""
    apache_kafka.require(f"connect-{version}")
    words = Words(broker.bootstrap)
    for is_killed in ("program", "broker", "both"):
        counted = words.number_counted()
        words.write(60)
        program = words.start(version, tmp_path, "exactly_once_v2")
        try:
            # Counted are some of the new words, and others are under way.
            eventually(
                lambda counted=counted: words.number_counted() > counted, DEADLINE_S, "a count"
            )
            if is_killed != "program":
                broker.kill()
                broker.restart()
            if is_killed == "broker":
                words.write(60)
                eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
        finally:
            program.kill()
    program = words.start(version, tmp_path, "exactly_once_v2")
    try:
        eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
    finally:
        program.stop()
    words.check()


def settings(broker, topic):
    resource = {"resource_type": 2, "resource_name": topic}
    with broker.connect() as connection:
        answer = connection.ask("DescribeConfigs", 4, resources=[resource])
    return {each["name"]: each["value"] for each in answer["results"][0]["configs"]}


def check_reset(words, broker, directory):
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
    with broker.connect() as connection:
        topics = {each["name"] for each in connection.ask("Metadata", 9, topics=None)["topics"]}
    assert {each for each in topics if each[:2] != "__"} == {words.lines, words.counted}
    consumer = Consumer({"bootstrap.servers": words.bootstrap, "group.id": words.app})
    parts = consumer.committed([TopicPartition(words.lines, i) for i in (0, 1)], timeout=20)
    consumer.close()
    assert [part.offset for part in parts] == [0, 0]

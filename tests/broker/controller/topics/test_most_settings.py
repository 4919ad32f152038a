"""How much room settings may take, of one topic or broker and of all."""

from __future__ import annotations

import pytest

from tests.broker.asking import BROKER, TOPIC, alter, try_to_create
from tests.broker.conftest import healthy

POLICY_VIOLATION = 44
SET, DELETE = 0, 1
LONG = "leader.replication.throttled.replicas"


@pytest.fixture
def small(tmp_path):
    limits = {"max.config.bytes.per.resource": 2_000, "max.config.bytes": 3_000}
    with healthy(tmp_path, limits) as subject:
        yield subject


def created(connection, name, value):
    """The error of CreateTopics with a setting."""
    return try_to_create(connection, name, **{LONG: value})["error_code"]


def replicas(count):
    return ",".join(["1000:1"] * count)


@pytest.mark.slow
def test_one_topic_and_all_of_them(small):
    with small.connect() as connection:
        assert created(connection, "a", replicas(300)) == POLICY_VIOLATION
        assert created(connection, "a", replicas(250)) == 0
        code, sentence = alter(connection, TOPIC, "a", (LONG, SET, replicas(300)))
        assert code == POLICY_VIOLATION
        assert "max.config.bytes.per.resource=2000" in sentence
        assert created(connection, "b", replicas(250)) == POLICY_VIOLATION
        assert created(connection, "b", replicas(100)) == 0
        code, sentence = alter(connection, TOPIC, "b", (LONG, SET, replicas(250)))
        assert code == POLICY_VIOLATION
        assert "max.config.bytes=3000" in sentence
        taken = small.metric("tidelog_config_bytes")
        assert 350 * 7 < taken < 3_000
        assert small.metric("tidelog_configs_refused_total") == 4
        assert alter(connection, TOPIC, "a", (LONG, DELETE, None))[0] == 0
        assert small.metric("tidelog_config_bytes") == taken - len(LONG) - 250 * 7 + 1
        assert alter(connection, TOPIC, "b", (LONG, SET, replicas(250)))[0] == 0
    taken = small.metric("tidelog_config_bytes")
    small.restart()
    assert small.metric("tidelog_config_bytes") == taken


def test_the_brokers_settings_do_not_grow_without_end(small):
    """Kafka's own settings that mean nothing here are stored too: any text of theirs."""
    with small.connect() as connection:
        answers = [
            alter(connection, BROKER, "", (name, SET, "x" * 900))[0]
            for name in ("num.io.threads", "num.network.threads", "num.replica.fetchers")
        ]
        assert answers == [0, 0, POLICY_VIOLATION]
        shorter = ("num.io.threads", SET, "x" * 800)
        assert alter(connection, BROKER, "", shorter)[0] == 0

"""Windows of record times that are set for the whole broker do not refuse commits of offsets."""

from __future__ import annotations

import pytest

from tests.broker.api.test_describe_configs import ask as describe
from tests.broker.asking import BROKER, TOPIC, alter, create, produce, recordset, values
from tests.broker.members import commit, fetched
from tests.broker.subject import eventually

NONE, INVALID_TIMESTAMP = 0, 32
SET = 0
OFFSETS = "__consumer_offsets"
NO_LIMIT = str(2**63 - 1)
SOURCE_DEFAULT = 5
WINDOWS = {
    "message.timestamp.before.max.ms": "1",
    "message.timestamp.after.max.ms": "1",
    "message.timestamp.difference.max.ms": "1",
}
LOG_WINDOWS = {f"log.{name}": value for name, value in WINDOWS.items()}


def windows_of(connection, topic):
    configs = describe(connection, TOPIC, topic, list(WINDOWS))["configs"]
    return {
        each["name"]: (each["value"], each["config_source"], len(each["synonyms"]))
        for each in configs
    }


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["log", "all"])
def test_with_a_manual_clock_and_windows_commits_are_stored(start, scope):
    broker = start({"clock": "manual", "clock.scope": scope, **LOG_WINDOWS})
    with broker.connect() as connection:
        create(connection, "t")
        for at, now_ms in enumerate((0, 1_000_000, 86_400_000_000_000)):
            broker.clock.freeze(now_ms)
            old = recordset.batch(values("v", timestamp=now_ms - 2))
            assert produce(connection, "t", old)["error_code"] == INVALID_TIMESTAMP
            assert commit(connection, "g", "t", at) == NONE
            assert fetched(connection, "g", "t")[0] == at
        unlimited = (NO_LIMIT, SOURCE_DEFAULT, 1)
        assert windows_of(connection, OFFSETS) == dict.fromkeys(WINDOWS, unlimited)


@pytest.mark.slow
def test_a_window_that_is_set_while_the_broker_runs(start):
    broker = start({"clock": "manual"})
    with broker.connect() as connection:
        create(connection, "t")
        assert commit(connection, "g", "t", 1) == NONE
        broker.clock.freeze(5_000)
        changes = [(name, SET, value) for name, value in LOG_WINDOWS.items()]
        assert alter(connection, BROKER, "1", *changes) == (0, None)
        assert commit(connection, "g", "t", 2) == NONE
        changes = [(name, SET, value) for name, value in WINDOWS.items()]
        assert alter(connection, TOPIC, OFFSETS, *changes) == (0, None)
        assert commit(connection, "g", "t", 3) == NONE
        assert set(windows_of(connection, OFFSETS).values()) == {(NO_LIMIT, SOURCE_DEFAULT, 1)}
    broker.stop()
    broker.restart()
    with broker.connect() as connection:
        assert eventually(lambda: fetched(connection, "g", "t")[0] == 3)

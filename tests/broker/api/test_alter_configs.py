"""AlterConfigs: what is named is set, what is not named is gone, all together or not at all."""

from __future__ import annotations

import pytest

from tests.broker.asking import TOPIC, all_versions, new_topic, own

INVALID_CONFIG, INVALID_REQUEST = 40, 42


def replace(connection, kind, name, configs, *, version=2, validate_only=False):
    answer = connection.ask(
        "AlterConfigs",
        version,
        resources=[
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": key, "value": value} for key, value in configs],
            }
        ],
        validate_only=validate_only,
    )["responses"][0]
    return answer["error_code"], answer["error_message"]


@pytest.fixture
def topic(connection):
    return new_topic(connection, retention_ms="5000", segment_ms="600000")


@pytest.mark.parametrize("version", all_versions("AlterConfigs"))
def test_every_version(connection, topic, version):
    wanted = [("retention.ms", "77"), ("cleanup.policy", "compact")]
    assert replace(connection, TOPIC, topic, wanted, version=version) == (0, None)
    assert own(connection, topic) == dict(wanted)


def test_nothing_named_is_everything_default(connection, topic):
    assert replace(connection, TOPIC, topic, []) == (0, None)
    assert own(connection, topic) == {}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("retention.ms", "soon")], INVALID_CONFIG),
        ([("retention.ms", "7"), ("segment.bytes", "1")], INVALID_CONFIG),
        ([("no.such.setting", "1")], INVALID_CONFIG),
        ([("retention.ms", None)], INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "2")], INVALID_REQUEST),
    ],
)
def test_bad_input_changes_nothing(connection, topic, configs, code):
    found, sentence = replace(connection, TOPIC, topic, configs)
    assert found == code
    assert len(sentence) > 10
    assert own(connection, topic) == {"retention.ms": "5000", "segment.ms": "600000"}


def test_validate_only(connection, topic):
    assert replace(connection, TOPIC, topic, [("retention.ms", "1")], validate_only=True)[0] == 0
    assert own(connection, topic) == {"retention.ms": "5000", "segment.ms": "600000"}


def test_the_basis_that_event_time_brought_along_is_not_forgotten(connection, topic):
    basis = {"retention.time.basis": "append"}
    event_time = [("retention.max.eventtime.ms", "1000")]
    assert replace(connection, TOPIC, topic, event_time) == (0, None)
    assert own(connection, topic) == dict(event_time) | basis
    for _ in range(2):  # switched off by being forgotten, and forgotten again
        assert replace(connection, TOPIC, topic, [("retention.ms", "77")]) == (0, None)
        assert own(connection, topic) == {"retention.ms": "77"} | basis
    named = [("retention.time.basis", "record")]
    assert replace(connection, TOPIC, topic, named) == (0, None)
    assert own(connection, topic) == dict(named)
    assert replace(connection, TOPIC, topic, []) == (0, None)
    assert own(connection, topic) == {}

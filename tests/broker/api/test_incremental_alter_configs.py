"""IncrementalAlterConfigs: live, all of a resource's changes or none, kept over a restart."""

from __future__ import annotations

import time

import pytest

from tests.broker.asking import (
    BROKER,
    TOPIC,
    all_versions,
    alter,
    batch_of,
    create,
    delete_records,
    fetch,
    new_topic,
    own,
    produce,
)
from tests.oracle import recordset

UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE = 3, 10
INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_REQUEST = 17, 40, 42
POLICY_VIOLATION = 44
SET, DELETE, APPEND, SUBTRACT = range(4)


def value_of(connection, name, setting, kind=TOPIC):
    answer = connection.ask(
        "DescribeConfigs",
        1,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": [setting]}],
    )
    return answer["results"][0]["configs"][0]["value"]


def stored(connection, topic, offset):
    """The batch at an offset, as it is in the log."""
    batches, _ = recordset.parse(fetch(connection, topic, offset)["records"])
    return batches[0]


class TestOperations:
    @pytest.mark.parametrize("version", all_versions("IncrementalAlterConfigs"))
    def test_set_and_delete(self, connection, topic, version):
        default = value_of(connection, topic, "retention.ms")
        for operation, value, now in ((SET, "77", "77"), (DELETE, None, default)):
            change = ("retention.ms", operation, value)
            assert alter(connection, TOPIC, topic, change, version=version) == (0, None)
            assert value_of(connection, topic, "retention.ms") == now

    def test_append_and_subtract(self, connection, topic):
        """Down to an empty list: then nothing is done with old segments."""

        def check(*steps):
            for operation, value, left in steps:
                assert alter(connection, TOPIC, topic, ("cleanup.policy", operation, value))[0] == 0
                assert value_of(connection, topic, "cleanup.policy") == left

        check((APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact"))
        assert delete_records(connection, topic, -1)[0] == POLICY_VIOLATION
        check((SUBTRACT, "compact", ""), (SUBTRACT, "compact", ""))
        assert produce(connection, topic, batch_of("x"))["error_code"] == 0
        assert delete_records(connection, topic, -1)[0] == 0
        check(
            (APPEND, "compact", "compact"), (SUBTRACT, "compact", ""), (APPEND, "delete", "delete")
        )
        assert delete_records(connection, topic, -1)[0] == 0

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ([("retention.ms", SET, "soon")], INVALID_CONFIG),
            ([("retention.ms", SET, "-2")], INVALID_CONFIG),
            ([("retention.ms", SET, None)], INVALID_REQUEST),
            ([("retention.ms", APPEND, "1")], INVALID_CONFIG),
            ([("retention.ms", 9, "1")], INVALID_REQUEST),
            ([("no.such.setting", SET, "1")], INVALID_CONFIG),
            ([("message.timestamp.type", SET, "Whenever")], INVALID_CONFIG),
            ([("message.format.version", SET, "99.9")], INVALID_CONFIG),
            ([("cleanup.policy", SET, ",")], INVALID_CONFIG),
            ([("cleanup.policy", SET, "delete,")], INVALID_CONFIG),
            ([("cleanup.policy", SET, "none")], INVALID_CONFIG),
            ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID_REQUEST),
            ([("segment.bytes", SET, "2000"), ("retention.ms", SET, "x")], INVALID_CONFIG),
        ],
    )
    def test_refusals_change_nothing(self, connection, topic, changes, code):
        got, sentence = alter(connection, TOPIC, topic, *changes)
        assert (got, len(sentence) > 5) == (code, True)
        assert own(connection, topic) == {}

    def test_deleting_what_no_topic_has_is_nothing(self, connection, topic):
        """A mirror takes back every default of where it copies from, be that another Kafka's."""
        changes = [(each, DELETE, None) for each in ("no.such.setting", "remote.storage.enable")]
        changes.append(("retention.ms", SET, "88"))
        assert alter(connection, TOPIC, topic, *changes) == (0, None)
        assert value_of(connection, topic, "retention.ms") == "88"

    def test_what_changes_nothing_is_no_news(self, broker, connection, topic):
        def told(changed, by):
            return [line for line in broker.lines(f'"{changed} settings changed"') if by in line]

        for value in ("88", "88", "99", "99"):
            changes = [("retention.ms", SET, value), ("segment.ms", DELETE, None)]
            assert alter(connection, TOPIC, topic, *changes) == (0, None)
            assert value_of(connection, topic, "retention.ms") == value
        assert [line.rpartition("changes=")[2] for line in told("topic", f"topic={topic}")] == [
            "\"{'retention.ms': '88'}\"",
            "\"{'retention.ms': '99'}\"",
        ]
        for value in ("4321", "4321", None, None):
            change = ("log.segment.delete.delay.ms", DELETE if value is None else SET, value)
            assert alter(connection, BROKER, "1", change) == (0, None)
        assert len(told("broker", "log.segment.delete.delay.ms")) == 2

    def test_validate_only(self, connection, topic):
        before = value_of(connection, topic, "retention.ms")
        change = ("retention.ms", SET, "77")
        assert alter(connection, TOPIC, topic, change, validate_only=True) == (0, None)
        assert value_of(connection, topic, "retention.ms") == before
        bad = ("retention.ms", SET, "x")
        assert alter(connection, TOPIC, topic, bad, validate_only=True)[0] == INVALID_CONFIG

    def test_resources_that_are_not_here(self, connection):
        for kind, name, code in (
            (TOPIC, "nowhere", UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "no/name", INVALID_TOPIC_EXCEPTION),
            (TOPIC, "", INVALID_REQUEST),
            (BROKER, "2", INVALID_REQUEST),
            (3, "x", INVALID_REQUEST),
            (8, "1", INVALID_REQUEST),
        ):
            assert alter(connection, kind, name, ("retention.ms", SET, "1"))[0] == code

    def test_each_resource_for_itself_and_none_twice(self, connection, topic):
        other = new_topic(connection)
        change = [{"name": "retention.ms", "config_operation": SET, "value": "5"}]
        answer = connection.ask(
            "IncrementalAlterConfigs",
            1,
            resources=[
                {"resource_type": TOPIC, "resource_name": name, "configs": change}
                for name in (topic, other, topic)
            ],
            validate_only=False,
        )
        found = sorted((each["resource_name"], each["error_code"]) for each in answer["responses"])
        assert found == sorted([(topic, INVALID_REQUEST)] * 2 + [(other, 0)])


class TestLive:
    """The next produce obeys."""

    def test_message_timestamp_type(self, connection, topic):
        assert produce(connection, topic, batch_of("x"))["log_append_time_ms"] == -1
        alter(connection, TOPIC, topic, ("message.timestamp.type", SET, "LogAppendTime"))
        told = produce(connection, topic, batch_of("x"))["log_append_time_ms"]
        assert abs(told - time.time_ns() // 1_000_000) < 60_000
        batch = stored(connection, topic, 1)
        assert batch["attributes"] & recordset.LAT_BIT
        assert batch["records"][0]["timestamp"] == told
        alter(connection, TOPIC, topic, ("message.timestamp.type", SET, "CreateTime"))
        assert produce(connection, topic, batch_of("x"))["log_append_time_ms"] == -1
        assert stored(connection, topic, 2)["records"][0]["timestamp"] == 1_000
        assert stored(connection, topic, 1)["records"][0]["timestamp"] == told, "the past stays"

    def test_max_message_bytes(self, connection, topic):
        alter(connection, TOPIC, topic, ("max.message.bytes", SET, "100"))
        assert produce(connection, topic, batch_of("x" * 100))["error_code"] == MESSAGE_TOO_LARGE
        alter(connection, TOPIC, topic, ("max.message.bytes", DELETE, None))
        assert produce(connection, topic, batch_of("x" * 100))["error_code"] == 0


NEED_A_RESTART = """
    log.dirs listeners advertised.listeners node.id num.partitions log.retention.hours
    log.retention.minutes log.roll.hours log.roll.jitter.hours log.flush.scheduler.interval.ms
"""


class TestBroker:
    def test_a_default_reaches_the_topics_that_have_none_of_their_own(self, start):
        with start().connect() as connection:
            create(connection, "plain")
            create(connection, "own", message_timestamp_type="CreateTime")
            change = ("log.message.timestamp.type", SET, "LogAppendTime")
            for name in ("1", ""):
                assert alter(connection, BROKER, name, change) == (0, None)
            assert produce(connection, "plain", batch_of("x"))["log_append_time_ms"] > 0
            assert produce(connection, "own", batch_of("x"))["log_append_time_ms"] == -1
            create(connection, "later")
            assert produce(connection, "later", batch_of("x"))["log_append_time_ms"] > 0

    @pytest.mark.parametrize("name", ["1", ""])
    def test_what_needs_a_restart_is_refused(self, connection, name):
        """As Kafka does; of the names of a span, those in ms alone can be changed."""
        for setting in NEED_A_RESTART.split():
            for operation, value in ((SET, "1"), (DELETE, None)):
                code, sentence = alter(connection, BROKER, name, (setting, operation, value))
                assert (code, setting in sentence) == (INVALID_REQUEST, True), setting

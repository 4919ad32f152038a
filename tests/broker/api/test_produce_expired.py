"""Produce of what retention would delete at once, to a topic that asks for it to be refused."""

import pytest

from tests.broker.asking import create, list_offset, new_name, produce
from tests.broker.conftest import of_module
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

DAY_MS, NEW_YEAR_MS = 86_400_000, 1_767_225_600_000
INVALID_TIMESTAMP, LATEST = 32, -1

broker = of_module({"clock": "manual", "clock.start.ms": NEW_YEAR_MS})


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection


@pytest.mark.parametrize("release", ["0.10.0", "3.0"])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_what_retention_would_delete_at_once_is_refused_where_a_topic_asks(
    connection, codec, release
):
    topic, edge = new_name(), NEW_YEAR_MS - DAY_MS
    settings = {"retention.ms": str(DAY_MS), "message.format.version": release}
    create(connection, topic, **settings, **{"retention.refuse.expired": "true"})

    def put(*times):
        records = recordset.batch([Rec(time, b"v") for time in times], codec)
        return produce(connection, topic, records, version=8)

    answer = put(NEW_YEAR_MS, edge - 1, -1, edge)
    assert answer["error_code"] == INVALID_TIMESTAMP
    (told,) = answer["record_errors"]
    assert told["batch_index"] == 1
    why = f"outside the window [{edge}, ...]: retention.ms={DAY_MS} would delete it at once"
    assert told["batch_index_error_message"] == f"record 1: timestamp {edge - 1} is {why}"
    assert answer["error_message"] == f"1 records have timestamps {why}"
    assert list_offset(connection, topic, LATEST)["offset"] == 0
    assert put(NEW_YEAR_MS, -1, edge)["error_code"] == 0


def test_what_event_time_would_delete_at_once_is_refused_where_there_is_no_grace(
    broker, connection
):
    def put(topic, *times):
        records = recordset.batch([Rec(time, b"v") for time in times])
        return produce(connection, topic, records, version=8)

    settings = {"retention.refuse.expired": "true", "retention.max.eventtime.ms": str(DAY_MS)}
    topic, lenient = new_name(), new_name()
    create(connection, topic, **settings, **{"retention.max.eventtime.grace.ms": "0"})
    create(connection, lenient, **settings)
    reached, edge = NEW_YEAR_MS - 100 * DAY_MS, NEW_YEAR_MS - 101 * DAY_MS
    for each in (topic, lenient):
        assert put(each, edge - 1, reached)["error_code"] == 0, "nothing was there before"
        assert put(each, edge, -1)["error_code"] == 0
    answer = put(topic, edge, edge - 1)
    assert answer["error_code"] == INVALID_TIMESTAMP
    assert [each["batch_index"] for each in answer["record_errors"]] == [1]
    assert f"retention.max.eventtime.ms={DAY_MS} would delete it at once" in answer["error_message"]
    assert put(lenient, edge - 1)["error_code"] == 0
    broker.restart()
    with broker.connect() as again:
        records = recordset.batch([Rec(edge - 1, b"v")])
        assert produce(again, topic, records, version=8)["error_code"] == INVALID_TIMESTAMP

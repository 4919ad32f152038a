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

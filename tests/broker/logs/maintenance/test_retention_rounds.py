"""The broker's own round of retention: what is due goes, what is not stays, and clients are told."""

import time

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy
from tests.broker.subject import eventually

OFFSET_OUT_OF_RANGE = 1
EARLIEST = -2


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"log.retention.check.interval.ms": "50"}
    with healthy(tmp_path_factory.mktemp("broker"), settings) as subject:
        yield subject


def batch(timestamp):
    return asking.recordset.batch(asking.values("x" * 200, timestamp=timestamp))


def now_ms():
    return int(time.time() * 1000)


def start_of(connection, topic):
    return asking.list_offset(connection, topic, EARLIEST)["offset"]


def test_what_is_older_than_retention_ms_goes(broker, connection):
    topic, before = asking.new_name(), broker.metric("tidelog_segments_deleted_total")
    hour_ms = 3_600_000
    asking.create(connection, topic, **{"segment.bytes": "300", "retention.ms": str(hour_ms)})
    for timestamp in (now_ms() - 3 * hour_ms, now_ms() - 2 * hour_ms, now_ms(), now_ms()):
        asking.produce(connection, topic, batch(timestamp))
    eventually(lambda: start_of(connection, topic) == 2, what="the two old segments to go")
    assert asking.fetch(connection, topic, 1)["error_code"] == OFFSET_OUT_OF_RANGE
    kept, _ = asking.recordset.parse(asking.fetch(connection, topic, 2)["records"])
    assert [record["offset"] for batch in kept for record in batch["records"]] == [2, 3]
    eventually(
        lambda: broker.metric("tidelog_segments_deleted_total") == before + 2,
        what="the count of deletions",
    )


def test_a_record_from_the_future_does_not_hold_what_is_before_it(broker, connection):
    """Kafka keeps both for ever; here a record from the future counts as written now."""
    topic = asking.new_topic(connection, **{"segment.bytes": "300", "retention.ms": "1"})
    asking.produce(connection, topic, batch(now_ms() + 10**11))
    asking.produce(connection, topic, batch(0))
    eventually(lambda: start_of(connection, topic) == 2, what="everything to go")


def test_nothing_goes_that_is_to_stay(broker, connection):
    kept, watched = asking.new_name(), asking.new_name()
    asking.create(connection, kept, **{"segment.bytes": "300", "retention.ms": "-1"})
    asking.create(connection, watched, **{"segment.bytes": "300", "retention.ms": "1"})
    for topic in (kept, watched):
        for _ in range(3):
            asking.produce(connection, topic, batch(0))
    eventually(lambda: start_of(connection, watched) == 3, what="a round of retention")
    assert start_of(connection, kept) == 0

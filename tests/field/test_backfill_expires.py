"""R2: a backfill is acknowledged, and gone before anybody has read it.

What users see: records of last year are produced to a topic with retention.ms of a week; every producer is
told that they are stored; at the next round, within five minutes, they are deleted, without a word
(openmeter#5005, ksql#4352, librdkafka#1238, KAFKA-7484).

Kafka: a segment's age is counted from the largest time that producers wrote, nothing else.

Here: by default it is the same, for this is what retention.ms has meant since KIP-33; but the deletion is a
log line that names both times. Two settings end it. retention.time.basis=append keeps everything for
retention.ms after it was written, whatever the records say. retention.max.eventtime.ms keeps so much of the
records' own time, back from the latest there has been, and spares for an hour what was just written; it
brings the append basis along.
"""

import pytest

from tests.field.complaints import (
    DAY_MS,
    HOUR_MS,
    NEW_YEAR_MS,
    YEAR_MS,
    create,
    start_of,
    wait_for_a_round,
    write,
)

WEEK_MS = 7 * DAY_MS
LAST_YEAR = [NEW_YEAR_MS - YEAR_MS + day * DAY_MS for day in range(9)]


def test_by_default_it_is_deleted_as_in_kafka_but_not_silently(broker, connection):
    topic = create(connection, retention_ms=str(WEEK_MS), segment_min_roll_interval_ms="0")
    write(connection, topic, LAST_YEAR)
    gone = broker.sweep(topic)
    assert start_of(connection, topic) == 9
    for one in gone:
        assert (one["policy"], one["limit"]) == ("retention.ms", WEEK_MS)
        assert one["largest_time_ms"] in LAST_YEAR
        assert one["last_append_time_ms"] == NEW_YEAR_MS
    assert len(broker.lines(topic, "retention.ms", str(LAST_YEAR[-1]), str(NEW_YEAR_MS))) >= 1


def test_with_basis_append_it_is_kept_for_a_week_after_it_was_written(broker, connection):
    topic = create(connection, retention_ms=str(WEEK_MS), retention_time_basis="append")
    write(connection, topic, LAST_YEAR)
    assert broker.sweep(topic) == []
    broker.clock.step(WEEK_MS)
    assert broker.sweep(topic) == []
    assert start_of(connection, topic) == 0
    broker.clock.step(1)
    assert {one["policy"] for one in broker.sweep(topic)} == {"retention.ms"}
    assert start_of(connection, topic) == 9


@pytest.mark.slow
def test_the_week_is_not_begun_anew_by_a_restart(broker, connection):
    """Nor by a crash: append times are data."""
    topic = create(connection, retention_ms=str(WEEK_MS), retention_time_basis="append")
    write(connection, topic, LAST_YEAR)
    broker.clock.step(DAY_MS)
    for end in (broker.stop, broker.kill):
        end()
        broker.restart()
    broker.clock.set(NEW_YEAR_MS + WEEK_MS)
    with broker.connect() as again:
        assert broker.sweep(topic) == []
        broker.clock.step(1)
        broker.sweep(topic)
        assert start_of(again, topic) == 9


def test_with_event_time_retention_it_is_kept_as_long_as_it_is_recent_among_its_like(
    broker, connection
):
    """Six days of event time: of nine days of last year the first three go, an hour after the backfill."""
    topic = create(
        connection,
        retention_ms=str(WEEK_MS),
        retention_max_eventtime_ms=str(6 * DAY_MS - 1),
    )
    write(connection, topic, LAST_YEAR)
    broker.clock.step(HOUR_MS)
    assert broker.sweep(topic) == []
    broker.clock.step(1)
    gone = broker.sweep(topic)
    assert {one["policy"] for one in gone} == {"retention.max.eventtime.ms"}
    assert start_of(connection, topic) == 3
    broker.clock.step(WEEK_MS - HOUR_MS - 1)
    assert broker.sweep(topic) == []
    broker.clock.step(1)
    assert {one["policy"] for one in broker.sweep(topic)} == {"retention.ms"}


@pytest.mark.oracle
def test_kafka_deletes_it_at_the_next_round(kafka):
    topic = create(kafka, retention_ms=str(WEEK_MS))
    write(kafka, topic, LAST_YEAR)
    wait_for_a_round(kafka)
    wait_for_a_round(kafka)
    assert start_of(kafka, topic) == 9

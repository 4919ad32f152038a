"""R9: a segment for every record, and no file descriptors left.

What users see: old and new records come interleaved, or a backfill goes through history in long steps, and
the broker has too many open files (linkedin/kafka#521, which added a least interval between rolls;
KAFKA-4099).

Kafka: a batch whose time is more than segment.ms beyond the first one of the segment begins a new one. Old
and new in turn cost one segment each time an old one comes first; a backfill of one record a day into a
topic with segment.ms of an hour is a segment for every record.

Here: a roll by time waits until the segment is segment.min.roll.interval.ms (10 s) old by append time.
"""

import pytest

from tests.broker import asking
from tests.broker.raw import Pipe
from tests.field.complaints import (
    DAY_MS,
    HOUR_MS,
    NEW_YEAR_MS,
    YEAR_MS,
    create,
    segments,
    wall_ms,
    write,
)
from tests.oracle import recordset
from tests.oracle.recordset import Rec

RECORDS = 2_000
AT_ONCE = 100


def interleaved(number):
    """An old one, a new one, an old one ..."""
    return NEW_YEAR_MS - (YEAR_MS if number % 2 == 0 else 0) + number


def stepping(number):
    """A record a day, from a year long past."""
    return 1_000_000_000 + number * DAY_MS


def pipeline(connection, topic, times):
    """Many requests of one record each; the broker appends each on its own."""
    for at in range(0, len(times), AT_ONCE):
        for one in times[at : at + AT_ONCE]:
            fields = asking.produce_fields(topic, recordset.batch([Rec(one, b"v")]))
            connection.push("Produce", 9, **fields)
        for _ in times[at : at + AT_ONCE]:
            _, answer = connection.pull()
            part = answer["responses"][0]["partition_responses"][0]
            assert part["error_code"] == 0, part


@pytest.mark.parametrize("times", [interleaved, stepping])
def test_thousands_of_records_within_a_second_are_one_segment(broker, connection, times):
    topic = create(connection, segment_ms=str(HOUR_MS), segment_bytes=str(1 << 30))
    pipe_all(broker, topic, [times(number) for number in range(RECORDS)])
    assert segments(broker.log_dir, topic) == [0]


def pipe_all(broker, topic, times):
    with Pipe(broker) as pipe:
        pipeline(pipe, topic, times)


@pytest.mark.parametrize("times", [interleaved, stepping])
def test_segments_are_as_many_as_intervals_of_append_time(broker, connection, times):
    topic = create(connection, segment_ms=str(HOUR_MS), segment_bytes=str(1 << 30))
    for minute in range(5):
        pipe_all(broker, topic, [times(minute * 60 + number) for number in range(60)])
        broker.clock.step(10_000)
    assert len(segments(broker.log_dir, topic)) <= 5


def test_without_the_interval_it_would_be_one_each(broker, connection):
    """The check can fail: as Kafka does it."""
    topic = create(connection, segment_ms=str(HOUR_MS), segment_min_roll_interval_ms="0")
    write(connection, topic, [stepping(number) for number in range(20)])
    assert len(segments(broker.log_dir, topic)) == 20


@pytest.mark.oracle
def test_kafka_has_a_segment_for_every_record(kafka, running_kafka):
    topic = create(kafka, segment_ms=str(HOUR_MS), segment_bytes=str(1 << 20))
    write(kafka, topic, [stepping(number) for number in range(200)])
    assert len(segments(running_kafka.log_dir, topic)) == 200


@pytest.mark.oracle
def test_kafka_rolls_once_where_old_and_new_come_in_turn(kafka, running_kafka):
    """Since 0.10.1 goes by the segment's first record, which is a new one from the second segment on."""
    topic = create(kafka, segment_ms=str(HOUR_MS), segment_bytes=str(1 << 20))
    times = [interleaved(number) + wall_ms() - NEW_YEAR_MS for number in range(200)]
    write(kafka, topic, times)
    assert len(segments(running_kafka.log_dir, topic)) == 2

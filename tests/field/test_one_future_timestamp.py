"""R1: one stamp from the future, and the disk is never freed again.

What users see: a producer once sent microseconds, or a device had a wrong clock; from then on nothing is
deleted from that partition, until the disk is full (KAFKA-6482, KAFKA-18929, redpanda#9820, redpanda#10028).

Kafka: a segment is as old as its largest record time, and retention stops at the first segment that stays. So
one record from the year 2036 keeps its segment, and every later one, until 2036. Its answers are a line in
the log, and a window that refuses such records (message.timestamp.after.max.ms, an hour since 4.0).

Here: no record counts as younger than its append time, which is always known.
"""

import pytest

from tests.field.complaints import (
    DAY_MS,
    NEW_YEAR_MS,
    YEAR_MS,
    create,
    segments,
    start_of,
    wait_for_a_round,
    wall_ms,
    write,
)

MICROSECONDS = NEW_YEAR_MS * 1000


@pytest.mark.parametrize("stamp", [NEW_YEAR_MS + 10 * YEAR_MS, MICROSECONDS, 2**63 - 1])
def test_it_pins_nothing(broker, connection, stamp):
    topic = create(connection, retention_ms=str(DAY_MS))
    write(connection, topic, [NEW_YEAR_MS, stamp, *[NEW_YEAR_MS] * 6])
    assert len(segments(broker.log_dir, topic)) > 3
    broker.clock.step(DAY_MS)
    assert broker.sweep(topic) == []
    broker.clock.step(1)
    gone = broker.sweep(topic)
    assert {one["policy"] for one in gone} == {"retention.ms"}
    assert gone[1]["largest_time_ms"] == stamp
    assert len(gone) == 8
    assert start_of(connection, topic) == 8


@pytest.mark.slow
def test_it_pins_nothing_after_a_crash_either(broker, connection):
    topic = create(connection, retention_ms=str(DAY_MS))
    write(connection, topic, [MICROSECONDS, NEW_YEAR_MS, NEW_YEAR_MS])
    broker.kill()
    broker.restart()
    broker.clock.set(NEW_YEAR_MS + DAY_MS + 1)
    broker.sweep(topic)
    with broker.connect() as again:
        assert start_of(again, topic) == 3


@pytest.mark.oracle
def test_kafka_keeps_everything_behind_it(kafka, running_kafka):
    pinned, free = (create(kafka, retention_ms="1000") for _ in range(2))
    write(kafka, pinned, [wall_ms() + 10 * YEAR_MS, *[0] * 6])
    write(kafka, free, [0] * 7)
    wait_for_a_round(kafka)
    wait_for_a_round(kafka)
    assert start_of(kafka, free) == 7
    assert start_of(kafka, pinned) == 0
    assert len(segments(running_kafka.log_dir, pinned)) > 3

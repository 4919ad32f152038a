"""Fetches that clients abandon hold nothing up.

A client of 0.8 asks for so much that has to be converted down that answering takes a minute, and
hangs up; five others do the same. Serving, checkpoints and topic changes go on, and the broker
stops in time: each kind of work has threads of its own, work for a closed connection ends at the
next partition, and a partition named many times in a request is read once. On one pool for
everything each of these tests fails.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from tests.broker import asking
from tests.broker.raw import Pipe
from tests.broker.subject import eventually
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

pytestmark = pytest.mark.slow

ABANDONED = 6  # fetches, as many as asyncio's own pool has threads on two processors
RECORDS = 100_000  # of a batch: converting it takes some 50 ms
NAMINGS = 1_500  # of one partition: over a minute of work for each request
PARTITIONS = 200  # distinct ones: over ten seconds of work for each request
IN_TIME_S = 8.0  # for what takes a fraction of a second while nobody else needs the processors
STOP_IN_TIME_S = 8.0  # 0.1 to 0.8 with ten processes on two processors
IDLE_MS = 4_000  # a checkpoint is due every quarter of it


@pytest.fixture(scope="module")
def large_batch():
    """Many records in few bytes: a small answer is much work."""
    return recordset.batch([Rec(1_000, b"")] * RECORDS, codecs.GZIP)


def namings_of_one(connection, batch):
    """A request that names one partition many times."""
    asking.create(connection, "large")
    assert asking.produce(connection, "large", batch)["error_code"] == 0
    return [0] * NAMINGS


def many_partitions(connection, batch):
    """A request that names many partitions once each."""
    asking.create(connection, "large", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        answer = asking.produce(connection, "large", batch, partition=partition)
        assert answer["error_code"] == 0
    return list(range(PARTITIONS))


def fetch_fields(partitions):
    fields = asking.fetch_fields("large", max_wait_ms=0)
    wanted = fields["topics"][0]["partitions"][0]
    fields["topics"][0]["partitions"] = [{**wanted, "partition": each} for each in partitions]
    return fields


@pytest.fixture(params=[namings_of_one, many_partitions], ids=lambda shape: shape.__name__)
def busy_broker(request, start, large_batch):
    """A broker with fetches under way whose clients hung up a moment ago."""
    broker = start({"connections.max.idle.ms": IDLE_MS})
    with broker.connect() as connection:
        fields = fetch_fields(request.param(connection, large_batch))
    with ExitStack() as pipes:
        for _ in range(ABANDONED):
            pipes.enter_context(Pipe(broker)).push("Fetch", 0, **fields)
        time.sleep(1)
    return broker


def test_others_are_served_and_a_stop_does_not_wait_for_them(busy_broker):
    began_s = time.monotonic()
    with busy_broker.connect(timeout_s=IN_TIME_S) as connection:
        asking.create(connection, "other")
        assert asking.produce(connection, "other", asking.batch_of("x"))["error_code"] == 0
        assert asking.list_offset(connection, "other", 1_000)["offset"] == 0
    assert time.monotonic() - began_s < IN_TIME_S
    checkpoint = busy_broker.log_dir / "recovery-point-offset-checkpoint"
    eventually(lambda: "other 0 1" in checkpoint.read_text(), IN_TIME_S, "a checkpoint")
    began_s = time.monotonic()
    assert busy_broker.stop() == 0
    assert time.monotonic() - began_s < STOP_IN_TIME_S


def test_an_abandoned_fetch_is_not_finished(busy_broker):
    """What works for nobody comes to its end: the processors are free again."""

    def is_idle():
        before_s = busy_broker.cpu_s()
        time.sleep(0.25)
        return busy_broker.cpu_s() - before_s < 0.1

    eventually(is_idle, IN_TIME_S, "an idle broker")

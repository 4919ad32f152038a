"""By Kafka's rules a what-if says what Apache Kafka then deletes, of its own directory while it runs."""

import time

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.oracle.apache_kafka import QUICK, ApacheKafka, available
from tidelog.client import EARLIEST, Client
from tidelog.pipeline import retention_inputs
from tidelog.pipeline.engine import whatif
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.time.event_time import EVENT_SLACK_MS

pytestmark = pytest.mark.oracle

DAY = 86_400_000
DEADLINE_S = 120

# Days before now of each batch's records, one batch a segment; what is set.
TOPICS = {
    "old": ([(9,), (8.5, 3), (8,), (2,), (1,)], {"retention.ms": 7 * DAY}),
    "future": ([(9,), (9, -400), (9,), (9,)], {"retention.ms": 7 * DAY}),
    "mixed": ([(9, 9), (30,), (8,), (0.1, 20), (9,), (9,)], {"retention.ms": 7 * DAY}),
    "timeless": ([(None,), (9,), (9,)], {"retention.ms": 7 * DAY}),
    "negative": ([(30_000,), (30_000, 29_999), (1,)], {"retention.ms": 7 * DAY}),
    "small": ([(1,), (1,), (1,), (1,), (1,)], {"retention.bytes": 300}),
    "all": ([(9,), (9,), (9,)], {"retention.ms": 7 * DAY}),
}


@pytest.fixture(scope="module")
def brisk_kafka(tmp_path_factory):
    """A broker that applies retention often."""
    usable = available("3.9.1")
    if not usable:
        pytest.skip(usable.reason)
    often = {"log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500}
    with ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka"), often, jvm=QUICK) as process:
        yield process


def fill(client, topic, batches, now_ms):
    own = {"segment.bytes": "220", "retention.ms": "-1", "file.delete.delay.ms": "100"}
    client.create_topic(topic, 1, own, replication_factor=1)
    for days in batches:
        times = [-1 if ago is None else now_ms - int(ago * DAY) for ago in days]
        records = [Record(i, at, None, b"v" * 60, ()) for i, at in enumerate(times)]
        client.produce(topic, 0, build(records))


def alter(bootstrap, topic, own):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in own.items()
        ],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def starts(client):
    return {topic: client.list_offsets(topic, {0: EARLIEST})[0].offset for topic in TOPICS}


def test_kafka_deletes_what_was_told(brisk_kafka):
    now_ms = time.time_ns() // 1_000_000
    told = {}
    with Client(brisk_kafka.bootstrap) as client:
        for topic, (batches, _) in TOPICS.items():
            fill(client, topic, batches, now_ms)
        for topic, (_, own) in TOPICS.items():
            partition = retention_inputs.PartitionDirectory(
                topic, 0, brisk_kafka.log_dir / f"{topic}-0"
            )
            log = retention_inputs.read(partition, event_slack_ms=EVENT_SLACK_MS, now_ms=now_ms)
            policy = whatif.policy_of("k", {k: str(v) for k, v in own.items()}, "kafka")
            told[topic] = whatif.judge(log, policy, [now_ms]).rounds[0].first_offset
        assert starts(client) == dict.fromkeys(TOPICS, 0)
        for topic, (_, own) in TOPICS.items():
            alter(brisk_kafka.bootstrap, topic, own)
        deadline = time.monotonic() + DEADLINE_S
        while (found := starts(client)) != told and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found == told
        stays = time.monotonic() + 3  # some rounds more
        while time.monotonic() < stays:
            assert starts(client) == told
            time.sleep(0.2)
    assert told["future"] == 1
    assert told["all"] == 3
    assert told["timeless"] == 0
    assert 0 < told["small"] < 5


def test_a_running_kafka_is_sampled(brisk_kafka):
    """It tells no append times and no segments: both are estimated, to about a segment."""
    from tidelog.pipeline.engine import planned
    from tidelog.pipeline.source import sampling

    now_ms = time.time_ns() // 1_000_000
    with Client(brisk_kafka.bootstrap) as client:
        fill(client, "sampled", [(20 - n / 5,) for n in range(100)], now_ms)
    own = {"segment.bytes": "220", "retention.ms": str(10 * DAY)}
    policy = whatif.policy_of("p", own, "kafka")
    (one,) = sampling.partitions(brisk_kafka.bootstrap, lambda name: name == "sampled")
    log = planned.log_of_samples("sampled", 0, sampling.samples(one), policy.config, now_ms, 0)
    assert log.is_estimated
    found = whatif.judge(log, policy, [now_ms]).rounds[0]
    alter(brisk_kafka.bootstrap, "sampled", {"retention.ms": 10 * DAY})
    deadline = time.monotonic() + DEADLINE_S
    start = 0
    with Client(brisk_kafka.bootstrap) as client:
        while abs(start - found.first_offset) > 3 and time.monotonic() < deadline:
            time.sleep(0.5)
            start = client.list_offsets("sampled", {0: EARLIEST})[0].offset
    assert start == pytest.approx(found.first_offset, abs=3)
    assert start > 40

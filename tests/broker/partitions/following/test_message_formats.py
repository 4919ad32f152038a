"""Brokers that store different message formats: what each has, and what a leader tells of a copy."""

from __future__ import annotations

import pytest

from tests.broker.partitions.inside import (
    append,
    ask,
    brokers,
    consume,
    eventually,
    part_of,
    produce,
    values_of,
)
from tidelog.protocol.api import incremental_alter_configs as configs_api
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import Record, build, scan
from tidelog.protocol.records.layout import NO_TIMESTAMP, Compression

OLD = {"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.9.0"}
MIDDLE = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
MIXED = {2: OLD, 3: MIDDLE}
TIME_MS = 1_700_000_000_000


@pytest.fixture
async def mixed(tmp_path):
    """Brokers of which each stores another message format."""
    async with brokers(tmp_path, settings=MIXED) as made:
        yield made


async def send(broker, topic, data):
    """Appends a record set with acks=all; returns the answer's part of the partition."""
    return part_of(await append(broker, topic, data))


def batches(log):
    buffers, _, _ = log.read(0, 1 << 30, upper_offset=log.log_end_offset, minimum_one=True)
    data = b"".join(buffers)
    return list(scan(data))


def formats(log) -> set[int]:
    return {each.magic for each in batches(log)}


def appended_at(log):
    """The append time of every offset."""
    return [log.reader.append_time_of(offset) for offset in range(log.log_end_offset)]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
async def test_each_follower_stores_the_format_it_asks_for(mixed, codec):
    sent = [Record(n, TIME_MS - n, b"k%d" % n, b"v%d" % n) for n in range(50)]
    await mixed.create("t")
    for _ in range(3):
        answer = await send(mixed[1], "t", build(sent, compression=codec))
        assert answer.error_code == 0
    logs = [mixed[number].log("t") for number in (1, 2, 3)]
    assert [formats(log) for log in logs] == [{2}, {0}, {1}]
    assert [log.log_end_offset for log in logs] == [150, 150, 150]
    assert values_of(logs[0]) == values_of(logs[1]) == values_of(logs[2])
    assert [each.max_timestamp for each in batches(logs[1])] == [NO_TIMESTAMP] * len(
        batches(logs[1])
    )
    assert max(each.max_timestamp for each in batches(logs[2])) == TIME_MS
    assert mixed[1].node.metrics.topics["t"].down_converted == 2 * 150


async def test_a_follower_of_an_older_format_leads_and_the_next_leader_follows_it(mixed):
    await mixed.create("t")
    assert (await produce(mixed[1], "t", b"a")).error_code == 0
    await mixed.elect("t", 2)
    answer = await produce(mixed[2], "t", b"b")
    assert (answer.error_code, answer.base_offset) == (0, 1)
    await mixed.elect("t", 1)
    assert (await produce(mixed[1], "t", b"c")).base_offset == 2
    for broker in mixed.all.values():
        assert values_of(broker.log("t")) == [b"a", b"b", b"c"]
    assert [each.magic for each in batches(mixed[1].log("t"))] == [2, 0, 2]
    assert formats(mixed[2].log("t")) == {0}


async def test_a_copy_keeps_append_times_and_epochs_though_its_format_has_neither(mixed):
    await mixed.create("t")
    for value in (b"a", b"b"):
        assert (await produce(mixed[1], "t", value)).error_code == 0
    first, second = mixed[1].log("t"), mixed[2].log("t")
    assert formats(second) == {0}
    assert appended_at(first) == appended_at(second)
    await mixed.elect("t", 3)
    assert (await produce(mixed[3], "t", b"c")).error_code == 0
    await eventually(lambda: first.state.epochs.last_begun == second.state.epochs.last_begun == 1)
    assert first.state.epochs.end_offset_of(0, 3) == second.state.epochs.end_offset_of(0, 3)


async def test_a_batch_with_a_producer_id_or_headers_is_copied_as_it_is(mixed):
    record = Record(0, TIME_MS, b"k", b"v")
    await mixed.create("t")
    with_id = build([record], producer_id=9, producer_epoch=0, base_sequence=0)
    assert (await send(mixed[1], "t", with_id)).error_code == 0
    with_header = build([record._replace(headers=((b"a", b"b"),))])
    assert (await send(mixed[1], "t", with_header)).error_code == 0
    assert (await send(mixed[1], "t", build([record]))).error_code == 0
    assert [each.magic for each in batches(mixed[2].log("t"))] == [2, 2, 0]
    await mixed.elect("t", 3)
    again = await send(mixed[3], "t", with_id)  # a retry is still known
    assert (again.error_code, again.base_offset) == (0, 0)


async def test_a_broker_writes_no_newer_format_than_it_may_store(mixed, caplog):
    await mixed.create("t", configs={"message.format.version": "0.10.2"})
    assert (await produce(mixed[1], "t", b"a")).error_code == 0
    await mixed.elect("t", 2)
    assert (await produce(mixed[2], "t", b"b")).error_code == 0
    assert [each.magic for each in batches(mixed[1].log("t"))] == [1, 0]
    assert formats(mixed[2].log("t")) == {0}
    found = await consume(mixed[2], "t", 0, 0)
    assert found.error_code == ErrorCode.NONE
    said = [each for each in caplog.messages if "above inter.broker.protocol.version" in each]
    assert len(said) == 1  # by broker 2, though it was asked more than once


async def alter(broker, topic, name, value):
    """Sets one setting of a topic, or without one of the brokers; returns the error and its sentence."""
    resource = configs_api.AlterConfigsResource(
        resource_type=2 if topic else 4,
        resource_name=topic,
        configs=[configs_api.AlterableConfig(name=name, config_operation=0, value=value)],
    )
    request = configs_api.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = (await ask(broker, request, configs_api.API.key)).responses
    return answer.error_code, answer.error_message


async def test_a_change_to_a_format_that_is_too_new_is_refused_and_others_are_not(mixed):
    await mixed.create("t", configs={"message.format.version": "0.10.2"})
    broker = mixed[2]
    code, sentence = await alter(broker, "t", "message.format.version", "0.11.0")
    assert code == ErrorCode.INVALID_CONFIG
    assert sentence == (
        "message.format.version=0.11.0 is message format 2, and inter.broker.protocol.version=0.9.0 "
        "allows none newer than 0: set inter.broker.protocol.version to 0.11.0 or later on every "
        "broker first, or an older message.format.version"
    )
    code, sentence = await alter(broker, "", "log.message.format.version", "0.10.0")
    assert code == ErrorCode.INVALID_CONFIG
    assert "log.message.format.version=0.10.0 is message format 1" in sentence
    assert await alter(broker, "t", "retention.ms", "7") == (0, None)
    assert await alter(broker, "t", "message.format.version", "0.9.0") == (0, None)
    configs = broker.node.metadata.image.topics["t"].configs
    assert configs == {"message.format.version": "0.9.0", "retention.ms": "7"}

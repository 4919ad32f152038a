"""Brokers that throttle, break off or answer nonsense: nothing is passed over in silence, nothing hangs."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import deque
from struct import Struct

import pytest

from tidelog.client import ConnectionBroken
from tidelog.client.apis import METADATA
from tidelog.client.appender import Appender
from tidelog.client.sync_connection import Connection
from tidelog.pipeline.source.access import read
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.pipeline.source.splits import READ_COMMITTED, READ_UNCOMMITTED, SourceError, Split
from tidelog.protocol.api import (
    api_versions,
    describe_configs,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from tidelog.protocol.message import api_of, codec
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.column_batches import EncodedBatch

SERVED = {
    1: (4, 11),
    2: (1, 5),
    3: (1, 8),
    18: (0, 3),
    32: (1, 3),
}  # none of them flexible, but for what is asked first
HEAD = Struct(">hhi")
SIZE = Struct(">i")


class Scripted:
    """A broker on a port: it leads topic `t`, and answers each fetch with the next of some answers."""

    policy = "delete"
    end = 5

    def __init__(self, fetches, served=SERVED):
        self.fetches = fetches
        self.served = served
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        self.server.close()
        self.thread.join(60)

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.server.accept()
                with peer, peer.makefile("rb") as requests:
                    while head := requests.read(4):
                        request = requests.read(SIZE.unpack(head)[0])
                        key, version, correlation_id = HEAD.unpack_from(request)
                        peer.sendall(self.answered(key, version, correlation_id))

    def answered(self, key, version, correlation_id):
        parts = codec(api_of(key).response, version).encode_parts(self.answer(key))
        data = b"".join((SIZE.pack(correlation_id), *parts))
        return SIZE.pack(len(data)) + data

    def answer(self, key):
        if key == 18:
            return api_versions.ApiVersionsResponse(
                api_keys=[
                    api_versions.ApiVersion(api_key=one, min_version=low, max_version=high)
                    for one, (low, high) in self.served.items()
                ]
            )
        if key == 3:
            partition = metadata.MetadataResponsePartition(
                partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            topic = metadata.MetadataResponseTopic(name="t", partitions=[partition])
            node = metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
            return metadata.MetadataResponse(brokers=[node], topics=[topic], controller_id=1)
        if key == 2:
            end = list_offsets.ListOffsetsPartitionResponse(
                partition_index=0, offset=self.end, timestamp=-1
            )
            topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[end])
            return list_offsets.ListOffsetsResponse(topics=[topic])
        if key == 32:
            policy = describe_configs.DescribeConfigsResourceResult(
                name="cleanup.policy", value=self.policy, config_source=5
            )
            topic = describe_configs.DescribeConfigsResult(
                resource_type=2, resource_name="t", configs=[policy]
            )
            return describe_configs.DescribeConfigsResponse(results=[topic])
        return next(self.fetches)


def fetched(records, *, high_watermark=5, last_stable_offset=5):
    data = fetch.PartitionData(
        partition_index=0,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=0,
        records=records,
    )
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[data])]
    )


THROTTLED = fetch.FetchResponse(throttle_time_ms=1, responses=[])  # as a quota's answer is


def batch(count=5, offset=0):
    return build([Record(offset + n, 1000 + n, None, b"v") for n in range(count)])


def offsets_read(answers, end=5, *, policy="delete", log_end=5, **how):
    with Scripted(answers) as broker:
        broker.policy, broker.end = policy, log_end
        split = Split("t", 0, 0, end, 1, brokers=f"127.0.0.1:{broker.port}")
        return [int(one) for columns in read(split, ReadOptions(**how)) for one in columns.offset]


def test_a_quota_slows_a_read_and_does_not_end_it():
    assert offsets_read(iter([*[THROTTLED] * 4, fetched(batch())])) == [0, 1, 2, 3, 4]


def test_a_broker_that_sends_nothing_of_what_it_has_is_no_end():
    with pytest.raises(SourceError, match="sends nothing of offsets 3 to 4, which it says are"):
        offsets_read(itertools.chain([fetched(batch(3))], itertools.repeat(fetched(b""))))


def test_a_broker_that_is_slow_is_waited_for():
    slow = [fetched(batch(3)), *[fetched(b"")] * 10, fetched(batch(2, 3))]
    assert offsets_read(iter(slow)) == [0, 1, 2, 3, 4]


def test_what_compaction_took_at_the_end_is_the_end():
    answers = itertools.chain([fetched(batch(3))], itertools.repeat(fetched(b"")))
    assert offsets_read(answers, policy="compact,delete") == [0, 1, 2]


def test_a_stable_offset_that_went_back_is_no_end():
    held = fetched(b"", last_stable_offset=3)
    answers = itertools.chain([fetched(batch(3))], itertools.repeat(held))
    with pytest.raises(SourceError, match="ends at offset 3 now: 4 was there"):
        offsets_read(answers, policy="compact", isolation=READ_COMMITTED, log_end=3)


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_a_new_leader_that_does_not_know_the_high_watermark_yet_is_waited_for(isolation):
    """Its fetches name a smaller one, when ListOffsets has the right one already."""
    early = fetched(b"", high_watermark=3, last_stable_offset=3)
    answers = iter([fetched(batch(3)), early, early, fetched(batch(2, 3))])
    assert offsets_read(answers, isolation=isolation) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data[:16] + b"\x09" + data[17:], "has magic 9"),
        (lambda data: data[:8] + b"\0\0\0\x01" + data[12:], "claims 1 bytes"),
        (lambda data: data[:-1], "cut short"),
    ],
)
def test_a_first_batch_that_cannot_be_is_named(change, what):
    with pytest.raises(SourceError, match=what):
        offsets_read(itertools.repeat(fetched(change(batch()))))


def test_a_broker_that_sends_the_same_again_is_told_apart():
    with pytest.raises(SourceError, match="asked for offset 5, the broker sends what ends before"):
        offsets_read(itertools.repeat(fetched(batch(), high_watermark=9)), end=9)


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x01\x00\xff"])
def test_an_answer_whose_head_is_cut_short_is_nonsense(body):
    """Of a flexible version, which has tags before the message."""
    with Scripted(iter(()), {**SERVED, METADATA: (9, 12)}) as broker:
        whole = broker.answered

        def answered(key, version, correlation_id):
            if key != METADATA:
                return whole(key, version, correlation_id)
            return SIZE.pack(4 + len(body)) + SIZE.pack(correlation_id) + body

        broker.answered = answered
        with (
            Connection("127.0.0.1", broker.port, "test", 60) as one,
            pytest.raises(ConnectionBroken, match="cut short"),
        ):
            one.ask(metadata.MetadataRequest(topics=None), METADATA)


class Breaking:
    """A connection that breaks at the sending for some times, then takes everything."""

    def __init__(self, breaks):
        self.breaks = breaks
        self.sent = deque()

    def send(self, message, _key):
        if self.breaks:
            self.breaks.pop()
            raise ConnectionBroken("reset by peer")
        self.sent.append(message)

    def receive(self, *, wait_s):
        assert wait_s >= 0
        sent = self.sent.popleft()
        (topic,) = sent.topic_data
        answer = produce.PartitionProduceResponse(index=0, base_offset=7)
        return produce.ProduceResponse(
            responses=[produce.TopicProduceResponse(name=topic.name, partition_responses=[answer])]
        )


class OneLeader:
    """A client whose leader is always found."""

    timeout_s = 60.0

    def __init__(self, breaks):
        self.breaks = breaks

    def leader(self, *_):
        return Breaking(self.breaks)

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_connection_that_breaks_while_all_is_sent_again(times):
    appender = Appender(OneLeader([None] * times), "t", 0)
    sent = EncodedBatch(batch(), 0, 5, 0)
    assert appender.send(sent) == []
    assert [(one.batch, one.base_offset) for one in appender.flush()] == [(sent, 7)]

"""Fetch by a follower: all that its log needs comes over the wire, and to others nothing does."""

from __future__ import annotations

import json
import uuid

import pytest

from broker.partitions import replication_state
from client import Client, UnsupportedByBroker
from client.calls.records import delete_before
from client.calls.replication import Position, fetch_as_follower
from config.topic import TopicConfig
from protocol.api.fetch import FetchResponse
from protocol.message import codec
from storage.directory.store import LogStore
from tests.broker import asking
from tests.broker.asking import all_versions, batch_of, create, fetch_fields, new_name, produce
from tests.broker.subject import Subject
from tests.oracle import wire

NEW_YEAR_MS = 1_767_225_600_000
FLEXIBLE = [version for version in all_versions("Fetch") if version >= 12]
ASKS = bytes.fromhex("eae801 01 01")  # 29802, true
NODE, REPLICA = 1, 7
MOST_FETCHES = 1_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker whose clock stands still, so that every batch has the append time it is given."""
    with Subject(tmp_path_factory.mktemp("leader") / "data", clock="manual") as subject:
        subject.clock.freeze(NEW_YEAR_MS)
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


def ask(connection, topic, offset=0, *, version, replica, asks=True):
    """The bytes of an answer; the first one ends its header, which has no tags."""
    named = asking.topic_id_of(connection, topic) if version >= 13 else topic
    fields = fetch_fields(named, offset)
    fields["replica_id"] = replica if version < 15 else -1
    key, _, body = wire.encode_request("Fetch", version, fields)
    assert body.endswith(b"\0")
    state = b""
    if version >= 15 and replica >= 0:  # the id is in a tag: its length, the id, no epoch, no tags
        state = b"\x01\x0d" + replica.to_bytes(4, "big") + b"\xff" * 8 + b"\0"
    tags = [part for part in (state, ASKS if asks else b"") if part]
    frame = connection.ask_raw(
        key, version, body[:-1] + bytes([len(tags)]) + b"".join(tags), flexible=True
    )
    assert frame is not None
    return frame


def only(frame, version):
    answer, end = codec(FetchResponse, version).decode(frame, 1)
    assert end == len(frame)
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_follower_is_told_and_nobody_else(broker, connection, version):
    topic = new_name()
    create(connection, topic)
    now = broker.clock.now_ms()
    produce(connection, topic, batch_of("a", "b"))
    plain = ask(connection, topic, version=version, replica=REPLICA, asks=False)
    assert ask(connection, topic, version=version, replica=-1, asks=True) == plain
    told = ask(connection, topic, version=version, replica=REPLICA)
    assert told != plain
    data = only(told, version)
    state = data.replication_state
    assert [(each.epoch, each.start_offset) for each in state.epochs] == [(0, 0)]
    assert (state.last_append_time_ms, state.compacted_offset) == (now, -1)
    assert (state.mark_epoch, state.mark_number, state.back_offset) == (0, 0, 0)
    assert (state.corrections, state.adopted, data.append_times) == ([], [], None)
    answer = codec(FetchResponse, version).decode(told, 1)[0]
    answer.responses[0].partitions[0].replication_state = None
    assert codec(FetchResponse, version).encode(answer) == plain[1:]  # it differs by the tag alone
    at_end = only(ask(connection, topic, 2, version=version, replica=REPLICA), version)
    assert not at_end.records
    assert at_end.replication_state.epochs == []
    assert at_end.replication_state.last_append_time_ms == now
    behind = only(ask(connection, topic, 3, version=version, replica=REPLICA), version)
    assert (behind.error_code, behind.replication_state) == (1, None)  # out of range


def test_a_log_is_copied_over_the_wire(broker, connection, tmp_path):
    """Formats, append times and epochs, a reset of the clock, and a log start that moves."""
    topic = new_name()
    create(connection, topic, segment_bytes="600", message_format_version="0.10.2")
    begun = broker.clock.now_ms()
    for number in range(12):
        broker.clock.freeze(begun + 5_000_000 + 7 * (number // 2))
        assert produce(connection, topic, batch_of("a", "b"))["error_code"] == 0
    broker.clock.freeze(begun + 1_000)  # it was ahead: append times go on from here
    for number in range(12):
        broker.clock.freeze(begun + 1_000 + number)
        assert produce(connection, topic, batch_of("c"))["error_code"] == 0
    store = LogStore([tmp_path / "copy"], default_config=TopicConfig(segment_bytes=900))
    store.open(0)
    copy = store.create_partition(topic, uuid.uuid4(), 0, TopicConfig(segment_bytes=900), 0)
    with Client(broker.bootstrap) as client:
        client.topics([topic])
        copied(client, topic, copy)
        assert copy.log_end_offset == 36
        for offset in range(36):
            url = f"/v1/topics/{topic}/partitions/0/records/{offset}/times"
            known = json.loads(broker.page(url))["append_time_ms"]
            assert copy.reader.append_time_of(offset) == known
        assert copy.state.back_offset == 24
        assert [each.end_offset for each in copy.state.corrections] == [24]
        assert copy.last_append_time == begun + 1_011
        assert copy.log_start_offset == 0
        client.perform(delete_before(topic, 0, 5))
        copied(client, topic, copy)
        assert copy.log_start_offset == 5
    store.close()


def copied(client, topic, copy):
    """Follow until there is nothing more to fetch, and once more."""
    for _ in range(MOST_FETCHES):
        begun = copy.log_end_offset
        position = Position(begun, leader_epoch=0)
        call = fetch_as_follower(
            NODE, REPLICA, {(topic, 0): position}, partition_max_bytes=300, max_wait_ms=0
        )
        data = client.perform(call)[topic, 0]
        assert data.error_code == 0
        state = data.replication_state
        copy.replica.append_as_follower(
            data.records or b"",
            replication_state.received_append_times(data),
            replication_state.received_epochs(state),
            replication_state.received_state(data, state),
            now_ms=1,
        )
        if copy.log_end_offset == begun:
            return
    pytest.fail("it never ends")


def test_a_broker_that_tells_nothing_is_named(broker, connection):
    topic = new_name()
    create(connection, topic)
    with Client(broker.bootstrap) as client:
        client.topics([topic])
        call = fetch_as_follower(NODE, -1, {(topic, 0): Position(0, 0)}, max_wait_ms=0)
        with pytest.raises(UnsupportedByBroker, match="no replication state"):
            client.perform(call)

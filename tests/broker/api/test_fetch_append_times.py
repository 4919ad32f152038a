"""Fetch with append times: told to those who ask, of whole batches, and nothing else is changed by it."""

from __future__ import annotations

import json
import struct
import threading

import pytest

from tests.broker import asking
from tests.broker.asking import all_versions, batch_of, fetch_fields, new_topic, produce
from tests.broker.subject import Subject
from tests.oracle import recordset, wire

NEW_YEAR_MS = 1_767_225_600_000
UNKNOWN = -(2**63)
FLEXIBLE = [version for version in all_versions("Fetch") if version >= 12]
TAG = bytes.fromhex("01 e9e801")  # one tagged field: 0x7469
ASKS = TAG + b"\x01\x01"
FETCH_SESSION_ID_NOT_FOUND = 70


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker whose clock stands still, so that every batch has the append time it is given."""
    with Subject(tmp_path_factory.mktemp("told") / "data", clock="manual") as subject:
        subject.clock.freeze(NEW_YEAR_MS)
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


def fill(broker, connection, topic, times, partition=0):
    """Append a batch at each of these milliseconds after the new year, or at a growing clock."""
    for time in times:
        broker.clock.freeze(NEW_YEAR_MS + time)
        answer = produce(connection, topic, batch_of("a", "b"), partition=partition)
        assert answer["error_code"] == 0


def ask(connection, topic, offset=0, *, version=12, asks=True, **more):
    """The bytes of an answer behind its header; with `asks` the request has the tag of ours."""
    named = asking.named(connection, topic, version)
    key, _, body = wire.encode_request("Fetch", version, fetch_fields(named, offset, **more))
    assert body.endswith(b"\0")
    frame = connection.ask_raw(key, version, body[:-1] + ASKS if asks else body, flexible=True)
    assert frame is not None
    return frame


def uvarint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
        shift += 7


def entries_in(data):
    """What the tagged field holds: for each segment (append time after the new year, offset)."""
    count, at = uvarint(data, 0)
    found = []
    for _ in range(count - 1):
        (base,) = struct.unpack_from(">q", data, at)
        size, at = uvarint(data, at + 8)
        entries = data[at : at + size - 1]
        assert data[at + size - 1] == 0
        at += size
        found.append(
            [
                (None if time == UNKNOWN else time - NEW_YEAR_MS, base + relative)
                for time, relative in struct.iter_unpack(">qi", entries)
            ]
        )
    assert at == len(data)
    return found


def told(connection, topic, offset=0, **more):
    """Ask twice, once without the tag: that is all the answers differ by. Returns entries, records."""
    plain = ask(connection, topic, offset, asks=False, **more)
    tagged = ask(connection, topic, offset, **more)
    version = more.get("version", 12)
    answer = wire.decode_answer("Fetch", version, plain)
    records = answer["responses"][0]["partitions"][0]["records"]
    assert plain.endswith((records or b"") + b"\0\0\0")
    if tagged == plain:
        return None, records
    assert tagged.startswith(plain[:-3] + TAG)
    size, at = uvarint(tagged, len(plain) - 3 + len(TAG))
    assert at + size == len(tagged) - 2
    assert tagged.endswith(b"\0\0")
    again = wire.decode_answer("Fetch", version, tagged)  # who does not know the tag passes over it
    assert again == answer
    return entries_in(tagged[at : at + size]), records


def times_of(entries, offsets):
    """When offsets were appended, by these entries."""
    listed = [entry for segment in entries for entry in segment]
    return [[time for time, first in listed if first <= offset][-1] for offset in offsets]


@pytest.mark.parametrize("version", FLEXIBLE)
def test_every_flexible_version_tells_who_asks(broker, connection, version):
    topic = new_topic(connection)
    base = broker_time(broker)
    fill(broker, connection, topic, [base + 1, base + 5, base + 5, base + 9])
    entries, _ = told(connection, topic, version=version)
    assert entries == [[(base + 1, 0), (base + 5, 2), (base + 9, 6)]]
    entries, _ = told(connection, topic, 5, version=version)
    assert entries == [[(base + 5, 2), (base + 9, 6)]]
    for offset in range(8):
        url = f"/v1/topics/{topic}/partitions/0/records/{offset}/times"
        known = json.loads(broker.page(url))["append_time_ms"] - NEW_YEAR_MS
        entries, _ = told(connection, topic, offset, version=version)
        assert times_of(entries, [offset]) == [known]


def broker_time(broker):
    """Milliseconds since the new year by the broker's clock."""
    return broker.clock.now_ms() - NEW_YEAR_MS


def test_where_nothing_is_read_nothing_is_told(broker, connection):
    topic = new_topic(connection)
    assert told(connection, topic)[0] is None
    fill(broker, connection, topic, [broker_time(broker)])
    assert told(connection, topic)[0] is not None
    assert told(connection, topic, 2) == (None, b"")
    failed = ask(connection, topic, 3)
    assert failed == ask(connection, topic, 3, asks=False)
    answer = wire.decode_answer("Fetch", 12, failed)
    assert answer["responses"][0]["partitions"][0]["error_code"] == 1  # out of range


def test_a_fetch_that_waits_is_told_what_came(broker, connection):
    topic = new_topic(connection)
    now = broker_time(broker)
    answers = []
    with broker.connect() as other:
        thread = threading.Thread(
            target=lambda: answers.append(ask(other, topic, max_wait_ms=200_000))
        )
        thread.start()
        fill(broker, connection, topic, [now + 3])
        thread.join(60)
    assert not thread.is_alive()
    assert answers == [ask(connection, topic)]
    assert told(connection, topic)[0] == [[(now + 3, 0)]]


def test_only_whole_batches_within_the_limit_are_told_of(broker, connection):
    topic = new_topic(connection, segment_bytes="1000")
    now = broker_time(broker)
    fill(broker, connection, topic, range(now, now + 30))
    for most in (1, 80, 200, 333, 1000, 3000):
        offset = 0
        while offset < 60:
            entries, records = told(connection, topic, offset, partition_max_bytes=most)
            batches, _ = recordset.parse(records)
            first, following = batches[0]["offset"], batches[-1]["offset"] + 2
            assert sum(map(len, entries)) == len(batches)
            offsets = range(first, following)
            assert times_of(entries, offsets) == [now + each // 2 for each in offsets]
            offset = following


def test_a_partition_for_which_no_room_is_left_is_told_nothing(broker, connection):
    topic = new_topic(connection, partitions=2)
    now = broker_time(broker)
    for partition in (0, 1):
        fill(broker, connection, topic, [now + partition], partition)
    fields = fetch_fields(topic, max_bytes=1)
    (only,) = fields["topics"][0]["partitions"]
    fields["topics"][0]["partitions"] = [only, {**only, "partition": 1}]
    key, _, body = wire.encode_request("Fetch", 12, fields)
    frame = connection.ask_raw(key, 12, body[:-1] + ASKS, flexible=True)
    first, second = wire.decode_answer("Fetch", 12, frame)["responses"][0]["partitions"]
    assert first["records"]
    assert not second["records"]
    assert frame.count(TAG) == 1


def test_answers_of_a_session_have_their_append_times(broker, connection):
    topic = new_topic(connection)
    fill(broker, connection, topic, [broker_time(broker)])
    frame = ask(connection, topic, session_epoch=0)
    session = wire.decode_answer("Fetch", 12, frame)["session_id"]
    plain = ask(connection, topic, session_id=session, session_epoch=1, asks=False)
    frame = ask(connection, topic, session_id=session, session_epoch=2)
    assert frame.startswith(plain[:-3] + TAG)
    frame = ask(connection, topic, session_epoch=1)  # of no session: the tag changes nothing
    answer = wire.decode_answer("Fetch", 12, frame)
    assert answer["error_code"] == FETCH_SESSION_ID_NOT_FOUND
    assert frame == ask(connection, topic, session_epoch=1, asks=False)


def test_who_does_not_ask_is_not_told(broker, connection):
    topic = new_topic(connection)
    fill(broker, connection, topic, [broker_time(broker)])
    for version in all_versions("Fetch"):
        named = asking.named(connection, topic, version)
        key, flexible, body = wire.encode_request("Fetch", version, fetch_fields(named))
        frame = connection.ask_raw(key, version, body, flexible=flexible)
        assert TAG[1:] not in frame
        partition = wire.decode_answer("Fetch", version, frame)["responses"][0]["partitions"][0]
        assert partition["records"]
        end = bytes(partition["records"]) + (b"\0\0\0" if flexible else b"")
        assert frame.endswith(end)

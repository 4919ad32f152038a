"""The fetch of one partition between brokers: the same bytes and messages as by the general codecs."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.calls.replication import replica_fetch
from tidelog.protocol.api import fetch, fetch_single
from tidelog.protocol.decoder import make_decoder
from tidelog.protocol.encoder import make_encoder
from tidelog.protocol.message import codec
from tidelog.protocol.wire import DecodeError, EncodeError

_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_OFFSET = st.integers(-1, 2**63 - 2)  # the largest is the default of the high watermark

_in_general = make_decoder(
    fetch.FetchRequest, fetch_single.VERSION, flexible=True, elements=fetch.API.request_elements
)


def _written(**changed):
    fields = {
        "index": 3,
        "leader_epoch": 4,
        "fetch_offset": 5,
        "last_fetched_epoch": 6,
        "log_start_offset": 7,
        "high_watermark": 8,
        **changed,
    }
    limits = (500, 1 << 24, 1 << 20)
    return fetch_single.write(limits, (1, 9), (2, 10), UUID(int=7).bytes, **fields)


@given(
    limits=st.tuples(_INT32, _INT32, _INT32),
    session=st.tuples(_INT32, _INT32),
    replica=st.tuples(_INT32, _INT64),
    topic_id=st.uuids(),
    numbers=st.tuples(_INT32, _INT32, _INT64, _INT32, _INT64, _OFFSET),
)
def test_writes_the_bytes_of_the_general_codec(limits, session, replica, topic_id, numbers):
    index, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, high_watermark = (
        numbers
    )
    partition = fetch.FetchPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=limits[2],
        high_watermark=high_watermark,
    )
    message = replica_fetch(
        *replica,
        {topic_id: [partition]},
        max_wait_ms=limits[0],
        max_bytes=limits[1],
        session=session,
    )
    expected = codec(fetch.FetchRequest, fetch_single.VERSION).encode(message)
    body = fetch_single.write(limits, session, replica, topic_id.bytes, *numbers)
    assert body == expected
    assert fetch_single.read(b"head" + body, 4) == message == _in_general(body, 0)[0]


def test_each_changed_byte_is_read_as_by_the_general_codec():
    """Bytes of another shape are left to the general decoder, which may refuse them."""
    body = _written()
    short = codec(fetch.FetchRequest, fetch_single.VERSION).decode
    left = 0
    for at in range(len(body)):
        for value in {body[at] ^ 1, body[at] ^ 0x80, 0, 1, 2, 0xFF} - {body[at]}:
            changed = body[:at] + bytes((value,)) + body[at + 1 :]
            left += fetch_single.read(changed, 0) is None
            assert _outcome(short, changed) == _outcome(_in_general, changed), (at, value)
    assert left > 100


def _outcome(decode, body):
    try:
        return decode(body, 0)
    except DecodeError as error:
        return str(error)


@pytest.mark.parametrize("body", [b"", _written()[:-1], _written() + b"\0"])
def test_another_length_is_left_to_the_general_codec(body):
    assert fetch_single.read(body, 0) is None


def test_each_message_read_is_a_new_one():
    body = _written()
    one, other = fetch_single.read(body, 0), fetch_single.read(body, 0)
    assert one == other
    assert one.topics is not other.topics
    one.topics[0].partitions.clear()
    assert other.topics[0].partitions


# --- responses ------------------------------------------------------------------------------------

_response_in_general = make_decoder(
    fetch.FetchResponse, fetch_single.VERSION, flexible=True, elements=1_000_000
)
_encoded_in_general = make_encoder(fetch.FetchResponse, fetch_single.VERSION, flexible=True)
_short = codec(fetch.FetchResponse, fetch_single.VERSION)


def _response(numbers=None, records=(b"records",), **changed):
    given = iter(numbers or range(1, 19))
    state = {
        "epochs": [fetch.EpochStart(epoch=next(given), start_offset=next(given))],
        "last_append_time_ms": next(given),
        "max_event_time_ms": next(given),
        "compacted_offset": next(given),
        "back_offset": next(given),
        "mark_epoch": next(given),
        "mark_number": next(given),
        "late_horizons_from_ms": next(given),
        "late_horizons_to_ms": next(given),
        **changed.pop("state", {}),
    }
    partition = {
        "partition_index": next(given),
        "error_code": next(given),
        "high_watermark": next(given),
        "last_stable_offset": next(given),
        "log_start_offset": next(given),
        "preferred_read_replica": next(given),
        "records": list(records),
        "aborted_transactions": None,
        "append_times": [fetch.SegmentAppendTimes(base_offset=next(given), entries=b"e" * 12)],
        "replication_state": fetch.ReplicationState(**state),
        **changed.pop("partition", {}),
    }
    topic = {
        "topic_id": UUID(int=7),
        "partitions": [fetch.PartitionData(**partition)],
        **changed.pop("topic", {}),
    }
    return fetch.FetchResponse(
        **{
            "session_id": 1,
            "responses": [fetch.FetchableTopicResponse(**topic)],
            "clock_ms": next(given),
            **changed,
        }
    )


@given(
    numbers=st.tuples(
        *(_INT32, *[_INT64] * 5, *[_INT32] * 2, *[_INT64] * 2),
        *(_INT32, st.integers(-(2**15), 2**15 - 1), *[_INT64] * 3, _INT32, _INT64),
        _INT64.filter(lambda clock_ms: clock_ms != fetch.NO_CLOCK),
    ),
    records=st.lists(st.binary(max_size=300), min_size=1, max_size=3),
)
def test_writes_and_reads_the_responses_of_the_general_codec(numbers, records):
    message = _response(numbers, records)
    parts = fetch_single.encode_answer(message)
    body = b"".join(parts)
    assert body == b"".join(_encoded_in_general(message))
    assert parts[1:-1] == records
    read = fetch_single.read_answer(b"head" + body, 4)
    assert read == _response_in_general(body, 0)[0]
    assert isinstance(read.responses[0].partitions[0].records, memoryview)


_ODD = {
    "no topic": {"responses": []},
    "an error": {"error_code": 6, "throttle_time_ms": 9},
    "two partitions": {"topic": {"partitions": [_response().responses[0].partitions[0]] * 2}},
    "an address": {"node_endpoints": [fetch.NodeEndpoint(node_id=1, host="h", port=2)]},
    "another history": {"partition": {"diverging_epoch": fetch.EpochEndOffset(epoch=1)}},
    "another leader": {"partition": {"current_leader": fetch.LeaderIdAndEpoch(leader_id=1)}},
    "a snapshot": {"partition": {"snapshot_id": fetch.SnapshotId(epoch=1)}},
    "no transactions": {"partition": {"aborted_transactions": []}},
    "no records": {"partition": {"records": None}},
    "records in one buffer": {"partition": {"records": b"records"}},
    "nothing read": {"partition": {"records": []}},
    "no append times": {"partition": {"append_times": None}},
    "two append times": {
        "partition": {"append_times": [fetch.SegmentAppendTimes(entries=b"e" * 24)]}
    },
    "two segments": {
        "partition": {"append_times": [fetch.SegmentAppendTimes(entries=b"e" * 12)] * 2}
    },
    "no state": {"partition": {"replication_state": None}},
    "no epoch": {"state": {"epochs": []}},
    "two epochs": {"state": {"epochs": [fetch.EpochStart()] * 2}},
    "a correction": {"state": {"corrections": [fetch.AppendTimeCorrection()]}},
    "adopted batches": {"state": {"adopted": [fetch.AdoptedBatches()]}},
    "a log end": {"state": {"log_end_offset": 5}},
}


@pytest.mark.parametrize("name", _ODD)
def test_responses_of_other_shapes_are_left_to_the_general_codec(name):
    message = _response(**_ODD[name])
    body = _short.encode(message)
    assert body == b"".join(_encoded_in_general(message))
    assert _outcome(_short.decode, body) == _outcome(_response_in_general, body)


def test_each_changed_byte_of_a_response_is_read_as_by_the_general_codec():
    body = _short.encode(_response())
    left = 0
    for at in range(len(body)):
        for value in {body[at] ^ 1, body[at] ^ 0x80, 0, 1, 2, 0xFF} - {body[at]}:
            changed = body[:at] + bytes((value,)) + body[at + 1 :]
            left += fetch_single.read_answer(changed, 0) is None
            assert _outcome(_short.decode, changed) == _outcome(_response_in_general, changed)
    assert left > 100
    for end in range(len(body)):
        assert _outcome(_short.decode, body[:end]) == _outcome(_response_in_general, body[:end])


@pytest.mark.parametrize(
    "changed", [{"session_id": 1 << 31}, {"session_id": None}, {"topic": {"topic_id": 5}}]
)
def test_a_response_that_cannot_be_written_is_refused_as_by_the_general_codec(changed):
    with pytest.raises(EncodeError):
        _short.encode(_response(**changed))

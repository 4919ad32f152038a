"""The state of a connection, without a socket: what it sends, and what it makes of bytes."""

from __future__ import annotations

from struct import Struct

import pytest

from tidelog.client.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from tidelog.client.errors import (
    AuthenticationFailed,
    ConnectionBroken,
    HandshakeBroken,
    VersionMismatch,
)
from tidelog.client.frames import Frames, Request
from tidelog.protocol.api import api_versions, fetch, metadata, produce
from tidelog.protocol.message import api_of, codec, read_request_header, response_header

SIZE = Struct(">i")
SERVED = {PRODUCE: (3, 9), FETCH: (4, 12), METADATA: (1, 9), API_VERSIONS: (0, 3)}


def requests_in(data):
    """(key, version, correlation id, message) of each request in the bytes."""
    found, position = [], 0
    while position < len(data):
        (size,) = SIZE.unpack_from(data, position)
        frame = data[position + 4 : position + 4 + size]
        head = read_request_header(frame)
        message, end = codec(api_of(head.api_key).request, head.api_version).decode(
            frame, head.body_offset
        )
        assert end == size
        found.append((head.api_key, head.api_version, head.correlation_id, message))
        position += 4 + size
    return found


def answer_to(request, message):
    """An answer's bytes, with its length."""
    key, version, correlation_id, _ = request
    body = response_header(key, version, correlation_id) + codec(
        api_of(key).response, version
    ).encode(message)
    return SIZE.pack(len(body)) + body


def feed(frames, data, step=None):
    """Fill bytes in, `step` at most at a time; returns the answers."""
    answers, data = [], memoryview(data)
    while data:
        room = frames.room()
        count = min(len(room), len(data), step or len(data))
        room[:count] = data[:count]
        data = data[count:]
        frames.filled(count)
        while (answer := frames.next_answer()) is not None:
            answers.append(answer)
    return answers


def versions(served=SERVED, error_code=0):
    return api_versions.ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in served.items()
        ],
    )


def ready(served=SERVED, authenticator=None, clock=lambda: 0.0):
    frames = Frames("there:1", "me", authenticator, clock)
    (asked,) = requests_in(frames.take_output())
    assert feed(frames, answer_to(asked, versions(served))) == []
    return frames


def ask_metadata(frames):
    frames.send(metadata.MetadataRequest(topics=[]), METADATA)
    return requests_in(frames.take_output())[-1]


def ask_fetch(frames):
    frames.send(fetch.FetchRequest(max_wait_ms=0, min_bytes=0), FETCH)
    return requests_in(frames.take_output())[-1]


def fetched(records):
    data = fetch.PartitionData(partition_index=0, high_watermark=1, records=records)
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[data])])


def test_it_asks_for_versions_first_and_says_who_it_is():
    frames = Frames("there:1", "me")
    ((key, version, _, message),) = requests_in(frames.take_output())
    assert (key, version, message.client_software_name) == (API_VERSIONS, 3, "tidelog")
    assert not frames.is_ready
    assert frames.take_output() == b""


def test_a_broker_that_knows_only_the_first_version_is_asked_in_it():
    frames = Frames("there:1", "me")
    (asked,) = requests_in(frames.take_output())
    refusal = answer_to((API_VERSIONS, 0, asked[2], None), versions({}, error_code=35))
    assert feed(frames, refusal) == []
    assert not frames.is_ready
    (again,) = requests_in(frames.take_output())
    assert again[:2] == (API_VERSIONS, 0)
    feed(frames, answer_to(again, versions()))
    assert frames.is_ready
    assert frames.served == SERVED


def test_a_broker_that_refuses_the_versions_is_no_use():
    frames = Frames("there:1", "me")
    (asked,) = requests_in(frames.take_output())
    with pytest.raises(ConnectionBroken, match="does not say what it serves: NOT_CONTROLLER: "):
        feed(frames, answer_to(asked, versions({}, error_code=41)))


@pytest.mark.parametrize("step", [None, 1, 3])
def test_answers_come_in_the_order_of_the_requests_however_they_are_cut(step):
    frames = ready()
    asked = [ask_metadata(frames) for _ in range(3)]
    assert frames.in_flight == 3
    assert [one[1] for one in asked] == [9, 9, 9]  # the highest both know
    data = b"".join(
        answer_to(one, metadata.MetadataResponse(controller_id=number))
        for number, one in enumerate(asked)
    )
    assert [one.controller_id for one in feed(frames, data, step)] == [0, 1, 2]
    assert frames.in_flight == 0


@pytest.mark.parametrize("step", [None, 999, 16_384])
def test_answers_larger_than_a_read_come_whole_between_small_ones(step):
    frames = ready()
    sizes = [1, 100_000, 2, 16_360, 16_390, 3]
    data = b"".join(answer_to(ask_fetch(frames), fetched(b"x" * size)) for size in sizes)
    answers = feed(frames, data, step)
    assert [len(one.responses[0].partitions[0].records) for one in answers] == sizes


def test_an_answer_can_be_kept_while_the_next_is_received():
    frames = ready()
    kept = feed(frames, answer_to(ask_fetch(frames), fetched(b"a" * 100)))
    kept += feed(frames, answer_to(ask_fetch(frames), fetched(b"b" * 100_000)))
    feed(frames, answer_to(ask_fetch(frames), fetched(b"c" * 100_000)))
    assert [bytes(one.responses[0].partitions[0].records[:1]) for one in kept] == [b"a", b"b"]


def test_an_answer_to_another_request_breaks_it():
    frames = ready()
    first, second = ask_metadata(frames), ask_metadata(frames)
    wrong = answer_to(second, metadata.MetadataResponse())
    with pytest.raises(ConnectionBroken, match=f"answer to request {second[2]}, not {first[2]}"):
        feed(frames, wrong)


def test_an_answer_nobody_asked_for_breaks_it():
    with pytest.raises(ConnectionBroken, match="answers a request that was not sent"):
        feed(ready(), SIZE.pack(4) + SIZE.pack(7))


@pytest.mark.parametrize("size", [-1, 0, 3, 1 << 30 | 1])
def test_a_length_that_cannot_be_breaks_it(size):
    with pytest.raises(ConnectionBroken, match=f"an answer of {size} bytes"):
        feed(ready(), SIZE.pack(size))


def test_bytes_after_an_answer_break_it():
    frames = ready()
    data = answer_to(ask_metadata(frames), metadata.MetadataResponse())
    longer = SIZE.pack(len(data) - 4 + 2) + data[4:] + b"xx"
    with pytest.raises(ConnectionBroken, match="2 bytes follow the answer"):
        feed(frames, longer)


def test_an_api_that_is_not_served_is_not_sent():
    frames = ready({API_VERSIONS: (0, 3), METADATA: (0, 0)})
    with pytest.raises(VersionMismatch, match="v1 to v12 is needed, but there:1 serves v0"):
        frames.send(metadata.MetadataRequest(topics=[]), METADATA)
    with pytest.raises(VersionMismatch, match="Produce v3 to v11 is needed, but there:1 does not"):
        frames.send(produce.ProduceRequest(), PRODUCE)
    assert frames.in_flight == 0
    assert frames.take_output() == b""


def test_a_request_without_an_answer_is_not_waited_for():
    frames = ready()
    frames.send(produce.ProduceRequest(acks=0), PRODUCE, has_answer=False)
    asked = ask_metadata(frames)
    assert frames.in_flight == 1
    (answer,) = feed(frames, answer_to(asked, metadata.MetadataResponse(controller_id=5)))
    assert answer.controller_id == 5


class TwoSteps:
    """Authenticates in two rounds, by the way of a request that there is."""

    lifetime_ms = 0

    def __init__(self):
        self.heard = []

    def prepare(self):
        pass

    def steps(self, address, served):
        assert (address, served) == ("there:1", SERVED)
        for _ in range(2):
            answer = yield Request(METADATA, 1, metadata.MetadataRequest(topics=[]))
            self.heard.append(answer.controller_id)
        return self.lifetime_ms


def test_an_authenticator_speaks_before_the_connection_is_ready():
    authenticator = TwoSteps()
    frames = ready(authenticator=authenticator)
    for number in (7, 8):
        assert not frames.is_ready
        (asked,) = requests_in(frames.take_output())
        assert feed(frames, answer_to(asked, metadata.MetadataResponse(controller_id=number))) == []
    assert frames.is_ready
    assert authenticator.heard == [7, 8]
    assert frames.take_output() == b""


def authenticate(frames):
    """Answer what the two steps ask."""
    for _ in range(2):
        (asked,) = requests_in(frames.take_output())
        feed(frames, answer_to(asked, metadata.MetadataResponse(controller_id=0)))


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_session_is_renewed_behind_the_requests_in_flight_and_before_the_next():
    authenticator, clock = TwoSteps(), Clock()
    authenticator.lifetime_ms = 10_000
    frames = ready(authenticator=authenticator, clock=clock)
    authenticate(frames)
    clock.now_s = 108.0
    assert not frames.must_renew  # a session of 10 s is renewed after 8.5 to 9.5 s
    clock.now_s = 109.5
    before = ask_metadata(frames)
    assert frames.must_renew
    frames.renew()
    assert not frames.must_renew
    frames.renew()  # changes nothing
    frames.send(metadata.MetadataRequest(topics=[]), METADATA)
    (first_step,) = requests_in(frames.take_output())
    assert frames.in_flight == 2
    (answer,) = feed(frames, answer_to(before, metadata.MetadataResponse(controller_id=5)))
    assert answer.controller_id == 5
    feed(frames, answer_to(first_step, metadata.MetadataResponse(controller_id=0)))
    (second_step,) = requests_in(frames.take_output())
    feed(frames, answer_to(second_step, metadata.MetadataResponse(controller_id=0)))
    (held,) = requests_in(frames.take_output())
    (answer,) = feed(frames, answer_to(held, metadata.MetadataResponse(controller_id=6)))
    assert (answer.controller_id, frames.in_flight) == (6, 0)
    clock.now_s = 109.5 + 8.0
    assert not frames.must_renew
    clock.now_s = 109.5 + 9.6
    assert frames.must_renew


def test_a_session_without_an_end_is_not_renewed():
    clock = Clock()
    frames = ready(authenticator=TwoSteps(), clock=clock)
    authenticate(frames)
    clock.now_s = 1e12
    assert not frames.must_renew


@pytest.mark.parametrize("record", [b"\x15\x03\x03\x00\x02\x02\x50", b"\x16\x03\x03\x00\x7a"])
def test_an_answer_in_tls_names_the_setting(record):
    frames = Frames("there:1", "me")
    frames.take_output()
    with pytest.raises(AuthenticationFailed, match=r"there:1 speaks TLS: set security\.protocol"):
        feed(frames, record)


def test_a_connection_that_closes_before_an_answer_may_be_of_another_protocol():
    frames = Frames("there:1", "me")
    assert isinstance(frames.closed(), HandshakeBroken)
    assert "before it answered" in str(frames.closed())
    frames = ready()
    assert "at the first request: the listener may demand SASL" in str(frames.closed())
    asked = ask_metadata(frames)
    feed(frames, answer_to(asked, metadata.MetadataResponse()))
    assert type(frames.closed()) is ConnectionBroken

"""What no honest client sends: each gets Kafka's error or a closed connection, a line, a count.

Beside every one of them stands a client that connected before and must notice nothing: it produces
and reads its record back on the same connection afterwards.
"""

from __future__ import annotations

import gzip
import socket
import ssl
import struct

import pytest
import zstandard

from tests.broker import asking
from tests.broker.asking import (
    batch_of,
    create,
    fetch,
    new_name,
    new_topic,
    produce,
    read_values,
    values,
)
from tests.broker.conftest import healthy
from tests.broker.raw import frame, header, name_of, request
from tests.broker.subject import eventually
from tests.oracle import codecs, recordset, wire

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
UNSUPPORTED_VERSION = 35
INVALID_RECORD = 87
MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One of this file's own: its metrics are read hundreds of times, and short with few topics."""
    with healthy(tmp_path_factory.mktemp("broker")) as subject:
        assert subject.page("/metrics")  # its libraries are loaded before memory is measured
        yield subject


@pytest.fixture(autouse=True)
def neighbour(broker):
    """Connected before, works after."""
    with broker.connect() as connection:
        topic = new_topic(connection)
        assert produce(connection, topic, batch_of("before"))["base_offset"] == 0
        mine = connection._socket
        yield
        assert produce(connection, topic, batch_of("after"))["base_offset"] == 1
        assert read_values(connection, topic) == [b"before", b"after"]
        assert connection._socket is mine, "the neighbour had to reconnect"


def refused(broker, data: bytes, *, level: str = "warning") -> str:
    """Send bytes; demand a closed connection, one count, one log line naming the peer. The line."""
    (line,) = refused_each(broker, [data], level=level)
    return line


def refused_each(broker, frames: list[bytes], *, level: str = "warning") -> list[str]:
    """As `refused`, each on a connection of its own; their lines, in order.

    The metrics and the log are read once for all of them, which is most of the work.
    """
    counted = broker.bad_requests
    earlier = len(broker.log())
    peers = []
    for data in frames:
        with broker.connect() as connection:
            connection.send(b"")  # connects
            peers.append(name_of(connection))
            connection.send(data)
            assert connection.receive() is None, "answered instead of closed"
    eventually(
        lambda: broker.bad_requests == counted + len(frames), what="the counter of bad requests"
    )
    new = [line for line in broker.log()[earlier:].splitlines() if "connection closed" in line]
    found = [line for line in new if f"level={level}" in line]
    assert len(found) == len(frames), new
    for peer, line in zip(peers, found, strict=True):
        assert f"peer={peer}" in line, new
    return found


def reset(connection):
    """Has the connection end with a reset when it is closed."""
    connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class TestFrames:
    def test_a_length_that_no_frame_has_closes(self, broker):
        """Before the frame has come, of which nothing is allocated."""
        sizes = (100 * MIB + 1, 2**31 - 1, -1, -(2**31), 0, 1, 7)
        before = broker.forget_peak()
        lines = refused_each(broker, [struct.pack(">i", size) + b"x" * 100 for size in sizes])
        for size, line in zip(sizes, lines, strict=True):
            assert f"frame of {size} bytes" in line
        refused(broker, struct.pack(">i", sizes[0]))
        assert broker.rss_mb(peak=True) - before < 20

    def test_the_limit_is_the_setting(self, start):
        broker = start({"socket.request.max.bytes": 10_000})
        with broker.connect() as connection:
            create(connection, "t")
            assert produce(connection, "t", batch_of("x" * 9_000))["error_code"] == 0
            assert produce(connection, "t", batch_of("x" * 10_000)) is None
        assert broker.bad_requests == 1

    def test_a_length_that_claims_more_waits_and_allocates_nothing(self, broker):
        before = broker.forget_peak()
        gone = broker.metric("tidelog_disconnects_mid_request_total")
        with broker.connect() as connection:
            connection.send(struct.pack(">i", 100 * MIB) + header(0, 9) + b"\0" * 20)
            with broker.connect() as other:
                assert other.ask("ApiVersions", 0)["error_code"] == 0
            connection._socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection._socket.recv(1)
            peer = name_of(connection)
        eventually(lambda: broker.metric("tidelog_disconnects_mid_request_total") == gone + 1)
        assert eventually(lambda: broker.lines("client disconnected mid-request", f"peer={peer}"))
        assert broker.rss_mb(peak=True) - before < 20

    def test_a_length_that_claims_less_closes(self, broker):
        """The request is cut, and what is left over is taken for the next frame."""
        body = request("Metadata", 4, topics=[{"name": "x" * 50}])
        line = refused(broker, struct.pack(">i", len(body) - 20) + body)
        assert "unparsable request" in line

    @pytest.mark.parametrize("is_reset", [False, True])
    def test_half_a_request_is_forgotten(self, broker, is_reset):
        gone = broker.metric("tidelog_disconnects_mid_request_total")
        with broker.connect() as connection:
            connection.send(frame(request("ApiVersions", 0))[:-3])
            if is_reset:
                reset(connection)
            else:
                connection._socket.shutdown(socket.SHUT_WR)
                assert connection.receive() is None
        eventually(lambda: broker.metric("tidelog_disconnects_mid_request_total") == gone + 1)

    def test_a_peer_that_leaves_in_mid_answer_is_forgotten(self, broker, connection):
        topic = new_topic(connection)
        for _ in range(8):
            assert produce(connection, topic, batch_of("x" * 900_000))["error_code"] == 0
        open_now = broker.metric("kafka_server_socket_server_metrics_connection_count")
        with broker.connect() as leaver:
            body = request("Fetch", 11, **asking.fetch_fields(topic, partition_max_bytes=50 * MIB))
            leaver.send(frame(body))
            assert len(leaver._socket.recv(1_000)) > 0
            reset(leaver)
        eventually(
            lambda: broker.metric("kafka_server_socket_server_metrics_connection_count") == open_now
        )


class TestOtherProtocols:
    def test_tls_gets_a_closed_connection(self, broker):
        counted = broker.bad_requests
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
        with plain, pytest.raises((ssl.SSLError, OSError)):
            context.wrap_socket(plain)
        eventually(lambda: broker.bad_requests == counted + 1)


def cut_short(api):
    """Requests of an API that are cut at every tenth of their bodies, in the oldest and newest version."""
    for version in {0, asking.VERSIONS[api]} - (
        {0} if api in ("ApiVersions", "ListGroups") else set()
    ):
        whole = request(api, version, **asking.BODIES[api])
        start = len(header(0, 0)) + (1 if whole[11 + 2 :][:1] == b"\0" else 0)
        cuts = {start + (len(whole) - start) * i // 10 for i in range(10)}
        yield from (whole[:cut] for cut in sorted(cuts) if cut < len(whole))


def flexible(body):
    """A request for metadata in the first version with compact fields."""
    return header(3, 9, flexible=True) + body


class TestRequests:
    def test_an_api_that_is_not_served_closes(self, broker):
        keys = (-1, 4, 7, 52, 58, 71, 200, 32767, -32768)
        lines = refused_each(broker, [frame(header(key, 0) + b"\0" * 40) for key in keys])
        assert all(f"unknown API key {key}" in line for key, line in zip(keys, lines, strict=True))

    def test_a_version_that_is_not_served_closes(self, broker):
        asked = [
            (wire.SCHEMAS[api][0].API_KEY, version)
            for api in sorted(set(asking.VERSIONS) - {"ApiVersions"})
            for version in (asking.VERSIONS[api] + 1, 99, -1, 32767, -32768)
        ]
        lines = refused_each(broker, [frame(header(*each) + b"\0" * 40) for each in asked])
        for (key, version), line in zip(asked, lines, strict=True):
            assert f"API key {key} has no version {version}" in line

    @pytest.mark.parametrize("version", [5, 99, 32767, -1])
    def test_api_versions_alone_answers_an_unknown_version(self, broker, version):
        """KIP-511: body of version 0, error 35, the range of this one API; nothing is counted."""
        counted = broker.bad_requests
        with broker.connect() as connection:
            connection.send(frame(header(18, version, flexible=True) + b"whatever"))
            answer = connection.receive()
            assert answer == struct.pack(">ihihhh", 7, UNSUPPORTED_VERSION, 1, 18, 0, 4)
            assert connection.ask("ApiVersions", 4, **asking.SOFTWARE)["error_code"] == 0
        assert broker.bad_requests == counted

    def test_a_truncated_body_closes(self, broker):
        frames = [frame(each) for api in sorted(asking.VERSIONS) for each in cut_short(api)]
        assert all("unparsable request" in line for line in refused_each(broker, frames))

    def test_what_cannot_be_decoded_closes(self, broker):
        bad = {
            "a header cut short": b"\0\x12\0\0\0\0\0\1",
            "and by less": b"\0\x12\0\0\0\0\0\1\0",
            "and in the client id": header(18, 0)[:-1],
            "a client id longer than the frame": struct.pack(">hhih", 18, 0, 1, 30_000) + b"x",
            "a compact array of a huge count": flexible(b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
            "a varint without end": flexible(b"\xff" * 20),
            "a string that is not UTF-8": header(3, 4) + struct.pack(">ih", 1, 2) + b"\xff\xfe\1",
        }
        for count in (2, 1_000, 2**31 - 1, -2, -(2**31)):
            bad[f"an array of {count}"] = header(3, 4) + struct.pack(">ih", count, 1) + b"x"
        before = broker.forget_peak()
        lines = refused_each(broker, [frame(each) for each in bad.values()])
        for what, line in zip(bad, lines, strict=True):
            assert "unparsable request" in line, what
        assert broker.rss_mb(peak=True) - before < 20

    def test_an_error_under_acks_0_closes(self, broker):
        """There is no answer that could carry the error."""
        body = request(
            "Produce", 7, **asking.produce_fields(new_name("none"), batch_of("x"), acks=0)
        )
        line = refused(broker, frame(body))
        assert "acks=0" in line
        assert "UNKNOWN_TOPIC_OR_PARTITION" in line

    def test_requests_before_the_bad_one_are_answered(self, broker):
        with broker.connect() as connection:
            connection.send(frame(header(18, 0)) * 3 + frame(header(200, 0)) + frame(header(18, 0)))
            for _ in range(3):
                assert connection.receive()[:6] == struct.pack(">ih", 7, 0)
            assert connection.receive() is None


class TestRecords:
    """Record sets that lie, each answered with its own error; the connection stays."""

    def check(self, broker, connection, topic, records, codes, version=9):
        """Nothing of any of them is stored, and each is counted."""
        failed = broker.metric("kafka_server_brokertopicmetrics_failedproducerequests_total")
        mine = connection._socket
        for each in records:
            got = produce(connection, topic, each, version=version)
            assert got is not None, "closed instead of answered"
            assert connection._socket is mine
            assert (got["base_offset"], got["error_code"] in codes) == (-1, True), got
        counted = broker.metric("kafka_server_brokertopicmetrics_failedproducerequests_total")
        assert counted == failed + len(records)
        assert fetch(connection, topic)["high_watermark"] == 0, "something was stored"

    @pytest.mark.parametrize("version", [3, 9, 13])
    def test_a_bad_crc(self, broker, connection, topic, version):
        named = asking.named(connection, topic, version)
        failed = produce(connection, named, batch_of("x", bad_crc=True), version=version)
        assert failed["error_code"] == CORRUPT_MESSAGE

    @pytest.mark.parametrize("magic", [0, 1])
    def test_a_bad_crc_of_an_old_message(self, broker, connection, topic, magic):
        records = [recordset.plain_set(magic, values("x", "y"), bad_crc=True)]
        if magic == 1:
            records.append(recordset.wrapper(1, values("x"), codecs.GZIP, inner_bad_crc=True))
        self.check(broker, connection, topic, records, {CORRUPT_MESSAGE}, magic + 1)

    def test_counts_that_do_not_match(self, broker, connection, topic):
        records = [batch_of("x", "y", count=count) for count in (0, 1, 3, 2**31 - 1, -1)]
        self.check(broker, connection, topic, records, {INVALID_RECORD})

    def test_compressed_nonsense(self, broker, connection, topic):
        records = [
            recordset.batch(values("x"), codec, payload=payload)
            for codec in (codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
            for payload in (b"nonsense", b"\1" * 1_000, b"\x1f\x8b" + b"\xff" * 30)
        ]
        self.check(broker, connection, topic, records, {CORRUPT_MESSAGE})

    def test_other_lies(self, broker, connection, topic):
        unknown_codecs = [recordset.batch(values("x"), attributes=codec) for codec in (5, 6, 7)]
        self.check(broker, connection, topic, unknown_codecs, {CORRUPT_MESSAGE, INVALID_RECORD, 76})
        payloads = (b"\xfe\x01\0\0\0", b"\xff" * 12, b"\x01" * 8, b"", b"\x0c\0\0\0\1\xfe\x7fxx")
        records = [recordset.batch(values("x"), payload=payload) for payload in payloads]
        records += [batch_of("x", said_magic=magic) for magic in (3, -1, 127)]
        for count in (1, 3, 2**31 - 1):  # header fields that agree, with two records behind them
            records.append(batch_of("x", "y", count=count, last_offset_delta=count - 1))
        self.check(broker, connection, topic, records, {CORRUPT_MESSAGE, INVALID_RECORD})


def packed(size: int) -> bytes:
    """Members of gzip behind each other, as it allows; cheap to make."""
    return gzip.compress(bytes(16 * MIB), 9, mtime=0) * (size // (16 * MIB))


def gzip_bomb(size: int) -> bytes:
    return recordset.batch(values("x"), codecs.GZIP, payload=packed(size))


def zstd_bomb(size: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    zeros = bytes(16 * MIB)
    payload = b"".join(packer.compress(zeros) for _ in range(size // (16 * MIB))) + packer.flush()
    return recordset.batch(values("x"), codecs.ZSTD, payload=payload)


def old_bomb(size: int) -> bytes:
    return recordset.message(1, recordset.Rec(1_000, packed(size)), attributes=codecs.GZIP)


class TestBombs:
    """Small packed, huge unpacked: MESSAGE_TOO_LARGE, and memory stays bounded.

    The bound is 100 times max.message.bytes but at least 64 MiB a batch, with two threads unpacking.
    What each codec does with bombs is stated in tests/protocol/records.
    """

    @pytest.mark.parametrize(
        ("version", "bomb"),
        [(9, gzip_bomb), (9, zstd_bomb), (2, old_bomb)],
    )
    def test_what_is_a_bomb(self, broker, connection, topic, version, bomb):
        data = bomb(192 * MIB)
        assert len(data) < 1_000_000
        before = broker.forget_peak()
        for _ in range(3):
            got = produce(connection, topic, data, version=version)
            assert got["error_code"] == MESSAGE_TOO_LARGE
        assert fetch(connection, topic)["high_watermark"] == 0
        assert broker.rss_mb(peak=True) - before < 260
        # what malloc keeps of one bomb may stay, but they do not pile up
        eventually(lambda: broker.rss_mb() - before < 140, what="the memory is given back")

    def test_many_bombs_at_once_are_bounded_and_others_are_served(self, broker, connection):
        topic = new_topic(connection, partitions=8)
        payload = gzip_bomb(192 * MIB)
        before = broker.forget_peak()
        throwers = [broker.connect() for _ in range(8)]
        for partition, thrower in enumerate(throwers):
            fields = asking.produce_fields(topic, payload, partition=partition)
            thrower.send(frame(request("Produce", 7, **fields)))
        assert connection.ask("ApiVersions", 0)["error_code"] == 0
        for thrower in throwers:
            answer = wire.decode_answer("Produce", 7, thrower.receive()[4:])
            got = answer["responses"][0]["partition_responses"][0]
            assert got["error_code"] == MESSAGE_TOO_LARGE
            thrower.close()
        assert broker.rss_mb(peak=True) - before < 450

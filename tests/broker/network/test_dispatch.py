"""Every API at every version: decoded from a foreign client's bytes, refused as a whole, encoded."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace

import pytest

from tests.broker import asking
from tests.broker.raw import request
from tests.oracle import wire
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network import routes
from tidelog.broker.network.answers import CloseConnection
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.network.memory.garbage import Collector
from tidelog.broker.network.routes import handler_of, wrap
from tidelog.broker.network.scheduler import Scheduler, at_once
from tidelog.protocol.errors import UnknownServerError
from tidelog.protocol.message import api_of, codec, read_request_header, served_apis

UNKNOWN_SERVER_ERROR = -1


def test_the_apis_served_are_what_the_tests_know():
    known = {wire.SCHEMAS[api][0].API_KEY: (0, top) for api, top in asking.VERSIONS.items()}
    assert {api.key: api.served for api in served_apis()} == known


def test_an_error_nobody_foresaw_is_an_answer_with_minus_1():
    for api in asking.VERSIONS:
        declared = api_of(wire.SCHEMAS[api][0].API_KEY)
        for version in asking.all_versions(api):
            frame = request(api, version, **asking.BODIES[api])
            header = read_request_header(frame)
            body, _ = codec(declared.request, version).decode(frame, header.body_offset)
            answer = handler_of(declared).refuse(body, UnknownServerError("a test"))
            if asyncio.iscoroutine(answer):
                answer = at_once(answer)
            encoded = codec(declared.response, version).encode(answer)
            flexible = wire.SCHEMAS[api][1].flexible_version_q(version) and api != "ApiVersions"
            told = wire.decode_answer(api, version, (b"\0" if flexible else b"") + bytes(encoded))
            assert UNKNOWN_SERVER_ERROR in asking.codes_in(told), version


@pytest.fixture
def node():
    return SimpleNamespace(
        metrics=Metrics(),
        clock=SimpleNamespace(monotonic_s=lambda: 0.0),
        scheduler=Scheduler(lambda: 0.0, Collector(lambda: 0.0)),
        metadata=SimpleNamespace(image=SimpleNamespace(quotas={})),
    )


CONNECTION = SimpleNamespace(client_id=None, software="", is_over_limit=False)


def test_versions_of_api_versions_that_nobody_knows_are_not_remembered(node):
    """A client that has not proved who it is may ask for 65,000 of them."""
    wrap(None)
    for version in range(100, 200):
        frame = struct.pack(">hhihb", 18, version, 7, -1, 0)
        assert b"".join(dispatch(node, CONNECTION, frame))[8:10] == b"\0\x23"
    assert len(routes.known) == 0


def test_an_answer_that_cannot_be_encoded_closes_and_is_counted(node, caplog):
    def broken(*_):
        raise ValueError("no place for it")

    codec = SimpleNamespace(encode_parts=broken, encode_in_steps=broken)
    wrap(lambda route: route._replace(handle=lambda *_: "a response", response=codec))
    try:
        with pytest.raises(CloseConnection):
            dispatch(node, CONNECTION, request("ApiVersions", 3, **asking.SOFTWARE))
    finally:
        wrap(None)
    assert node.metrics.unexpected_errors == 1
    assert "no place for it" in caplog.text


def test_what_follows_a_request_in_its_frame_is_left_alone(node):
    """As Kafka does; a client may pad."""
    assert dispatch(node, CONNECTION, request("ApiVersions", 3, **asking.SOFTWARE) + b"more")

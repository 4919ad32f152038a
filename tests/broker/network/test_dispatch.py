"""Every API at every version: decoded from a foreign client's bytes, refused as a whole, encoded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.broker import asking
from tests.broker.raw import request
from tests.oracle import wire
from tidelog.broker.garbage import Collector
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.context import CloseConnection
from tidelog.broker.network.dispatch import Route, _encode, dispatch, handler_of
from tidelog.broker.network.turns import Turns
from tidelog.protocol.errors import UnknownServerError
from tidelog.protocol.message import RequestHeader, api_of, codec, read_request_header, served_apis

UNKNOWN_SERVER_ERROR = -1
CASES = [
    (api, version) for api, highest in asking.VERSIONS.items() for version in range(highest + 1)
]


def codes(value):
    """Every error code of an answer."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name.endswith("error_code"):
                yield each
            else:
                yield from codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from codes(each)


def test_the_apis_served_are_what_the_tests_know():
    known = {wire.SCHEMAS[api][0].API_KEY: (0, top) for api, top in asking.VERSIONS.items()}
    assert {api.key: api.served for api in served_apis()} == known


@pytest.mark.parametrize(("api", "version"), CASES)
def test_an_error_nobody_foresaw_is_an_answer_with_minus_1(api, version):
    key = wire.SCHEMAS[api][0].API_KEY
    frame = request(api, version, **asking.BODIES[api])
    header = read_request_header(frame)
    declared = api_of(key)
    body, _ = codec(declared.request, version).decode(frame, header.body_offset)
    answer = handler_of(declared).refuse(body, UnknownServerError("a test"))
    encoded = codec(declared.response, version).encode(answer)
    flexible = wire.SCHEMAS[api][1].flexible_version_q(version) and api != "ApiVersions"
    told = wire.decode_answer(api, version, (b"\0" if flexible else b"") + bytes(encoded))
    assert UNKNOWN_SERVER_ERROR in set(codes(told))


def test_an_answer_that_cannot_be_encoded_closes_and_is_counted(caplog):
    node = SimpleNamespace(metrics=Metrics())

    def broken(_response):
        raise ValueError("no place for it")

    route = Route("metadata", None, SimpleNamespace(encode_parts=broken), None, None)
    with pytest.raises(CloseConnection):
        _encode(node, route, RequestHeader(3, 9, 1, "c", 0), None, 0.0)
    assert node.metrics.unexpected_errors == 1
    assert "no place for it" in caplog.text


def test_what_follows_a_request_in_its_frame_is_left_alone():
    """As Kafka does; a client may pad."""
    node = SimpleNamespace(
        metrics=Metrics(),
        clock=SimpleNamespace(monotonic_s=lambda: 0.0),
        turns=Turns(lambda: 0.0, Collector(lambda: 0.0)),
        metadata=SimpleNamespace(image=SimpleNamespace(quotas={})),
    )
    connection = SimpleNamespace(client_id=None, software="", is_guest=False)
    frame = request("ApiVersions", 3, **asking.SOFTWARE) + b"more"
    assert dispatch(node, connection, frame)

"""/v1 is as its OpenAPI describes it, what is not there has the nearest route, and / lists all.

schemathesis asks what the description allows, and what it excludes.
"""

from __future__ import annotations

import ast
import json
import re
import timeit
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.broker import asking, described
from tests.broker.conftest import of_module
from tests.broker.subject import json_at
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.broker.http import answers
from tidelog.broker.http.answers import not_found, time_fields
from tidelog.broker.http.routes.declared import ALWAYS, ROUTES
from tidelog.broker.http.routes.index import PATHS
from tidelog.protocol.errors import ErrorCode

ROOT = Path(__file__).parents[3]
NEW_YEAR_MS = 1_767_225_600_000
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
SEMANTIC = {"BAD_REQUEST", "INVALID_CONFIG"}
"""Names of errors of requests in which each parameter by itself is as its schema says."""

broker = of_module({"clock": "manual", "clock.start.ms": NEW_YEAR_MS})


def times():
    """Values of the format tidelog-time; -1 is not a time."""
    numbers = st.integers(-(2**63) + 2, 2**63 - 1).filter(lambda number: number != -1)
    spans = st.from_regex(r"\A[-+][1-9][0-9]?(ms|s|m|h|d)\Z")
    days = st.dates().map(lambda day: f"{day}T00:00Z")
    return st.one_of(numbers.map(str), spans, days, st.just("now"))


schemathesis.openapi.format("tidelog-time", times())


@pytest.fixture
def topic(connection):
    """A topic with records and a compacted one's settings, so that no part of an answer is missing."""
    name = asking.new_topic(connection, cleanup_policy="compact,delete", segment_ms="1")
    for number in range(3):
        records = recordset.batch([Rec(NEW_YEAR_MS + number, b"v", b"k")])
        assert asking.produce(connection, name, records)["error_code"] == 0
    return name


@pytest.fixture
def description(broker):
    status, found = json_at(broker.http, "/v1/openapi.json")
    assert status == 200
    assert found["openapi"] == "3.1.0"
    found["components"] = described.closed(found["components"])
    schema = schemathesis.openapi.from_dict(found)
    schema.validate()
    return schema


def try_cases(strategy, examples, judge):
    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(strategy)
    def try_case(case):
        judge(case)

    try_case()


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_request_is_answered_as_it_is_described(broker, description, topic, route):
    operation = description[route.path][route.method]
    known = {"topic": topic, "partition": 0, "offset": 2}
    parts = {name: value for name, value in known.items() if f"{{{name}}}" in route.path}
    seen = set()

    def judge(case):
        answer = case.call_and_validate(
            base_url=f"http://{broker.http}", excluded_checks=[positive_data_acceptance]
        )
        seen.add(answer.status_code)
        if case.meta.generation.mode.is_positive and answer.status_code == 400:
            assert answer.json()["error"] in SEMANTIC

    exact = operation.as_strategy(path_parameters=parts) if parts else operation.as_strategy()
    try_cases(exact, 30, judge)
    assert 200 in seen or route.method == "POST"
    if parts or route.parameters or route.fields:  # what could be wrong
        try_cases(operation.as_strategy(), 10, judge)
        try_cases(operation.as_strategy(GenerationMode.NEGATIVE), 30, judge)


def test_a_field_that_is_not_described_is_found():
    answer = {"error": "BUSY", "message": "a sentence"}
    described.check("/v1/clock", 503, answer)
    described.check("/no/such/path", 404, answer)
    with pytest.raises(ValidationError, match="is not one of"):
        described.check("/v1/clock", 503, {**answer, "error": "BAD_TIME"})
    with pytest.raises(ValidationError, match="Additional properties"):
        described.check("/v1/clock", 200, {**told_clock(), "surprise": 1})


def told_clock():
    times = {
        name: text
        for each in ("now", "deletion_time")
        for name, text in time_fields(each, 0).items()
    }
    lists = {name: [] for name in ("other_brokers", "steps", "steps_back", "topics_ahead")}
    numbers = dict.fromkeys(("ahead_ms", "behind_ms", "clock_start_pause_ms"), 0)
    state = {"broker": 1, "clock": "system", "state": "trusted", "leap": None}
    return {**state, **times, **lists, **numbers}


def raised_in(path):
    """The names of the errors that a module raises as HttpError, with the statuses where they are plain."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "HttpError":
            status, name = call.args[:2]
            if isinstance(name, ast.Constant):
                yield getattr(status, "value", None), name.value


def test_every_error_is_declared():
    """Names alone are in the source where a status has a name, or comes from another broker."""
    errors = {*ALWAYS, *(error for route in ROUTES for error in route.errors)}
    places = (ROOT / "broker" / "http").rglob("*.py")
    raised = {each for path in places for each in raised_in(path)}
    assert (400, "NO_TIME") in raised
    for status, name in raised:
        assert status in (None, *(error.status for error in errors if error.name == name)), name
    codes = {error for error in errors if error.name in ErrorCode.__members__}
    assert {"CORRUPT_MESSAGE", "OFFSET_OUT_OF_RANGE"} < {error.name for error in codes}
    assert {answers._STATUS.get(ErrorCode[error.name], 400) - error.status for error in codes} == {
        0
    }


# --- the index, and what is not there ------------------------------------------------------------


def fetched(broker, path, accept="*/*", method="GET"):
    """Status, headers and text."""
    url = f"http://{broker.http}{path}"
    request = urllib.request.Request(url, headers={"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


@pytest.mark.parametrize("path", ["/", "/v1"])
def test_the_index_has_every_route(broker, path):
    status, headers, text = fetched(broker, path)
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    index = json.loads(text)
    assert (ROOT / index["docs"]).exists()
    listed = {(each["method"], each["path"]) for each in index["routes"]}
    assert listed > {(route.method, route.path) for route in ROUTES}
    for method, each in listed:
        if "{" not in each and method == "GET":
            assert fetched(broker, each)[0] == 200, each
    status, headers, page = fetched(broker, path, BROWSER)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Vary"] == "Accept"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    for method, each in listed:
        assert f"{method} {each}" in page


def test_only_the_methods_of_a_route_are_allowed(broker):
    for path in ("/", "/metrics", "/healthz", *(route.path for route in ROUTES)):
        methods = {route.method for route in ROUTES if route.path == path} or {"GET"}
        methods |= {"HEAD"} if "GET" in methods else set()
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            if method not in methods:
                status, headers, text = fetched(broker, re.sub("{.*?}", "1", path), method=method)
                assert (status, json.loads(text)["error"]) == (405, "METHOD_NOT_ALLOWED")
                assert set(headers["Allow"].split(", ")) == methods


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/topics/orders/offset", "did you mean /v1/topics/{topic}/offsets?"),
        ("/v1/topic/orders/explain", "did you mean /v1/topics/{topic}/explain?"),
        ("/v1/topics/orders/partition/0/records/7/times", "/records/{offset}/times?"),
        ("/v1/", "did you mean /v1?"),
        ("/v1/openapi", "did you mean /v1/openapi.json?"),
        ("/metric", "did you mean /metrics?"),
        ("/favicon.ico", "there are /v1, /, /metrics,"),
    ],
)
def test_what_is_not_there_has_the_nearest_route(broker, path, meant):
    status, _, text = fetched(broker, path)
    answer = json.loads(text)
    assert (status, answer["error"]) == (404, "NOT_FOUND")
    assert f"nothing is at {path}: " in answer["message"]
    assert meant in answer["message"]


def test_no_path_holds_up_the_broker_while_the_nearest_route_is_looked_for():
    def cost_s(path):
        return min(timeit.repeat(lambda: not_found(path, PATHS), number=5, repeat=5))

    assert cost_s(f"/v1/topics/{'a' * 60}/x") < 6 * cost_s("/v1/topic/orders/offsets")

"""The control listener: every route, what it answers, and what it says to mistakes."""

import asyncio
import http.client
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.broker import asking
from tests.broker.conftest import of_module
from tests.broker.subject import eventually
from tidelog.broker.clock import ManualClock
from tidelog.broker.logs.maintenance import retention_rounds
from tidelog.broker.pools import Pools
from tidelog.broker.testing.control import ROUTES, install_faults, sweep
from tidelog.broker.testing.controlled import Control
from tidelog.broker.testing.faults import Faults
from tidelog.config import BrokerConfig
from tidelog.process import BrokerFailed
from tidelog.storage import files
from tidelog.storage.log.retention.deletion import Deletion

ROOT = Path(__file__).parents[3]
NEW_YEAR_MS = 1_767_225_600_000
DAY_MS = 86_400_000


manual = of_module({"clock": "manual"})


@pytest.fixture
def broker(manual):
    """The broker of this file, at new year."""
    manual.clock.freeze(NEW_YEAR_MS)
    return manual


def ask(broker, method, path, body=None, headers=None):
    """A request by hand; status and JSON of the answer."""
    host, _, port = broker.control.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    text = body if isinstance(body, str | None) else json.dumps(body)
    connection.request(method, path, text, headers or {})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


def shown(now_ms, now, rate=0):
    return (
        200,
        {"clock": "manual", "now_ms": now_ms, "now": now, "rate": rate, "frozen": not rate},
    )


def test_the_clock(broker):
    frozen = shown(NEW_YEAR_MS, "2026-01-01T00:00:00.000Z")
    assert ask(broker, "GET", "/v1/clock") == frozen
    assert ask(broker, "POST", "/v1/clock/step", {"by": "7d"}) == shown(
        NEW_YEAR_MS + 7 * DAY_MS, "2026-01-08T00:00:00.000Z"
    )
    assert ask(broker, "POST", "/v1/clock/step", {"by": -7 * DAY_MS}) == frozen
    assert ask(broker, "POST", "/v1/clock/set", {"to": "1969-07-20T20:17Z"}) == shown(
        -14_182_980_000, "1969-07-20T20:17:00.000Z"
    )
    assert ask(broker, "POST", "/v1/clock/set", {"to": 2**63 - 1}) == shown(
        2**63 - 1, "+292278994-08-17T07:12:55.807Z"
    )
    assert ask(broker, "POST", "/v1/clock/set", {"to": -(2**63) + 2}) == shown(
        -(2**63) + 2, "-292275055-05-16T16:47:04.194Z"
    )
    status, told = ask(broker, "POST", "/v1/clock/run", {"rate": 10, "from": NEW_YEAR_MS})
    assert (status, told["rate"], told["frozen"]) == (200, 10, False)
    assert told["now_ms"] >= NEW_YEAR_MS
    eventually(lambda: ask(broker, "GET", "/v1/clock")[1]["now_ms"] > told["now_ms"])
    status, told = ask(broker, "POST", "/v1/clock/freeze")
    assert (told["rate"], ask(broker, "GET", "/v1/clock")[1]) == (0, told)
    assert ask(broker, "POST", "/v1/clock/freeze", {"at": "2026-01-01T00:00Z"}) == frozen


MISTAKES = (
    ("clock/set", None, "MISSING", "to is missing"),
    ("clock/set", {"to": "noon"}, "BAD_TIME", "to: 'noon' is not a time: write 2026-01-01T00:00Z"),
    ("clock/set", {"to": "2026-01-01"}, "BAD_TIME", "does not say its zone"),
    ("clock/set", {"to": -(2**63) + 1}, "BAD_REQUEST", "a clock shows times from -922337203685"),
    ("clock/set", {"to": 2**63}, "BAD_TIME", "outside the range of times"),
    ("clock/set", {"at": 1}, "UNKNOWN_FIELD", "'at' is no field of this request: it may have to"),
    ("clock/step", {"by": "a day"}, "BAD_TIME", "by: 'a day' is not a span of time: write 7d"),
    ("clock/step", {"by": 2**63}, "BAD_REQUEST", "a clock shows times from"),
    ("clock/freeze", {"at": "later"}, "BAD_TIME", "at: 'later' is not a time"),
    ("clock/run", {"rate": 0}, "BAD_REQUEST", "rate 0: expected a number above 0, at most 1e9"),
    ("clock/run", {"rate": "fast"}, "BAD_RATE", "rate='fast': expected a number above 0"),
    ("clock/run", {"rate": 10**400}, "BAD_REQUEST", "expected a number above 0, at most 1e9"),
    ("clock/run", {"rate": True}, "BAD_RATE", "rate=True: expected a number above 0"),
    ("clock/run", "{", "BAD_JSON", "the body is no JSON: Expecting property name"),
    ("clock/run", "[]", "BAD_JSON", "the body is no JSON object"),
    ("clock/run", "[" * 60_000, "BAD_JSON", "the body is no JSON: maximum recursion depth"),
    ("sweep", {"topic": ["a"]}, "BAD_REQUEST", "topic=['a']: expected a name"),
    ("sweep", {"topics": "a"}, "UNKNOWN_FIELD", "'topics' is no field of this request"),
)


def test_a_mistake_is_told(broker):
    before = ask(broker, "GET", "/v1/clock")
    for path, body, name, sentence in MISTAKES:
        status, told = ask(broker, "POST", f"/v1/{path}", body)
        assert (status, told["error"]) == (400, name)
        assert sentence in told["message"]
    assert ask(broker, "GET", "/v1/clock") == before


def test_what_is_not_there(broker):
    status, told = ask(broker, "POST", "/v1/sweep", {"topic": "nobody's"})
    assert (status, told) == (
        404,
        {"error": "UNKNOWN_TOPIC_OR_PARTITION", "message": "there is no topic nobody's"},
    )
    for path in ("/v1/faults/7", "/v1/faults/x", "/v1/faults/" + "9" * 40):
        for method in ("GET", "DELETE"):
            status, told = ask(broker, method, path)
            assert (status, told["error"]) == (404, "UNKNOWN_FAULT")
    status, told = ask(broker, "GET", "/v1/clocks")
    assert (status, told["error"]) == (404, "NOT_FOUND")
    assert told["message"].endswith("did you mean /v1/clock?")
    _, told = ask(broker, "GET", "/nothing")
    assert all(route.path in told["message"] for route in ROUTES)
    status, told = ask(broker, "PUT", "/v1/clock/set")
    assert (status, told["error"]) == (405, "METHOD_NOT_ALLOWED")
    assert told["message"] == "/v1/clock/set takes POST"
    status, told = ask(broker, "POST", "/v1/faults", "x" * 100_000)
    assert status == 413


def test_the_machines_clock_is_shown_and_not_moved(start):
    broker = start({"control.listener": "127.0.0.1:0"})
    assert not broker.lines("reachable from other machines")
    status, told = ask(broker, "GET", "/v1/clock")
    assert (status, told["clock"], told["rate"]) == (200, "system", 1)
    for path, body in (("set", {"to": 1}), ("step", {"by": 1}), ("freeze", None), ("run", None)):
        assert ask(broker, "POST", f"/v1/clock/{path}", body) == (
            400,
            {
                "error": "CLOCK_NOT_MANUAL",
                "message": "the clock is the machine's own: start with --clock manual",
            },
        )
    with pytest.raises(BrokerFailed, match="uses the machine's clock"):
        _ = broker.clock
    assert broker.sweep() == []


def test_without_a_listener_there_is_none_of_it(start):
    broker = start()
    assert broker.control == ""
    for use in (lambda: broker.faults, broker.sweep):
        with pytest.raises(BrokerFailed, match="has no control listener"):
            use()


def test_nor_is_anything_of_it_imported():
    code = (
        "import sys, tidelog.broker.server\n"
        "print([n for n in sys.modules if 'fault' in n or 'testing.' in n])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_disk_is_as_it_was_afterwards(tmp_path):
    with install_faults([tmp_path]) as faults:
        faults.add({"storage": "unlink", "error": "EIO"})
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="injected"):
            files.unlink(tmp_path / "file")
    files.unlink(tmp_path / "file")


FROM_A_PAGE = {
    "another page": {"Origin": "https://example.com"},
    "a page in a sandbox, or a file": {"Origin": "null"},
    "a page that says it is this one": {"Origin": "http://{host}"},
    "a page whose name leads here": {
        "Host": "evil.example:9099",
        "Origin": "http://evil.example:9099",
    },
    "one that only reads": {"Host": "evil.example:9099"},
    "one that begins as an address does": {"Host": "127.0.0.1.evil.example"},
    "one that ends as localhost does": {"Host": "notlocalhost"},
    "no name at all": {"Host": "[::1"},
    "a form": {"Sec-Fetch-Site": "cross-site"},
    "a link": {"Sec-Fetch-Site": "same-site"},
}


@pytest.mark.parametrize("page", FROM_A_PAGE)
def test_no_page_in_a_browser_moves_the_clock_or_injects_a_fault(broker, page):
    headers = {name: value.format(host=broker.control) for name, value in FROM_A_PAGE[page].items()}
    for method, path, body in (
        ("POST", "/v1/clock/step", {"by": "1h"}),
        ("POST", "/v1/faults", {"api": "Produce", "disconnect": True}),
        ("DELETE", "/v1/faults", None),
        ("GET", "/v1/faults", None),
        ("GET", "/v1/nothing", None),
    ):
        status, told = ask(broker, method, path, body, headers)
        assert (status, told["error"]) == (403, "FORBIDDEN")
    assert ask(broker, "GET", "/v1/clock") == shown(NEW_YEAR_MS, "2026-01-01T00:00:00.000Z")
    assert broker.faults.list() == []


def test_programs_on_this_machine_are_answered(broker):
    names = ("localhost", "LOCALHOST:9099", "localhost.:1", "a.localhost")
    for host in (*names, "127.0.0.1:1", "[::1]:9", "10.0.0.7"):
        headers = {"Host": host, "Sec-Fetch-Site": "none"}
        assert ask(broker, "GET", "/v1/clock", None, headers)[0] == 200


def test_where_others_reach_it_they_may_call_it_by_any_name_but_no_page_may(start):
    broker = start({"control.listener": "0.0.0.0:0"})
    warning = "control.listener reachable from other machines"
    eventually(lambda: broker.lines("level=warning", warning))
    broker.control = "127.0.0.1:" + broker.control.rpartition(":")[2]
    named = {"Host": "tidelog:9099"}
    assert ask(broker, "GET", "/v1/clock", None, named)[0] == 200
    assert ask(broker, "POST", "/v1/sweep", {}, named)[0] == 200
    assert (
        ask(broker, "POST", "/v1/sweep", {}, {**named, "Origin": "http://tidelog:9099"})[0] == 403
    )


def test_a_sweep_says_what_went_and_why(broker, connection):
    small = {"segment.bytes": "300", "file.delete.delay.ms": "1"}
    topic, other, sized = (asking.new_name() for _ in range(3))
    asking.create(connection, topic, **small, **{"retention.ms": "1000"})
    asking.create(connection, other, **small, **{"retention.ms": "1000"})
    asking.create(connection, sized, **small, **{"retention.ms": "-1", "retention.bytes": "200"})
    for name in (topic, other, sized):
        for timestamp in (NEW_YEAR_MS - 500, NEW_YEAR_MS):
            records = asking.recordset.batch(asking.values("x" * 200, timestamp=timestamp))
            asking.produce(connection, name, records)
    assert ask(broker, "POST", "/v1/sweep", {"topic": topic}) == (
        200,
        {"now_ms": NEW_YEAR_MS, "now": "2026-01-01T00:00:00.000Z", "deleted": [], "failed": []},
    )
    broker.clock.step(501)
    (gone,) = broker.sweep(topic)
    size = gone.pop("size")
    assert 200 < size < 300
    assert {name: gone[name] for name in EXPECTED} == {**EXPECTED, "topic": topic}
    assert asking.list_offset(connection, topic, -2)["offset"] == 1
    by_policy = {(each["topic"], each["policy"]): each for each in broker.sweep()}
    assert set(by_policy) == {(other, "retention.ms"), (sized, "retention.bytes")}
    assert by_policy[sized, "retention.bytes"]["limit"] == 200
    assert broker.sweep() == []


async def test_a_sweep_says_how_much_it_does_not_tell(monkeypatch, tmp_path):
    """More was deleted in between than is kept for whoever asks."""
    node = SimpleNamespace(clock=ManualClock(NEW_YEAR_MS), config=BrokerConfig())
    node.pools = Pools([])
    node.clock_watch = SimpleNamespace(observe=lambda: asyncio.sleep(0))
    node.metadata = SimpleNamespace(image=SimpleNamespace(topics={"a": None}))
    deletion = Deletion(0, 1, 69, "retention.ms", None, None, 1, None, None)
    going = []
    monkeypatch.setattr(retention_rounds, "_MOST_UNREPORTED", 5)
    monkeypatch.setattr(
        retention_rounds,
        "delete_due",
        lambda *_, **more: retention_rounds.RetentionRound([going.pop() for _ in going[:]], []),
    )
    rounds = retention_rounds.RetentionRounds(node)

    for topic, count in (("a", 3), ("b", 4), ("a", 1)):
        going.extend(
            retention_rounds.SweptSegment(topic, 0, deletion, asked=False) for _ in range(count)
        )
        await rounds._do_due()  # what its loop does when the clock is there
    asked = Control(node, rounds, None, Faults([tmp_path]))
    one, every, later = [await sweep(asked, given) for given in ({"topic": "a"}, {}, {})]
    assert [each["topic"] for each in one["deleted"]] == ["a"]
    assert [each["topic"] for each in every["deleted"]] == ["b"] * 4
    assert (one["forgotten"], every["forgotten"]) == (3, 3)
    assert later["deleted"] == []
    assert "forgotten" not in later


EXPECTED = {
    "topic": "",
    "partition": 0,
    "asked": True,
    "base_offset": 0,
    "end_offset": 1,
    "policy": "retention.ms",
    "largest_time_ms": NEW_YEAR_MS - 500,
    "largest_time": "2025-12-31T23:59:59.500Z",
    "last_append_time_ms": NEW_YEAR_MS,
    "last_append_time": "2026-01-01T00:00:00.000Z",
    "limit": 1000,
}

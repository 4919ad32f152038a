"""No request holds the event loop: what is done between two polls of the sockets is bounded.

The broker's own clock tells how long a slice lasts. Here it is moved by work alone, by each line of Python
that the thread of the loop executes, so neither the machine nor its load matters. A line counts for so much
that a few thousand elements are a long request.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.broker.asking import create
from tests.broker.inside import Inside
from tests.broker.polls import Polls
from tests.oracle import wire
from tidelog.broker.clock import SystemClock
from tidelog.broker.coordinators.groups import offset_commits
from tidelog.broker.coordinators.transactions import execution
from tidelog.broker.network.routes import handler_of
from tidelog.broker.network.scheduler import ROUND_S, Scheduler
from tidelog.protocol.message import served_apis

if TYPE_CHECKING:
    from types import FrameType

INVALID_PARTITIONS, INVALID_REQUEST = 37, 42
_LINE_S = 4e-6
_MOST_S = 0.020
_PARTITIONS = 250
_MANY = 8_000
_NAMES = [f"n{number}" for number in range(_MANY)]


class WorkClock(SystemClock):
    """The machine's clock, whose seconds pass with each line that a thread executes."""

    def __init__(self) -> None:
        self.lines = 0

    def monotonic_s(self) -> float:
        return self.lines * _LINE_S

    def trace(self, _frame: FrameType, event: str, _: object):
        if event == "line":
            self.lines += 1
        return self.trace


class Watched:
    """A broker, and how long its largest requests hold it."""

    def __init__(self, broker: Inside, clock: WorkClock) -> None:
        self._broker, self._clock = broker, clock
        self._polls = broker.call(lambda: Polls(broker._loop, clock.monotonic_s))

    def ask(self, api: str, version: int, **fields):
        """Its answer, as it comes when nothing is measured."""
        with self._broker.connect() as connection:
            return connection.ask(api, version, **fields)

    def hold_s(self, api: str, version: int, **fields) -> float:
        """How long the loop was held at most until a request was answered, and its connection closed."""
        key, flexible, body = wire.encode_request(api, version, fields)
        self._broker.call(lambda: sys.settrace(self._clock.trace))
        self._broker.call(self._polls.forget)
        with self._broker.connect() as connection:
            assert connection.ask_raw(key, version, body, flexible=flexible) is not None
        self._broker.call(lambda: sys.settrace(None))
        return self._polls.longest


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    for api in served_apis():
        handler_of(api)  # the first request of an API imports it, which is no work of the request
    clock = WorkClock()
    with Inside(tmp_path_factory.mktemp("holds"), clock) as broker:
        watched = Watched(broker, clock)
        create(watched, "t", _PARTITIONS)
        yield watched


_FILTERS = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
_RULE = {
    "resource_type": 2,
    "resource_name": "x",
    "resource_pattern_type": 3,
    "principal": "User:x",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_KEYS = {"resource_type": 2, "resource_name": "t", "configuration_keys": _NAMES}
_MEMBER = {"group_id": "none", "generation_id": 1, "member_id": "m"}
_ASSIGNED = [{"member_id": name, "assignment": b"a"} for name in _NAMES]
_TOPIC = {"name": "c", "num_partitions": 1, "replication_factor": 1}


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("ListGroups", 4, {"states_filter": _NAMES}),
        ("SyncGroup", 2, {**_MEMBER, "assignments": _ASSIGNED}),
        ("ListTransactions", 1, {**_FILTERS, "state_filters": _NAMES}),
        ("DescribeConfigs", 1, {"resources": [_KEYS], "include_synonyms": False}),
        ("CreateAcls", 1, {"creations": [_RULE] * _MANY}),
        ("DescribeGroups", 2, {"groups": _NAMES}),
        ("DeleteGroups", 1, {"groups_names": _NAMES}),
        ("DescribeTransactions", 0, {"transactional_ids": _NAMES}),
        ("DeleteTopics", 3, {"topic_names": _NAMES, "timeout_ms": 1_000}),
    ],
)
def test_a_request_of_many_elements_gives_way(watched, api, version, fields):
    assert watched.hold_s(api, version, **fields) < _MOST_S


def test_settings_without_end_are_refused_before_they_are_looked_at(watched):
    named = [{"name": name, "value": "1"} for name in _NAMES]
    for api, more in (("AlterConfigs", {}), ("IncrementalAlterConfigs", {"config_operation": 0})):
        configs = [{**each, **more} for each in named]
        resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
        fields = {"resources": [resource], "validate_only": True}
        assert watched.hold_s(api, 1, **fields) < _MOST_S
        (found,) = watched.ask(api, 1, **fields)["responses"]
        assert (found["error_code"], found["error_message"][:14]) == (
            INVALID_REQUEST,
            "8000 settings ",
        )
    made = {"topics": [{**_TOPIC, "assignments": [], "configs": named}], "timeout_ms": 1_000}
    assert watched.hold_s("CreateTopics", 4, **made, validate_only=True) < _MOST_S
    (found,) = watched.ask("CreateTopics", 4, **made, validate_only=True)["topics"]
    assert found["error_code"] == INVALID_REQUEST


def test_settings_that_are_long_together_are_refused(watched):
    """Lists are added to and removed from by their members, each of which is looked for."""
    members = ",".join(f"{number}:1" for number in range(4_000))
    configs = [{"name": name, "value": members, "config_operation": 2} for name in "abcde"]
    resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
    fields = {"resources": [resource], "validate_only": True}
    (found,) = watched.ask("IncrementalAlterConfigs", 1, **fields)["responses"]
    assert (found["error_code"], "characters" in found["error_message"]) == (INVALID_REQUEST, True)


def test_more_assignments_than_a_topic_can_have_partitions_are_refused_at_once(watched):
    assigned = [{"partition_index": index, "broker_ids": [1]} for index in range(12_000)]
    topic = {"name": "a", "num_partitions": -1, "replication_factor": -1, "assignments": assigned}
    made = {"topics": [{**topic, "configs": []}], "timeout_ms": 1_000, "validate_only": True}
    assert watched.hold_s("CreateTopics", 4, **made) < _MOST_S
    (found,) = watched.ask("CreateTopics", 4, **made)["topics"]
    assert found["error_code"] == INVALID_PARTITIONS


def _producer(watched) -> dict[str, int]:
    given = watched.ask("InitProducerId", 1, transactional_id="x", transaction_timeout_ms=60_000)
    return {key: given[key] for key in ("producer_id", "producer_epoch")}


def _holds_of_a_transaction(watched) -> dict[str, float]:
    """Of the offsets of many partitions, from its first request to its markers.

    Then its offsets are read and deleted.
    """
    indexes = [{"name": "t", "partitions": list(range(_PARTITIONS))}]
    offsets = [
        {
            "partition_index": index,
            "committed_offset": index,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index in range(_PARTITIONS)
    ]
    producer = _producer(watched)
    of_group = {"transactional_id": "x", "group_id": "g", **producer}
    added = {
        "v3_and_below_transactional_id": "x",
        **{f"v3_and_below_{key}": value for key, value in producer.items()},
        "v3_and_below_topics": indexes,
    }
    sent = {**of_group, "topics": [{"name": "t", "partitions": offsets}]}
    end = {"transactional_id": "x", "committed": True, **producer}
    named = [{"name": "t", "partitions": [{"partition_index": i} for i in range(_PARTITIONS)]}]
    first = [{"name": "t", "partitions": offsets[:1]}]
    alone = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    watched.ask("OffsetCommit", 7, group_id="g", **alone, topics=first)  # makes the topic
    return {
        "AddPartitionsToTxn": watched.hold_s("AddPartitionsToTxn", 1, **added),
        "AddOffsetsToTxn": watched.hold_s("AddOffsetsToTxn", 1, **of_group),
        "TxnOffsetCommit": watched.hold_s("TxnOffsetCommit", 2, **sent),
        "DescribeTransactions": watched.hold_s("DescribeTransactions", 0, transactional_ids=["x"]),
        "EndTxn": watched.hold_s("EndTxn", 1, **end),
        "OffsetFetch": watched.hold_s("OffsetFetch", 5, group_id="g", topics=None),
        "OffsetDelete": watched.hold_s("OffsetDelete", 0, group_id="g", topics=named),
    }


def _too_long(holds: dict[str, float]) -> set[str]:
    """The requests of a transaction that hold the loop for longer than they may.

    Its offsets are one batch of records, and are committed together.
    """
    at_once_s = ROUND_S + 10 * _PARTITIONS * _LINE_S
    most_s = {"TxnOffsetCommit": at_once_s, "EndTxn": at_once_s}
    return {api for api, hold_s in holds.items() if hold_s >= most_s.get(api, _MOST_S)}


def test_a_transaction_of_the_offsets_of_many_partitions(watched, monkeypatch):
    monkeypatch.setattr(offset_commits, "AT_ONCE", 100)
    assert _too_long(_holds_of_a_transaction(watched)) == set()


def _without_a_pause(_scheduler, work, now, _slice_s):
    waits_for = now.first_step(work)
    while waits_for is None:
        waits_for = work.send(None)
    return waits_for


_IN_SLICES = {"AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn", "OffsetFetch", "OffsetDelete"}


@pytest.mark.parametrize(
    ("where", "fault", "held"),
    [
        (Scheduler, ("_go_on", _without_a_pause), _IN_SLICES),
        (execution, ("_AT_ONCE", 10 * _PARTITIONS), {"EndTxn"}),
        (offset_commits, ("AT_ONCE", 10 * _PARTITIONS), {"OffsetDelete"}),
    ],
    ids=["nothing gives way", "all markers at once", "all deletions at once"],
)
def test_a_transaction_that_does_not_give_way_is_noticed(watched, monkeypatch, where, fault, held):
    """As it was before: what a test of holds has to find."""
    monkeypatch.setattr(offset_commits, "AT_ONCE", 100)
    monkeypatch.setattr(where, *fault)
    assert _too_long(_holds_of_a_transaction(watched)) == held


def test_a_fetch_session_of_many_partitions_begins(watched):
    wanted = {"current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
    named = [
        {"partition": index, "partition_max_bytes": 1_000, **wanted} for index in range(_PARTITIONS)
    ]
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": 0,
        "topics": [{"topic": "t", "partitions": named}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    assert watched.hold_s("Fetch", 11, **fields) < _MOST_S
    begun = watched.ask("Fetch", 11, **fields)
    fields.update(session_id=begun["session_id"], session_epoch=1, topics=[])
    assert begun["session_id"] > 0
    with_records = {
        each["partition_index"]
        for each in begun["responses"][0]["partitions"]
        if each["high_watermark"]  # the markers of the test above, if that came first
    }
    told = watched.ask("Fetch", 11, **fields)
    partitions = [each for topic in told["responses"] for each in topic["partitions"]]
    assert told["error_code"] == 0
    assert {each["partition_index"] for each in partitions} <= with_records

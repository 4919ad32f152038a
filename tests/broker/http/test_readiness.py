"""Every reason for which /readyz is 503 is a finding of both doctors: none is listed twice, or forgotten."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tidelog.broker.http import readiness
from tidelog.broker.http.doctor import of_readiness
from tidelog.broker.http.readiness import FULL, NOT_SERVING, OFFLINE, SUSPENDED, WENT_BACK, reasons
from tidelog.cli.brokers.diagnosis import findings

KINDS = {value for name, value in vars(readiness).items() if name.isupper() and type(value) is str}
LOG = SimpleNamespace(topic="t", index=0, offline="No space left on device")
CASES = {
    "it starts or stops": ({"ready": False}, NOT_SERVING),
    "without a session": ({"why": "the session is lost"}, NOT_SERVING),
    "it is cut off from the metadata": ({"all_suspended": True}, SUSPENDED),
    "the metadata went back": ({"went_back": "gone back"}, WENT_BACK),
    "a log is offline": ({"offline": [LOG]}, OFFLINE),
    "a directory is full": ({"full": [Path("/data")]}, FULL),
}


def node_in(*, ready=True, why=None, all_suspended=False, went_back=None, offline=(), full=()):
    return SimpleNamespace(
        ready=ready,
        cluster=SimpleNamespace(why_not_serving=why),
        replicas=SimpleNamespace(all_suspended=all_suspended),
        metadata=SimpleNamespace(went_back=went_back, node_id=1),
        partitions=SimpleNamespace(offline=lambda: list(offline)),
        store=SimpleNamespace(full_directories=lambda: list(full)),
    )


def of_cluster(node):
    """What `tidelog cluster doctor` finds by what the broker says of itself in /v1/cluster."""
    told = [{"reason": each.kind, "sentence": each.line} for each in reasons(node)]
    own = {
        "not_ready": told,
        "not_serving": node.cluster.why_not_serving,
        "metadata_error": None,
        "inter_broker_protocol_version": "3.9",
        "message_format_version": "3.0",
    }
    broker = {"broker": 1, "state": "serving", "own": own, "is_name_known": True}
    broker |= {"unreachable": None, "clock_offset_ms": 0, "replicas": 0}
    return findings({"brokers": [broker], "partitions": [], "controller": None})


@pytest.mark.parametrize("case", CASES)
def test_each_reason_is_a_finding(case):
    state, kind = CASES[case]
    node = node_in(**state)
    (reason,) = reasons(node)
    assert reason.kind == kind
    (found,) = of_readiness(node)
    assert (found["finding"], found["broker"], found["topic"]) == (kind, 1, reason.topic)
    assert reason.line in found["sentence"]
    (found,) = of_cluster(node)
    assert (found.finding, found.brokers) == (kind, [1])
    assert reason.line in found.sentence


def test_every_kind_of_reason_is_among_the_cases():
    assert {kind for _, kind in CASES.values()} == KINDS


def test_a_broker_that_is_ready_has_no_finding():
    node = node_in()
    assert (reasons(node), list(of_readiness(node)), of_cluster(node)) == ([], [], [])

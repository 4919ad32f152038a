"""Clients and times before 1970: each does what expectations.py declares and docs/time.md tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import clients, matrix
from tests.clients.negative_times import expectations
from tests.clients.negative_times import run as negative

PAGE = Path(__file__).parents[3] / "docs" / "time.md"
ALONE = [clients.CONFLUENT]


@pytest.fixture
def broker(tidelog_broker_factory):
    return tidelog_broker_factory()


@pytest.mark.slow
def test_quick(broker):
    outcomes, skipped = negative.run(broker.bootstrap, clients.QUICK, make=False)
    assert expectations.differences(outcomes) == []
    assert skipped == {}
    assert list(outcomes) == [client.name for client in clients.QUICK]


@pytest.mark.clients
@pytest.mark.timeout(1800)
def test_every_client(broker):
    outcomes, skipped = negative.run(broker.bootstrap, clients.CLIENTS, make=True)
    assert expectations.differences(outcomes) == []
    assert matrix.unexpected_skips(skipped) == {}


def test_every_client_is_declared():
    assert list(expectations.EXPECTED) == [client.name for client in clients.CLIENTS]


def test_the_page_says_the_same():
    _, begin, rest = PAGE.read_text().partition(expectations.MARK_BEGIN)
    table, end, _ = rest.partition(expectations.MARK_END)
    assert begin
    assert end
    assert table == expectations.render()


@pytest.mark.slow
def test_a_broker_that_served_other_times_would_be_caught(broker, monkeypatch):
    clamped = tuple(max(time, 0) for time in negative.READ)
    prepare = negative.prepare

    def plant(server, chosen):
        with monkeypatch.context() as patch:
            patch.setattr(negative, "READ", clamped)
            prepare(server, chosen)

    monkeypatch.setattr(negative, "prepare", plant)
    outcomes, _ = negative.run(broker.bootstrap, ALONE, make=False)
    (shown, found) = expectations.differences(outcomes)
    assert "shows 0, 0, 0, 0, 0, 1600000000000" in shown
    assert "offset 0" in found


@pytest.mark.slow
def test_a_broker_that_stored_other_times_would_be_caught(broker, monkeypatch):
    stored = negative.stored
    monkeypatch.setattr(negative, "stored", lambda *place: [max(t, 0) for t in stored(*place)])
    outcomes, _ = negative.run(broker.bootstrap, ALONE, make=False)
    (sent,) = expectations.differences(outcomes)
    assert "stored as 0" in sent

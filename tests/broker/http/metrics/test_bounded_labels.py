"""Labels that clients choose are bounded: software names, groups."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidelog.broker.http.metrics.families import group_metrics
from tidelog.broker.http.metrics.family import Scrape
from tidelog.broker.metrics.counters import MOST_CLIENTS, MOST_NAME_CHARACTERS, OTHER, Metrics


def test_names_of_software_are_cut_and_bounded():
    metrics = Metrics()
    for number in range(MOST_CLIENTS + 50):
        metrics.client_seen(f"{number:04}" + "n" * 64_000, "1" * 64_000)
    metrics.client_seen("0000" + "n" * 64_000, "1" * 64_000)
    assert len(metrics.clients) == MOST_CLIENTS + 1
    assert {len(part) for key in metrics.clients for part in key if part != OTHER} == {
        MOST_NAME_CHARACTERS
    }
    assert metrics.clients[OTHER, OTHER] == 50
    assert (
        metrics.clients["0000" + "n" * (MOST_NAME_CHARACTERS - 4), "1" * MOST_NAME_CHARACTERS] == 2
    )


def group(name, members, offset):
    return SimpleNamespace(
        group=SimpleNamespace(group_id=name, members=dict.fromkeys(range(members))),
        offsets={("t", 0): SimpleNamespace(offset=offset)},
    )


@pytest.fixture
def scrape(monkeypatch):
    """A scrape of four groups, of which two have labels of their own; offset N is N ms behind."""
    groups = [group(f"g{number}", number, number) for number in range(4)]
    node = SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: 0),
        clock_watch=SimpleNamespace(status=lambda: None),
        coordinator=SimpleNamespace(runtime=SimpleNamespace(all=lambda: groups)),
    )
    monkeypatch.setattr(group_metrics, "MOST_GROUPS", 2)
    monkeypatch.setattr(
        group_metrics,
        "_lag",
        lambda _scrape, name, topic, index, offset: group_metrics.GroupLag(
            (name, topic, str(index)), offset, offset if offset != 3 else None, 10 - offset
        ),
    )
    return Scrape(node)


def test_the_others_are_told_as_a_sum_of_members_and_as_the_largest_lag(scrape):
    assert list(group_metrics.members(scrape)) == [(("g0",), 0), (("g1",), 1), ((OTHER,), 5)]
    others = [lag for lag in group_metrics.lags(scrape) if lag.labels[0] == OTHER]
    assert others == [group_metrics.GroupLag((OTHER, "t", "0"), 3, 2, 8)]
    assert [lag.labels[0] for lag in group_metrics.lags(scrape)] == ["g0", "g1", OTHER]

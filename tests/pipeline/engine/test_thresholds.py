"""Thresholds: which limits a report breaks, and what is no file of thresholds."""

from __future__ import annotations

import pytest

from tidelog.pipeline.engine.thresholds import Broken, ThresholdError, Thresholds

SPANS = {"p50": 10, "p90": 20, "p99": 30, "p99_9": 40, "p99_99": 50, "max": 60}


def topic(name, **numbers):
    summary = {
        "records": 1000,
        "plausible": 990,
        "missing": 0,
        "future": 4,
        "negative": 0,
        "out_of_order": 99,
        "suspects": {"seconds": 1, "microseconds": 2},
        "lateness_ms": SPANS,
        "delay_ms": SPANS,
    }
    return {"topic": name, "summary": summary | numbers}


def group(name, records=5, event=900_000, append=None):
    lag = {"records": records, "event_lag_ms": event, "append_lag_ms": append}
    return {"group": name, "topic": "orders", "partition": 2} | lag


def broken(text, *topics, groups=()):
    found = Thresholds(text).broken({"topics": topics, "groups": groups})
    return [(each.subject, each.name, each.limit, each.value) for each in found]


def test_a_value_may_be_as_large_as_its_limit():
    text = '[topic."*"]\nfuture = {}\nout_of_order_share = {}\nlateness_max = "{}ms"\nsuspect = {}'
    assert broken(text.format(4, 0.1, 60, 3), topic("orders")) == []
    assert broken(text.format(3, 0.09, 59, 2), topic("orders")) == [
        ("orders", "future", 3, 4),
        ("orders", "out_of_order_share", 0.09, 0.1),
        ("orders", "lateness_max", 59, 60),
        ("orders", "suspect", 2, 3),
    ]


def test_a_later_section_wins_limit_by_limit():
    text = """
    [topic."*"]
    future = 0
    missing = 0
    [topic."orders-*"]
    future = 10
    """
    assert broken(text, topic("orders-eu", missing=1), topic("other")) == [
        ("orders-eu", "missing", 0, 1),
        ("other", "future", 0, 4),
    ]


def test_what_is_unknown_does_not_hold():
    unknown = SPANS | {"p99_9": None}
    text = '[topic."*"]\ndelay_p99_9 = "1h"'
    assert broken(text, topic("t", delay_ms=unknown)) == [("t", "delay_p99_9", 3_600_000, None)]
    # An empty topic has nothing that could be late.
    assert broken(text, topic("t", delay_ms=unknown, records=0, plausible=0)) == []


def test_a_lower_bound():
    text = '[topic."t"]\nmin_records = 1001'
    assert broken(text, topic("t")) == [("t", "min_records", 1001, 1000)]


def test_groups():
    text = '[group."b*"]\nevent_lag = "5m"\nrecords = 5\n'
    found = Thresholds(text)
    assert found.wants_groups
    assert broken(text, groups=[group("billing"), group("other")]) == [
        ("billing in orders-2", "event_lag", 300_000, 900_000)
    ]
    # A group that has read everything has no lag, and a lag that is unknown does not hold.
    assert broken(text, groups=[group("billing", records=0, event=None)]) == []
    append = '[group."*"]\nappend_lag = "5m"'
    assert broken(append, groups=[group("b")]) == [("b in orders-2", "append_lag", 300_000, None)]


def test_sections_to_which_nothing_belongs_are_named():
    text = '[topic."order"]\nfuture = 0\n[topic."o*"]\nfuture = 9'
    report = {"topics": [topic("orders")], "groups": []}
    assert Thresholds(text).unused(report) == ['[topic."order"]']
    assert isinstance(Thresholds('[topic."*"]\nfuture = 0').broken(report)[0], Broken)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("future = 0", r"\[future\] is no section"),
        ("[topic]\nfuture = 0", r"\[topic\] has future: write \[topic.\"NAME\"\] above it"),
        ('[topic."*"]\nfutur = 0', "there is no such limit: missing, future"),
        ('[topic."*"]\nfuture = "many"', "a number from 0 on is needed"),
        ('[topic."*"]\nfuture = true', "a number from 0 on is needed"),
        ('[topic."*"]\nfuture = -1', "a number from 0 on is needed"),
        ('[topic."*"]\nlateness_max = "soon"', "lateness_max: "),
        ('[topic."*"]\nmissing_share = 2', "a share is from 0 to 1"),
        ('[group."*"]\nfuture = 0', "there is no such limit: records, event_lag"),
        ("[topic", "no TOML"),
    ],
)
def test_what_is_no_file_of_thresholds_is_refused(text, words):
    with pytest.raises(ThresholdError, match=words):
        Thresholds(text)

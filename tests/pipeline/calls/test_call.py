"""Keywords from options: which there are, and what values become on their way through the parser."""

from __future__ import annotations

import datetime as dt
import inspect
from pathlib import Path

import pytest

from tidelog.pipeline import cli
from tidelog.pipeline.calls.call import options_of
from tidelog.pipeline.calls.keywords import CALLS, arguments_of, described, keyword_of, signature_of
from tidelog.pipeline.errors import UsageError

BY_NAME = {one.name: one for one in CALLS}
READ = {"logs": "/data"}
COPY = {"broker": "a:1", "to_broker": "b:1"}


def test_every_job_can_be_called():
    assert {one.job for one in CALLS} == set(cli.JOBS)


def test_a_keyword_is_an_option_with_underscores():
    assert [keyword_of(name) for name in ("topics", "to-broker", "from")] == [
        "topics",
        "to_broker",
        "from_",
    ]


@pytest.mark.parametrize("name", BY_NAME)
def test_every_option_is_a_keyword_and_is_described(name):
    one = BY_NAME[name]
    parameters = signature_of(one).parameters
    assert set(parameters) == {"spark", *arguments_of(one)}
    assert {"run", "out", "report", "verbose"} <= set(parameters)
    told = described(one)
    assert all(f"\n{keyword}: " in told for keyword in set(parameters) - {"spark"})
    assert "--" not in told.partition("`spark` is")[2]


def test_what_is_needed_has_no_default():
    empty = inspect.Parameter.empty
    needed = {
        name: {key for key, one in signature_of(call).parameters.items() if one.default is empty}
        for name, call in BY_NAME.items()
    }
    assert needed["audit"] == set()
    assert needed["archive_verify"] == set()
    assert needed["restore"] == {"to_broker"}
    assert needed["failover"] == {"group", "from_", "to"}


@pytest.mark.parametrize(
    ("name", "given", "option", "expected"),
    [
        ("audit", {"logs": ["/a", Path("/b")]}, "logs", ["/a", "/b"]),
        ("audit", {"logs": Path("/b")}, "logs", ["/b"]),
        ("audit", {**READ, "topics": ["a", "b"]}, "topics", "a,b"),
        ("audit", {**READ, "from_": -5}, "low_time", -5),
        (
            "audit",
            {**READ, "from_": dt.datetime(1066, 10, 14, tzinfo=dt.UTC)},
            "low_time",
            -28_502_755_200_000,
        ),
        ("audit", {**READ, "margin": dt.timedelta(minutes=2)}, "margin", 120_000),
        ("audit", {**READ, "margin": "2m"}, "margin", 120_000),
        ("audit", {**READ, "no_retention": True}, "no_retention", True),
        ("audit", {**READ, "no_retention": False}, "no_retention", False),
        ("audit", {**READ, "at": None}, "at", None),
        ("audit", {**READ, "split_bytes": 1000}, "split_bytes", 1000),
        ("audit", {**READ, "conf": {"a.b": True}}, "conf", [("a.b", "true")]),
        ("mirror", {**COPY, "rename": {"x": "y", "v": "w"}}, "rename", [("x", "y"), ("v", "w")]),
        ("mirror", {**COPY, "rename": "x=y"}, "rename", [("x", "y")]),
        ("mirror", {**COPY, "set": {"retention.ms": -1}}, "set", [("retention.ms", "-1")]),
        ("archive_verify", {"directory": Path("/arch")}, "directory", "/arch"),
        ("archive_compact", {"directory": "/arch", "file_bytes": "1m"}, "file_bytes", 1 << 20),
        ("archive_compact", {"directory": "/arch"}, "action", "compact"),
        (
            "whatif",
            {"logs": "/d", "policy": {"week": {"retention.ms": "7d", "retention.bytes": 5}}},
            "policy",
            ["week:retention.ms=7d,retention.bytes=5"],
        ),
        ("archive", {"broker": "a:1", "to": "/arch"}, "action", None),
    ],
)
def test_values(name, given, option, expected):
    assert getattr(options_of(BY_NAME[name], given), option) == expected


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("audit", {}, "one of the arguments broker logs is required"),
        ("audit", {**READ, "broker": "a:1"}, "argument broker: not allowed with argument logs"),
        ("audit", {**READ, "upto": "x"}, "argument upto: invalid choice: 'x'"),
        ("audit", {**READ, "at": "noon"}, "argument at: "),
        (
            "audit",
            {**READ, "from_": dt.datetime(2026, 1, 1)},
            "2026-01-01T00:00:00 has no time zone: give the datetime one",
        ),
        ("mirror", {"broker": "a:1"}, "the following arguments are required: to_broker"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, given, sentence):
    with pytest.raises(UsageError) as caught:
        options_of(BY_NAME[name], given)
    assert str(caught.value).startswith(sentence)

"""The options of the jobs as classes and as functions: what values become, and what is refused."""

from __future__ import annotations

import datetime as dt
import inspect
from pathlib import Path

import pytest

import tidelog.jobs
from tidelog.pipeline import cli
from tidelog.pipeline.errors import UsageError

KINDS = {job: cli.options_of(job) for job in cli.JOBS}
KINDS |= {
    f"{job}_{name}": action for job, kind in KINDS.items() for name, action in kind.actions.items()
}
READ = {"logs": "/data"}
COPY_BACK = {"directory": "/arch", "to_broker": "b:1"}
COPY = {"broker": "a:1", "to_broker": "b:1"}


@pytest.mark.parametrize("name", KINDS)
def test_every_option_has_its_keyword_and_is_described(name):
    function, kind = getattr(tidelog.jobs, name), KINDS[name]
    parameters = inspect.signature(function).parameters
    shown = kind.shown()
    assert set(parameters) == {"spark", *(one.name for one in shown)}
    assert {"run", "out", "report", "verbose"} <= set(parameters)
    for one in shown:
        assert one.meaning
        assert f"\n{one.name}: " in function.__doc__
    assert "--" not in function.__doc__.partition("`spark` is")[2]


@pytest.mark.parametrize(
    ("name", "given", "option", "expected"),
    [
        ("audit", {"logs": ["/a", Path("/b")]}, "logs", ("/a", "/b")),
        ("audit", {"logs": Path("/b")}, "logs", ("/b",)),
        ("audit", {**READ, "topics": ["a", "b"]}, "topics", "a,b"),
        ("audit", {**READ, "from_": -5}, "from_", -5),
        (
            "audit",
            {**READ, "from_": dt.datetime(1066, 10, 14, tzinfo=dt.UTC)},
            "from_",
            -28_502_755_200_000,
        ),
        ("audit", {**READ, "margin": dt.timedelta(minutes=2)}, "margin", 120_000),
        ("audit", {**READ, "margin": "2m"}, "margin", 120_000),
        ("audit", {**READ, "margin": None}, "margin", 60_000),
        ("audit", {**READ, "no_retention": True}, "no_retention", True),
        ("audit", {**READ, "no_retention": False}, "no_retention", False),
        ("audit", {**READ, "no_retention": "false"}, "no_retention", False),
        ("audit", {**READ, "at": None}, "at", None),
        ("audit", {**READ, "split_bytes": 1000}, "split_bytes", 1000),
        ("audit", {**READ, "conf": {"a.b": True}}, "conf", (("a.b", "true"),)),
        ("mirror", {**COPY, "rename": {"x": "y", "v": "w"}}, "rename", (("x", "y"), ("v", "w"))),
        ("mirror", {**COPY, "rename": "x=y"}, "rename", (("x", "y"),)),
        ("mirror", {**COPY, "set": {"retention.ms": -1}}, "set", (("retention.ms", "-1"),)),
        ("archive_verify", {"directory": Path("/arch")}, "directory", "/arch"),
        ("archive_compact", {"directory": "/arch", "file_bytes": "1m"}, "file_bytes", 1 << 20),
        ("restore", {**COPY_BACK, "offsets": {"a-b-3": "5:9"}}, "offsets", (("a-b", 3, 5, 9),)),
        (
            "whatif",
            {"logs": "/d", "policy": {"week": {"retention.ms": "7d", "retention.bytes": 5}}},
            "policy",
            ("week:retention.ms=7d,retention.bytes=5",),
        ),
    ],
)
def test_values(name, given, option, expected):
    assert getattr(KINDS[name](**given), option) == expected


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("audit", {}, "one of the arguments broker logs is required"),
        ("audit", {**READ, "broker": "a:1"}, "argument logs: not allowed with argument broker"),
        (
            "audit",
            {**READ, "upto": "log"},
            "argument upto: invalid choice: 'log': did you mean log-end?",
        ),
        ("audit", {**READ, "at": "noon"}, "argument at: 'noon' is not a time"),
        (
            "audit",
            {**READ, "from_": dt.datetime(2026, 1, 1)},
            "2026-01-01T00:00:00 has no time zone: give the datetime one",
        ),
        ("mirror", {"broker": "a:1"}, "mirror: missing a required argument: 'to_broker'"),
        ("failover", {"group": "g", "from_": "a:1", "to": "b"}, "argument to: "),
        ("mirror", {**COPY, "to_broker": None}, "argument to_broker: it is needed"),
        ("mirror", {**COPY, "rounds": "x"}, "argument rounds: invalid int value: 'x'"),
        ("mirror", {**COPY, "allow_gone": "no"}, "argument allow_gone: 'no' is not true or false"),
        ("audit", {"broker": "a:1", "brokers": "b:1"}, "brokers and broker are one keyword"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, given, sentence):
    with pytest.raises(UsageError) as caught:
        getattr(tidelog.jobs, name)(**given)
    assert str(caught.value).startswith(sentence)

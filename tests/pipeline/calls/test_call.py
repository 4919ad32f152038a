"""Keywords from options: which there are, and what values become on their way through the parser."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tidelog.pipeline import cli
from tidelog.pipeline.calls.call import options_of
from tidelog.pipeline.calls.keywords import (
    CALLS,
    MOVED,
    arguments_of,
    described,
    keyword_of,
    signature_of,
)
from tidelog.pipeline.errors import UsageError

BY_NAME = {one.name: one for one in CALLS}
READ = {"logs": "/data"}
COPY = {"broker": "a:1", "to_broker": "b:1"}


def test_every_job_can_be_called():
    assert {one.job for one in CALLS} == set(cli.JOBS) - set(MOVED)


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
    assert needed["archive_verify"] == set()
    assert needed["restore"] == {"to_broker"}


@pytest.mark.parametrize(
    ("name", "given", "option", "expected"),
    [
        ("archive_verify", {"directory": Path("/arch")}, "directory", "/arch"),
        ("archive_compact", {"directory": "/arch", "file_bytes": "1m"}, "file_bytes", 1 << 20),
        ("archive_compact", {"directory": "/arch"}, "action", "compact"),
        ("archive", {"broker": "a:1", "to": "/arch"}, "action", None),
    ],
)
def test_values(name, given, option, expected):
    assert getattr(options_of(BY_NAME[name], given), option) == expected


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        (
            "backfill",
            {"topic": "t"},
            "the following arguments are required: time_column, to_broker",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, given, sentence):
    with pytest.raises(UsageError) as caught:
        options_of(BY_NAME[name], given)
    assert str(caught.value).startswith(sentence)

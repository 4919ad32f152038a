"""Where tasks run, without Spark: the rule for what is small, and the tasks of this process."""

from __future__ import annotations

import os
import threading

import pytest

from tidelog.client import ClusterUnreachable, RequestError
from tidelog.pipeline import session as session_module
from tidelog.pipeline import tasks
from tidelog.pipeline.errors import PipelineError, SetupError, UsageError
from tidelog.pipeline.runs.task_progress import watching
from tidelog.pipeline.session import SMALL_BYTES, SPARK_START_S, TRIED_S, TaskSession, is_small
from tidelog.pipeline.source.splits import SourceError
from tidelog.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("left_bytes", "done_bytes", "elapsed_s", "expected"),
    [
        (SMALL_BYTES - 1, 0, 0, True),
        (SMALL_BYTES, 0, 0, False),
        (None, 0, 0, False),
        # Nothing has ended yet, or so early that the rate says little.
        (SMALL_BYTES - 1, 0, 1000, True),
        (SMALL_BYTES - 1, 1, TRIED_S - 1, True),
        # The rate so far says how long the rest takes.
        (2000, 1000, SPARK_START_S / 2, True),
        (2001, 1000, SPARK_START_S / 2, False),
        (2000, 1000, 2 * SPARK_START_S, False),
        (1, 1000, 60, True),
    ],
)
def test_what_is_small(left_bytes, done_bytes, elapsed_s, expected):
    assert is_small(left_bytes, done_bytes, elapsed_s) is expected


@pytest.mark.parametrize(
    ("master", "sizes", "where"),
    [
        (None, [1, 2], "here"),
        ("auto", [SMALL_BYTES - 2, 1], "here"),
        ("auto", [SMALL_BYTES - 1, 1], "Spark"),
        ("auto", None, "Spark"),
        ("local[2]", [0, 0], "Spark"),
        ("inline", [2**60, 1], "here"),
        ("inline", None, "here"),
    ],
)
def test_where_tasks_run(monkeypatch, master, sizes, where):
    monkeypatch.setattr(
        TaskSession, "on_spark", lambda self, task, left, done: ["Spark"] * len(left)
    )
    with TaskSession("x", master=master) as session:
        assert session.run(lambda item: "here", [1, 2], sizes=sizes) == [where, where]
        assert session.run(lambda item: "here", [], sizes=None if sizes is None else []) == []


def test_what_takes_long_after_all_goes_to_spark(monkeypatch):
    """Sizes are estimates: a broker tells no bytes."""
    moments = iter((0.0, 0.0, 4.9, 6.0))
    monkeypatch.setattr(
        session_module, "time", type("Clock", (), {"monotonic": lambda: next(moments) + 100})
    )
    monkeypatch.setattr(
        TaskSession, "on_spark", lambda self, task, left, done: ["Spark"] * len(left)
    )
    with TaskSession("x") as session:
        found = session.run(lambda item: "here", [1, 2, 3, 4], sizes=[10, 10, 40, 40])
    assert found == ["here", "here", "Spark", "Spark"]


def test_spark_submit_says_the_master(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(TaskSession, "on_spark", lambda self, task, left, done: ["Spark"])
    with TaskSession("x") as session:
        assert session.run(lambda item: "here", [1], sizes=[1]) == ["Spark"]
    with TaskSession("x", master="auto") as session:
        assert session.run(lambda item: "here", [1], sizes=[1]) == ["here"]


def test_without_spark_the_items_are_done_here():
    with TaskSession("x", master="inline") as session:
        found = session.run(lambda item: item + os.getpid(), [1, 2])
        assert found == [1 + os.getpid(), 2 + os.getpid()]
        with pytest.raises(SetupError, match="needs Spark"):
            _ = session.spark
        assert not session.has_spark


def test_an_error_of_a_task_is_raised_as_it_is():
    with TaskSession("x") as session, pytest.raises(ZeroDivisionError):
        session.run(lambda item: 1 // item, [0], sizes=[0])


def test_progress_moves_while_tasks_run(monkeypatch):
    """The second task waits until the first was shown as done."""
    monkeypatch.setattr(session_module, "WATCH_S", 0.01)
    shown = threading.Event()
    seen = []

    def watch(done):
        seen.append(done)
        if done == 3:
            shown.set()

    with TaskSession("x") as session:
        session.run(lambda item: item and shown.wait(60), [0, 1], watch=watch, sizes=[3, 4])
    assert shown.is_set()
    assert seen == sorted(seen)


def test_progress_does_not_exceed_its_total(capsys):
    with watching("x", 10, TaskSession("x")) as watch:
        watch(12)
    assert '"done": 10, "total": 10' in capsys.readouterr().err


# --- tasks ---------------------------------------------------------------------------------------


def test_a_worker_settles_once(monkeypatch):
    frozen = []
    monkeypatch.setattr(tasks, "_is_settled", False)
    monkeypatch.setattr(tasks.gc, "freeze", lambda: frozen.append(1))
    tasks.settle()
    tasks.settle()
    assert frozen == [1]


def because(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(5, "disk"), True),
        (ClusterUnreachable("gone"), True),
        (MemoryError(), True),
        (RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"), True),
        (RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x"), False),
        (SourceError("a CRC"), False),
        (because(SourceError("gone"), ConnectionError()), True),
        (because(SourceError("no number"), ValueError()), False),
        (PipelineError("x"), False),
        (ValueError("x"), False),
    ],
)
def test_which_errors_may_pass(error, expected):
    assert tasks.may_pass(error) is expected


class Odd(Exception):
    """An error that pickle cannot make again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (UsageError("so"), UsageError, "so"),
        (RequestError(3, "topic t"), "ClientError", "topic t: UNKNOWN_TOPIC_OR_PARTITION"),
        (Odd(1, 2), PipelineError, "Odd: 1 and 2"),
    ],
)
def test_an_error_keeps_its_kind_and_its_sentence_on_its_way(error, kind, said):
    found = tasks.unpack(tasks.pack(tasks.portable(error)))
    assert type(found).__name__ == (kind if isinstance(kind, str) else kind.__name__)
    assert str(found).startswith(said)

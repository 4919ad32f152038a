"""Archiving and restoring by Spark's tasks: the same bytes as without, and workers that are killed."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import (
    DATES,
    SMALL,
    TIMES,
    action,
    archive,
    contents,
    expected,
    in_force,
    leftovers,
    restore,
    some,
    tree,
)
from tests.pipeline.archive.test_restore import FOREVER, rows, stored
from tidelog.pipeline.archive import writing
from tidelog.pipeline.archive.store import Store
from tidelog.pipeline.errors import OK

pytestmark = pytest.mark.spark
LOCAL = ("--master", "local[2]")


def test_by_tasks_of_spark_there_and_back(on_spark, broker, topic, root):
    assert archive(root, *SMALL, *LOCAL) == OK
    assert archive(root, *SMALL, to="inline", run="two") == OK
    assert tree(root) == tree(root, "inline")
    assert action("verify", root, *LOCAL) == OK
    assert action("compact", root, *LOCAL, run="c") == OK
    assert len(in_force(root)) == 16
    assert contents(root) == expected(root)
    found = on_spark.read.parquet(str(root / "archive"))
    seen = found.selectExpr("topic", "cast(event_date as string)", "timestamp_ms").collect()
    assert {tuple(row) for row in seen} == {
        ("t", None if time_ms == -1 else DATES[time_ms], time_ms) for time_ms in TIMES
    }
    how = ("--rename", f"t={topic}", "--create", *FOREVER, *LOCAL)
    assert restore(root, broker.bootstrap, *how) == OK
    assert stored(broker.bootstrap, topic, 2) == [rows(some(200, 1)), rows(some(90, 2))]


write = writing.write


def dying(chunk, *, after):
    """Archive a chunk in a worker that is killed, once, after so many files."""
    mark = Path(chunk.store.location).parent / f"died-{chunk.partition}-{chunk.start_offset}"
    left = iter(range(after))
    publish = Store.publish

    def stopping(self, name, data):
        if next(left, None) is None and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        publish(self, name, data)

    Store.publish = stopping
    try:
        return write(chunk)
    finally:
        Store.publish = publish


def test_workers_that_are_killed_write_the_same(on_spark, root, monkeypatch):
    assert archive(root, *SMALL, to="inline", run="whole") == OK
    monkeypatch.setattr(writing, "write", functools.partial(dying, after=2))
    assert archive(root, *SMALL, *LOCAL) == OK
    assert len(list(root.glob("died-*"))) == 5
    assert tree(root) == tree(root, "inline")
    assert contents(root) == expected(root)
    assert not leftovers(root)

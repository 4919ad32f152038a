"""Archiving by Spark's tasks: workers that are killed write the same bytes as one process does."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import (
    SMALL,
    archive,
    contents,
    expected,
    leftovers,
    tree,
)
from tidelog.pipeline.archive import writing
from tidelog.pipeline.archive.store import FileStore
from tidelog.pipeline.errors import OK

pytestmark = pytest.mark.spark
LOCAL = ("--master", "local[2]")


write = writing.write


def dying(chunk, *, after):
    """Archive a chunk in a worker that is killed, once, after so many files."""
    mark = Path(chunk.store.location).parent / f"died-{chunk.partition}-{chunk.start_offset}"
    left = iter(range(after))
    publish = FileStore.publish

    def stopping(self, name, data):
        if next(left, None) is None and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        publish(self, name, data)

    FileStore.publish = stopping
    try:
        return write(chunk)
    finally:
        FileStore.publish = publish


def test_workers_that_are_killed_write_the_same(on_spark, root, monkeypatch):
    assert archive(root, *SMALL, to="inline", run="whole") == OK
    monkeypatch.setattr(writing, "write", functools.partial(dying, after=2))
    assert archive(root, *SMALL, *LOCAL) == OK
    assert len(list(root.glob("died-*"))) == 5
    assert tree(root) == tree(root, "inline")
    assert contents(root) == expected(root)
    assert not leftovers(root)

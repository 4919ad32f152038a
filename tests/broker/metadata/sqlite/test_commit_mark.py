"""Commits of other processes to a SQLite file: noticed without a transaction, and without harm."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tidelog.broker.metadata.sqlite.commit_mark import CommitMark

INSERT = """
import sqlite3, sys

db = sqlite3.connect(sys.argv[1], timeout=0)
with db:
    db.execute("INSERT INTO counter VALUES (?, 1)", (sys.argv[2],))
"""


def insert(path, name):
    """Commit from another process; returns what it printed."""
    made = subprocess.run(
        [sys.executable, "-c", INSERT, str(path), name],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return made.stderr


@pytest.mark.parametrize("journal_mode", ["WAL", "TRUNCATE"])
def test_every_commit_of_another_process_is_marked_and_a_read_is_not(tmp_path, journal_mode):
    path = tmp_path / "one.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {journal_mode}")
        db.execute("CREATE TABLE counter (name TEXT, value INTEGER)")
        mark = CommitMark(path)
        marks = [mark.read()]
        for number in range(4):
            assert insert(path, str(number)) == ""
            marks.append(mark.read())
            assert db.execute("SELECT count(*) FROM counter").fetchone() == (number + 1,)
            assert mark.read() == marks[-1]
        assert len(set(marks)) == len(marks)
    mark.close()


def test_a_file_that_does_not_exist_yet_is_marked_when_it_does(tmp_path):
    path = tmp_path / "one.sqlite"
    mark = CommitMark(path)
    before = mark.read()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t (x)")
    assert mark.read() != before
    mark.close()


@pytest.mark.parametrize("journal_mode", ["WAL", "TRUNCATE"])
def test_a_look_at_the_mark_takes_no_lock_away(tmp_path, journal_mode):
    """A process that closes a descriptor of a file gives up its POSIX locks on it."""
    path = tmp_path / "one.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {journal_mode}")
        db.execute("CREATE TABLE counter (name TEXT, value INTEGER)")
        mark = CommitMark(path)
        db.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            mark.read()
        assert "database is locked" in insert(path, "other")
        db.execute("ROLLBACK")
        assert insert(path, "other") == ""
    mark.close()

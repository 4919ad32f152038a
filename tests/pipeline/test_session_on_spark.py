"""Tasks on Spark: what is tried again and what is not, what a failure says, and how progress moves."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import pytest

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.session import TaskSession

pytestmark = pytest.mark.spark
ATTEMPTS = 4
DEADLINE_S = 120


def noted(item, *, directory, error, failures):
    """Notes each attempt of item 0, which fails so many times; other items wait to be ended."""
    if item:
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            time.sleep(0.05)
        return None
    number = len(list(directory.iterdir()))
    (directory / str(number)).touch()
    if number < failures:
        raise error
    return number


@pytest.fixture
def tried(spark, tmp_path):
    """Runs `noted`; returns the result, or the error, and the number of attempts."""

    def run(error, failures, items=(0,)):
        task = functools.partial(noted, directory=tmp_path, error=error, failures=failures)
        try:
            (found,) = TaskSession("tests", spark=spark).run(task, items)
        except Exception as raised:
            found = raised
        return found, len(list(tmp_path.iterdir()))

    return run


def test_a_fault_in_data_is_not_tried_again_and_ends_the_other_tasks(tried):
    began_s = time.monotonic()
    error, attempts = tried(PipelineError("the batch at byte 1 fails its CRC"), 9, items=(0, 1))
    assert (type(error), str(error)) == (PipelineError, "the batch at byte 1 fails its CRC")
    assert attempts == 1
    assert time.monotonic() - began_s < DEADLINE_S
    assert "in noted" in error.__notes__[0], "--verbose shows where it happened"


def test_what_may_pass_is_tried_again(tried):
    assert tried(ConnectionError("away"), 2) == (2, 3)


def test_what_does_not_pass_is_raised_as_it_is(tried):
    error, attempts = tried(ConnectionError("away"), 9)
    assert (type(error), str(error)) == (ConnectionError, "away")
    assert attempts == ATTEMPTS


def awaited(item):
    """Ends only when its file is there."""
    until_s = time.monotonic() + DEADLINE_S
    while item is not None and not item.exists():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return os.getpid()


def test_progress_counts_the_sizes_of_tasks_that_are_done(spark, tmp_path):
    seen = []

    def watch(done):
        seen.append(done)
        if done == 3:
            (tmp_path / "shown").touch()

    pids = TaskSession("tests", spark=spark).run(
        awaited, [None, tmp_path / "shown"], watch=watch, sizes=[3, 4]
    )
    assert os.getpid() not in pids
    assert 3 in seen


def test_a_session_of_the_callers_is_left_as_it_was(spark):
    before = dict(spark.sparkContext.getConf().getAll()), spark.conf.getAll
    with TaskSession("tests", spark=spark) as session:
        assert session.run(abs, [-1, -2]) == [1, 2]
    with TaskSession("tests", master="local[7]") as session:  # a program's own is used, not another
        assert session.run(abs, [-3]) == [3]
        assert session.spark.sparkContext is spark.sparkContext
    assert spark.sparkContext.parallelize([Path("a")]).count() == 1, "it was not stopped"
    assert (dict(spark.sparkContext.getConf().getAll()), spark.conf.getAll) == before

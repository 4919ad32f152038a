"""The writers that Spark is given: what is said before a row is staged, and where rows are staged.

They are called as Spark calls them, and no Spark is started.
"""

from __future__ import annotations

import logging

import pytest

from tidelog.pipeline.sink import staging

pytestmark = pytest.mark.spark

GIVEN = {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.linger.ms": "5"}


@pytest.fixture
def source():
    """The class that Spark is given."""
    from tidelog.pipeline.timelog.data_source import TimelogDataSource

    return TimelogDataSource


@pytest.fixture
def columns():
    """A column that is written, and one that is not."""
    from pyspark.sql import types

    return types.StructType().add("value", types.BinaryType()).add("day", types.DateType())


@pytest.fixture
def checked(monkeypatch):
    """The topics that were looked for; nobody listens."""
    found = []
    monkeypatch.setattr(staging, "check_target", lambda options: found.append(options.topic))
    return found


def test_a_batch_looks_for_its_topic_first(source, columns, tmp_path, monkeypatch):
    def missing(_):
        raise LookupError

    monkeypatch.setattr(staging, "check_target", missing)
    with pytest.raises(LookupError):
        source({**GIVEN, "staging": str(tmp_path)}).writer(columns, False)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_says_once_what_it_leaves_out(source, columns, checked, tmp_path, caplog):
    made = source({**GIVEN, "checkpointLocation": str(tmp_path)})
    for _ in range(3):  # as often as there are micro-batches
        made.streamWriter(columns, False)
    assert checked == ["t"]
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [
        "option kafka.linger.ms changes nothing: it sets up a Java producer",
        "columns are not written: day",
    ]


@pytest.mark.usefixtures("checked")
def test_the_checkpoints_of_a_session(source, columns, tmp_path):
    """Those of the option `checkpointLocation` come first, in any case of its letters."""
    of_session = type("OfSession", (source,), {"checkpoints": str(tmp_path / "session")})
    of_session(GIVEN).streamWriter(columns, False)
    assert (tmp_path / "session" / "timelog").is_dir()
    of_session({**GIVEN, "CHECKPOINTLocation": str(tmp_path / "own")}).streamWriter(columns, False)
    assert (tmp_path / "own" / "timelog").is_dir()

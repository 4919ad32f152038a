"""Which offsets a micro-batch ends at: `minOffsetsPerTrigger` and `maxTriggerDelay`.

The reader is called as Spark calls it, and no Spark is started.
"""

from __future__ import annotations

import pytest

from tests.pipeline.logs import Writer

pytestmark = pytest.mark.spark


@pytest.fixture
def now(monkeypatch):
    """A monotonic clock of the reader that only a test moves."""
    from tidelog.pipeline.timelog import data_source

    moment = [0.0]
    monkeypatch.setattr(data_source.time, "monotonic", lambda: moment[0])
    return moment


@pytest.fixture
def reader(tmp_path):
    """Three offsets at least, or ten seconds; and the writer of the log, which has one record."""
    from tidelog.pipeline.timelog.data_source import TimelogDataSource

    writer = Writer(tmp_path)
    writer.append([1])
    given = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "10s", "startingOffsets": "earliest"}
    source = TimelogDataSource({"path": str(tmp_path), "upto": "log-end", **given})
    return source.streamReader(source.schema()), writer


def test_a_small_micro_batch_waits(reader, now):
    reader, writer = reader
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["t"]["0"] == 1  # the first one of a query does not wait
    writer.append([2, 3])
    now[0] = 9.9
    assert reader.latestOffset(first, limit) == first
    now[0] = 10.0
    second = reader.latestOffset(first, limit)
    assert second["t"]["0"] == 3
    writer.append([4, 5, 6])
    third = reader.latestOffset(second, limit)
    assert third["t"]["0"] == 6  # large enough
    writer.append([7])
    assert reader.latestOffset(third, limit) == third


def test_available_now_does_not_wait(reader, now):
    reader, writer = reader
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    writer.append([2])
    assert reader.latestOffset(first, limit) == first
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(first, limit)["t"]["0"] == 2

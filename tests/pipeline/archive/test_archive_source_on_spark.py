"""`spark.read.format("timelog-archive")`: what the manifests name, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import (
    DAY_MS,
    action,
    archive,
    expected,
    in_force,
    some,
    tree,
    with_logs,
)
from tidelog.pipeline.archive import manifests
from tidelog.pipeline.archive.store import FileStore
from tidelog.pipeline.errors import OK

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path):
    """An archive of three runs, each of two partitions."""
    for run in range(3):
        with_logs(tmp_path, [(0, some(40, run)), (1, some(30, 10 + run))])
        assert archive(tmp_path, run=f"r{run}") == OK
    return tmp_path


def read(spark, root, **options):
    return spark.read.format("timelog-archive").options(**options).load(str(root / "archive"))


def seen(frame):
    rows = frame.select("partition", "offset", "timestamp_ms", "key", "value").collect()
    return sorted(
        (one[0], one[1], one[2], one[3] and bytes(one[3]), one[4] and bytes(one[4])) for one in rows
    )


def wanted(root):
    return sorted(
        (key[1], one.offset, one.timestamp, one.key, one.value)
        for key, records in expected(root).items()
        for one in records
    )


def test_what_compaction_replaced_is_never_seen(spark, root, monkeypatch):
    """Not while the new files are written, not between the manifest and the deletion, not after it."""
    whole, views = wanted(root), []
    publish, delete = FileStore.publish, FileStore.delete

    def watched(real):
        def do(self, name, *data):
            if name.startswith(manifests.DIRECTORY) or not views:
                views.append(seen(read(spark, root)) == whole)
            return real(self, name, *data)

        return do

    monkeypatch.setattr(FileStore, "publish", watched(publish))
    assert action("compact", root, run="c") == OK
    monkeypatch.setattr(FileStore, "publish", publish)
    monkeypatch.setattr(FileStore, "delete", lambda self, name: False)
    with_logs(root, [(0, some(20, 99))])
    assert archive(root, run="r3") == OK
    assert action("compact", root, run="d") == OK  # as killed before it deletes
    assert len(tree(root)) > len({one["path"] for one in in_force(root)})
    assert seen(read(spark, root)) == wanted(root)
    plain = spark.read.parquet(str(root / "archive")).count()
    assert plain > len(wanted(root))  # which a reader of the directory does see
    monkeypatch.setattr(FileStore, "delete", delete)
    assert action("compact", root, run="e") == OK
    assert seen(read(spark, root)) == wanted(root)
    assert views
    assert all(views)


def test_options_and_filters_read_fewer_files(spark, root):
    assert action("compact", root, run="c") == OK
    frame = read(spark, root)
    assert frame.where("offset < 5").count() < frame.where("offset < 9").count() < frame.count()
    day = read(spark, root, pushFilters="true").where("event_date = '1970-01-01' and partition = 1")
    assert seen(day) == [one for one in wanted(root) if one[0] == 1 and one[2] in (0, 1)]
    timed = read(spark, root, **{"from": "1970-01-01T00:00Z", "to": str(DAY_MS)})
    assert seen(timed) == [one for one in wanted(root) if one[2] in (0, 1)]
    past = [one for one in wanted(root) if one[2] not in (-1, 2**63 - 1)]
    assert seen(read(spark, root, to="-2h")) == past
    bounded = "timestamp_ms >= 0 and timestamp_ms < 5 and offset < 20"
    for file in {one["path"] for one in in_force(root)}:
        if "event_date=1970-01-01" not in file:
            os.unlink(Path(root / "archive" / file))
    expected_rows = [one for one in wanted(root) if one[2] in (0, 1) and one[1] < 20]
    assert seen(read(spark, root, pushFilters="true").where(bounded)) == expected_rows
    with pytest.raises(Exception, match="is gone: the archive was compacted after this query"):
        read(spark, root).count()


def test_wrong_options_are_named(spark, root):
    for options, sentence in (
        ({"colour": "red"}, "has no option colour"),
        ({"from": "2h"}, "before or after now"),
        ({"pushFilters": "yes"}, "pushFilters is true or false"),
    ):
        with pytest.raises(Exception, match=sentence):
            read(spark, root, **options).collect()

"""A follower's directory passes Apache Kafka's DumpLogSegments, and `tidelog dump`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.storage.replicas.cluster import Cluster
from tests.storage.segment import dump_log_segments as kafka
from tests.storage.segment.test_dump_log_segments_of_many import COMPLAINTS
from tidelog.storage import files

LIVES = range(100, 110)
OFFSET = re.compile(r"^\| offset: (\d+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def followers(tmp_path_factory):
    """Directories of followers that were stopped cleanly, and the offsets of their records.

    No machine has lost power: that leaves torn snapshots, which are ignored, but are findings.
    """
    found, target = [], tmp_path_factory.mktemp("followers")
    for seed in LIVES:
        before, path = files.use(files.System()), tmp_path_factory.mktemp("life")
        cluster = Cluster(path / "cluster", seed, is_wild=True)
        try:
            cluster.live()
            number = cluster.followers[0]
            replica = cluster.replicas[number]
            replica.store.close()
            directory = target / f"life-{seed}" / "t-0"
            shutil.copytree(replica.partition.directory, directory)
            first = replica.partition.segments[0].base_offset
            offsets = [row.offset for batch in replica.model.batches for row in batch.rows]
            found.append((directory, [offset for offset in offsets if offset >= first]))
        finally:
            cluster.close()
            files.use(before)
            shutil.rmtree(path, ignore_errors=True)
    assert sum(len(offsets) for _, offsets in found) > 100
    return found


def test_tidelog_dump_finds_nothing_wrong(followers):
    directories = [str(directory) for directory, _ in followers]
    run = subprocess.run(
        [sys.executable, "-m", "tidelog", "dump", "--json", *directories],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert all(json.loads(line) for line in run.stdout.splitlines())
    assert run.stdout.count("partition times") >= len(followers)


@pytest.mark.oracle
@kafka.pytestmark[1]
def test_kafkas_tool_finds_nothing_wrong(followers):
    logs = [path for directory, _ in followers for path in sorted(directory.glob("*.log"))]
    shown = kafka.dump(logs, "--deep-iteration")
    assert not [complaint for complaint in COMPLAINTS if complaint in shown]
    assert [int(offset) for offset in OFFSET.findall(shown)] == [
        offset for _, offsets in followers for offset in offsets
    ]
    for suffix in ("index", "timeindex", "snapshot"):
        paths = [
            path
            for directory, _ in followers
            for path in sorted(directory.glob(f"*.{suffix}"))
            if path.stat().st_size
        ]
        shown = kafka.dump(paths)
        assert not [complaint for complaint in COMPLAINTS if complaint in shown], suffix

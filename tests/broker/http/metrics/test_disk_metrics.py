"""What /metrics shows of the disks and of the build."""

from __future__ import annotations

import os
import platform
from types import SimpleNamespace

from tests.broker.asking import create, produce
from tests.broker.inside import Inside
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog import __version__
from tidelog.broker.http.metrics.families import disk_metrics


def line(page, name):
    """The labels and the value of a metric that has one sample."""
    (found,) = [each for each in page.splitlines() if each.startswith(name)]
    return found.removeprefix(name)


def test_a_broker_shows_its_build_and_its_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDELOG_COMMIT", "abc123")
    with Inside(tmp_path) as broker, broker.connect() as connection:
        create(connection, "t", 1)
        produce(connection, "t", recordset.batch([Rec(1, b"v")]))
        status, page = broker.page("/metrics")
        assert status == 200
        assert line(page, "tidelog_build_info") == (
            f'{{commit="abc123",python="{platform.python_version()}",version="{__version__}"}} 1.0'
        )
        directory = f'{{directory="{tmp_path}"}} '
        volume = os.statvfs(tmp_path)
        total = line(page, "tidelog_log_dir_total_bytes").removeprefix(directory)
        assert float(total) == volume.f_blocks * volume.f_frsize
        free = line(page, "tidelog_log_dir_free_bytes").removeprefix(directory)
        assert 0 < float(free) <= float(total)
        assert line(page, "tidelog_log_dir_full") == directory + "0.0"
        (partition,) = broker.node.store.opened()
        partition.state.is_full = True
        _, page = broker.page("/metrics")
        assert line(page, "tidelog_log_dir_full") == directory + "1.0"


def test_each_volume_is_asked_once_and_one_that_is_gone_is_left_out(tmp_path, monkeypatch):
    asked = []
    real = os.statvfs

    def statvfs(path):
        asked.append(path)
        return real(path)

    monkeypatch.setattr(disk_metrics.os, "statvfs", statvfs)
    gone = tmp_path / "gone"
    store = SimpleNamespace(log_dirs=(tmp_path, gone))
    scrape = SimpleNamespace(services=SimpleNamespace(store=store), shared={})
    shown = {
        family.name: list(family.read(scrape))
        for family in disk_metrics.FAMILIES
        if family.name.endswith("_bytes")
    }
    assert asked == [tmp_path, gone]
    assert [labels for samples in shown.values() for labels, _ in samples] == 2 * [(str(tmp_path),)]

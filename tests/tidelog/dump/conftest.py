"""A log directory that storage wrote, for the tests of `tidelog dump`."""

from __future__ import annotations

import shutil
import uuid

import pytest

from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

HEADERS = (("h", b"x"), ("bytes", b"\xff"), ("null", None))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A log directory that storage wrote: segments, everything beside them, and checkpoints."""
    path = tmp_path_factory.mktemp("written")
    config = TopicConfig(segment_bytes=2000, index_interval_bytes=200)
    store = LogStore([path], default_config=config)
    store.open(0)
    partition = store.create_partition("t", uuid.UUID(int=7), 0, config, 0)
    sequence = 0
    for i in range(60):
        records = [
            Record(n, 5000 + i - n, b"k%d" % i, b"v%d" % n, encoded(HEADERS))
            for n in range(1 + i % 3)
        ]
        data = build(
            records,
            compression=(0, 1, 3)[i % 3],
            producer_id=4,
            producer_epoch=0,
            base_sequence=sequence,
        )
        partition.append(data, now_ms=1000 + i // 2, produce_version=9)
        sequence += len(records)
    store.close()
    return path


def encoded(headers):
    return tuple((name.encode(), value) for name, value in headers)


@pytest.fixture
def copy(written, tmp_path):
    """A copy of it to break."""
    shutil.copytree(written, tmp_path / "data")
    return tmp_path / "data"

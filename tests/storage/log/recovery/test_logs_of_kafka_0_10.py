"""Logs written by a real Kafka 0.10.2.2 are served, searched and continued (see tests/vectors)."""

import shutil
from pathlib import Path

import pytest

from tests.storage.conftest import kill, records_of
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

VECTORS = Path(__file__).parents[3] / "vectors" / "kafka-0.10.2.2"
NAMES = sorted(path.name for path in VECTORS.iterdir() if path.is_dir())
STAMPS = {  # first and last, as the broker's own consumer read them back
    "f-0.10.2-LogAppendTime-none-c0901-0": (1795228755442, 1795228755489),
    "f-0.10.2-LogAppendTime-gzip-c0901-0": (1795228765583, 1795228765623),
    "f-0.10.2-LogAppendTime-snappy-c0901-0": (1795228775476, 1795228775502),
    "f-0.10.2-LogAppendTime-lz4-c0901-0": (1795228814264, 1795228814280),
}


@pytest.fixture
def store(tmp_path):
    store = LogStore([tmp_path], default_config=TopicConfig(index_interval_bytes=1000))
    yield store
    kill(store)


def contents(partition):
    return [each[:4] for each in records_of(partition, 3000)]


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_kafkas(name, tmp_path, store):
    shutil.copytree(VECTORS / name, tmp_path / name)
    before = {p.name: p.read_bytes() for p in (tmp_path / name).glob("*.log")}
    store.open(0)
    partition = store.partition(name[:-2], 0)
    found = contents(partition)
    assert [r[0] for r in found] == list(range(200))
    for i, (_, time, key, value) in enumerate(found):
        assert key == b"k%d" % i
        assert value == b"value-%d-" % i + b"abcdefghij" * (i % 30)
        if "c0102" in name:
            assert time == 1500000000000 + 1000 * i
        elif name not in STAMPS:
            assert time == -1
    if name in STAMPS:
        assert (found[0][1], found[-1][1]) == STAMPS[name]
    for wanted in (-(10**9), 0, 1500000000000, 1500000077001, 1795228765600, 2 * 10**12):
        naive = next(((o, t) for o, t, *_ in found if t != -1 and t >= wanted), None)
        assert partition.reader.find_by_time(wanted, upper_offset=200) == naive
    for path in (tmp_path / name).glob("*.log"):
        assert path.read_bytes() == before[path.name], "opening a copy changed it"


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_kafkas_goes_on(name, tmp_path, store):
    shutil.copytree(VECTORS / name, tmp_path / name)
    now = max(5, STAMPS.get(name, (0, 0))[1] - 5)
    store.open(now)
    data = build([Record(0, 1600000000000, b"k", b"new", ())])
    appended = store.partition(name[:-2], 0).append(data, now_ms=now, produce_version=9)
    assert appended.base_offset == 200
    store.close()
    store.open(now)
    partition = store.partition(name[:-2], 0)
    assert partition.reader.append_time_of(199) is None
    # Kafka's stamps are append times too: ours does not fall behind them.
    assert partition.reader.append_time_of(200) == max(5, STAMPS.get(name, (0, 0))[1])
    assert len(contents(partition)) == 201

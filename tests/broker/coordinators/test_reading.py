"""Reading the state of a coordinator: what fails its checksum is left out and logged, or refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.broker.coordinators.reading import batches_of
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import Record, build, scan
from tidelog.storage.directory.store import LogStore

COUNT, BROKEN = 5, 2


@pytest.fixture
def partition(tmp_path):
    """A log of five batches with one record each; a bit of the third one's value has flipped."""
    store = LogStore([tmp_path], default_config=TopicConfig())
    store.open(0)
    try:
        log = store.create_partition("__consumer_offsets", UUID(int=7), 0, TopicConfig(), 0)
        for number in range(COUNT):
            log.append(build([Record(0, 5, b"k", b"v%d" % number)]), now_ms=5, produce_version=9)
        path = log.segments[0].path
        data = bytearray(path.read_bytes())
        broken = list(scan(data))[BROKEN]
        at = data.index(b"v%d" % BROKEN, broken.position)
        data[at] ^= 1
        path.write_bytes(data)
        yield log
    finally:
        store.close()


def values(batches):
    return [bytes(record.value) for _, records in batches for record in records]


def test_a_broken_batch_is_left_out_and_logged(partition, caplog):
    found = values(batches_of(partition, partition.log_end_offset, skips_broken=True))
    assert found == [b"v%d" % number for number in range(COUNT) if number != BROKEN]
    (line,) = caplog.records
    assert (line.levelname, line.log, line.offsets) == ("ERROR", "__consumer_offsets-0", "2 to 2")
    assert "fails its CRC" in line.reason


def test_a_broken_batch_is_refused_where_it_may_hold_a_decision(partition):
    with pytest.raises(CorruptMessage, match=r"__consumer_offsets-0, offsets 2 to 2: .* CRC"):
        values(batches_of(partition, partition.log_end_offset))

"""Transaction markers: Kafka's bytes, and what is read from them."""

import pytest

from tidelog.protocol.records.batch import Record, build, scan
from tidelog.protocol.records.markers import Marker, build_marker, read_marker

# kafka-clients 3.9.1: offset 0, leader epoch -1, time 10^12, pid 1000, epoch 3, coordinator epoch 0.
COMMIT = (
    "000000000000000000000042ffffffff02ef109234003000000000000000e8d4a51000000000e8d4a510000000"
    "0000000003e80003ffffffff000000012000000008000000010c00000000000000"
)
ABORT = (
    "000000000000000000000042ffffffff021b2e447c003000000000000000e8d4a51000000000e8d4a510000000"
    "0000000003e80003ffffffff000000012000000008000000000c00000000000000"
)


@pytest.mark.parametrize(("is_commit", "wanted"), [(True, COMMIT), (False, ABORT)])
def test_a_marker_has_kafkas_bytes(is_commit, wanted):
    marker = Marker(is_commit, 0)
    data = build_marker(1000, 3, marker, 10**12)
    assert data.hex() == wanted
    assert len(data) == 78
    assert read_marker(data, scan(data)[0]) == marker


def control(key, value):
    data = build([Record(5, 1, key, value)], producer_id=1, producer_epoch=0, is_control=True)
    return read_marker(data, scan(data)[0])


def test_the_coordinators_epoch_is_read():
    assert control(b"\0\0\0\1", b"\0\0\0\0\0\7") == Marker(True, 7)
    assert control(b"\0\0\0\0", b"\0\0\xff\xff\xff\xff") == Marker(False, -1)


def test_without_a_whole_value_the_coordinators_epoch_is_unknown():
    assert control(b"\0\0\0\1", b"") == Marker(True, -1)
    assert control(b"\0\0\0\0", None) == Marker(False, -1)


@pytest.mark.parametrize("key", [b"\0\0\0\2", b"\0\0\0\6", b"\0", None])
def test_other_control_records_are_no_markers(key):
    assert control(key, b"\0\0\0\0\0\7") is None

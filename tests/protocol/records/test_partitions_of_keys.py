"""Where keys go, judged by kafka-python's translation of Kafka's murmur2."""

from __future__ import annotations

import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from tidelog.protocol.records import kernels

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=40)


def columns_of(keys):
    ends, valid, data = [0], bytearray(len(keys) // 8 + 1), b""
    for row, key in enumerate(keys):
        if key is not None:
            valid[row >> 3] |= 1 << (row & 7)
            data += key
        ends.append(len(data))
    return array.array("i", ends).tobytes(), bytes(valid), data


@given(keys=KEYS, count=st.integers(min_value=1, max_value=1000))
def test_keys_go_where_the_java_clients_send_them(keys, count):
    found = array.array("i", kernels.partitions_of(*columns_of(keys), len(keys), count))
    assert list(found) == [
        -1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys
    ]


def test_what_kafkas_own_tests_expect():
    keys = [
        b"21",
        b"foobar",
        b"a-little-bit-long-string",
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
    ]
    hashes = [-973932308, -790332482, -985981536, -58897971]
    found = array.array("i", kernels.partitions_of(*columns_of(keys), 4, 1009))
    assert list(found) == [(one & 0x7FFFFFFF) % 1009 for one in hashes]


def test_columns_that_lie_are_refused():
    ends, valid, data = columns_of([b"a", b"b"])
    with pytest.raises(ValueError, match="shorter than its rows"):
        kernels.partitions_of(ends, valid, data, 3, 5)
    with pytest.raises(ValueError, match="do not ascend"):
        kernels.partitions_of(ends, valid, b"a", 2, 5)
    with pytest.raises(ValueError, match="do not go to 0 partitions"):
        kernels.partitions_of(ends, valid, data, 2, 0)

"""Records of __transaction_state: known bytes, both versions read, and what cannot be read."""

from __future__ import annotations

import pytest

from tidelog.protocol import transaction_log as records
from tidelog.protocol.transaction_log import Metadata, State
from tidelog.protocol.wire import DecodeError, EncodeError

PARTITIONS = frozenset({("b", 3), ("b", 1), ("a", 0)})
OPEN = Metadata(1000, 3, 60_000, State.ONGOING, PARTITIONS, 5, 4, transaction_version=2)


def test_known_bytes():
    assert records.key("id").hex() == "000000026964"
    empty = Metadata(1000, 3, 60_000, State.EMPTY, frozenset(), 5)
    assert records.value(empty).hex() == (
        "0001" + "00000000000003e8" + "0003" + "0000ea60" + "00" + "00"
        "0000000000000005" + "ffffffffffffffff" + "00"
    )
    assert records.value(OPEN).hex() == (
        "0001" + "00000000000003e8" + "0003" + "0000ea60" + "01"
        "03" + "0261" + "02" + "00000000" + "00" + "0262" + "03" + "00000001" + "00000003" + "00"
        "0000000000000005" + "0000000000000004" + "01" + "0202" + "0002"
    )


def test_version_0_is_read_as_kafka_3_9_writes_it():
    ongoing = bytes.fromhex(
        "0000" + "00000000000003e8" + "0003" + "0000ea60" + "01"
        "00000001" + "000162" + "00000002" + "00000001" + "00000003"
        "0000000000000005" + "0000000000000004"
    )
    expected = OPEN._replace(partitions=frozenset({("b", 1), ("b", 3)}), transaction_version=0)
    assert records.read_value(ongoing) == expected
    empty = bytes.fromhex(
        "0000" + "00000000000003e8" + "0003" + "0000ea60" + "00" + "ffffffff"
        "0000000000000005" + "ffffffffffffffff"
    )
    assert records.read_value(empty) == Metadata(1000, 3, 60_000, updated_ms=5)


@pytest.mark.parametrize("state", State)
def test_what_is_written_is_read_again_but_for_the_last_epoch(state):
    for more in ({}, {"previous_id": 8, "next_id": 2**62, "last_epoch": 7}):
        metadata = OPEN._replace(state=state, **more)
        read = records.read_value(records.value(metadata))
        expected = metadata._replace(last_epoch=-1)
        if state is State.EMPTY:
            expected = expected._replace(partitions=frozenset())
        assert read == expected
        assert isinstance(read.state, State)


def test_the_words_of_the_states_are_those_of_kafka():
    assert [state.word for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_other_keys_are_skipped_and_broken_ones_are_errors():
    assert records.read_key(records.key("ünï")) == "ünï"
    assert records.read_key(b"\0\1\0\2id") is None
    for broken in (b"", b"\0", b"\xff\xff\0\2id", b"\0\0\0\3id"):
        with pytest.raises(DecodeError):
            records.read_key(broken)
    with pytest.raises(EncodeError):
        records.key("x" * 32_768)


def test_values_that_cannot_be_read_are_errors():
    good = records.value(OPEN)
    for broken in (b"", b"\0\2" + good[2:], b"\xff\xff" + good[2:], good[:20]):
        with pytest.raises(DecodeError):
            records.read_value(broken)
    unknown_state = bytearray(good)
    unknown_state[16] = 8
    with pytest.raises(DecodeError):
        records.read_value(bytes(unknown_state))

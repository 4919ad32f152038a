"""Appends that may not block: they store at once, or raise WouldBlock and store nothing."""

import pytest

from tidelog.protocol.errors import CorruptMessage, MessageTooLarge
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log import appender
from tidelog.storage.would_block import NeedsMemory, WouldBlock

GZIP = 1


def batch(size, codec=GZIP, **more):
    return build([Record(0, 5, None, bytes(size))], compression=codec, **more)


def append(log, data, **more):
    return log.partition.append(data, now_ms=7, produce_version=9, **more)


@pytest.fixture
def log(make_log):
    return make_log().create()


@pytest.mark.parametrize(
    ("codec", "magic", "version"),
    [(1, 1, 2), (2, 1, 2), (3, 1, 2), (1, 2, 9), (2, 2, 9), (3, 2, 9), (4, 2, 9)],
)
def test_what_unpacks_to_much_would_block_and_is_not_stored(
    log, monkeypatch, codec, magic, version
):
    monkeypatch.setattr(appender, "SHORT_UNPACK_BYTES", 50_000)
    data = batch(60_000, codec, magic=magic)
    with pytest.raises(WouldBlock):
        log.partition.append(data, now_ms=7, produce_version=version, may_block=False)
    assert log.partition.log_end_offset == 0
    assert log.partition.last_append_time is None
    assert log.partition.append(data, now_ms=7, produce_version=version).last_offset == 0
    assert append(log, batch(40_000, codec), may_block=False).last_offset == 1


def test_an_idempotent_batch_that_would_block_leaves_no_sequence(log, monkeypatch):
    monkeypatch.setattr(appender, "SHORT_UNPACK_BYTES", 50_000)
    data = batch(60_000, producer_id=3, producer_epoch=0, base_sequence=0)
    with pytest.raises(WouldBlock):
        append(log, data, may_block=False)
    appended = append(log, data)
    assert not appended.duplicate
    assert append(log, data, may_block=False).duplicate  # nothing is unpacked for it


def test_what_is_broken_is_refused_at_once(log):
    data = bytearray(batch(1000))
    data[-3] ^= 0xFF
    with pytest.raises(CorruptMessage):
        append(log, bytes(data), may_block=False)


def test_what_unpacks_to_more_than_the_topic_allows_is_refused_where_it_may_block(make_log):
    log = make_log(max_message_bytes=600_000).create()
    data = batch(70 << 20)
    with pytest.raises(WouldBlock):
        append(log, data, may_block=False)
    with pytest.raises(MessageTooLarge, match=f"more than {64 << 20} bytes"):
        append(log, data)


def test_max_decompressed_message_bytes_is_the_limit_where_it_is_smaller(make_log):
    log = make_log(max_decompressed_message_bytes=50_000).create()
    for may_block in (False, True):
        with pytest.raises(MessageTooLarge, match="more than 50000 bytes"):
            append(log, batch(50_100), may_block=may_block)
        append(log, batch(40_000), may_block=may_block)


def test_a_caller_with_less_memory_than_the_topic_allows_asks_again(log):
    data = batch(60_000)
    with pytest.raises(NeedsMemory):
        append(log, data, unpack_limit=50_000)
    assert append(log, data, unpack_limit=70_000).last_offset == 0


def test_a_log_that_has_to_be_read_first_would_block(log):
    append(log, batch(10))
    log.close()
    log.open(8)
    with pytest.raises(WouldBlock):
        append(log, batch(10), may_block=False)
    log.partition.appender.read_for_appends()
    assert append(log, batch(10), may_block=False).last_offset == 1

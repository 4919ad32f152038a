"""Headers that lie on disk: what comes before is served, then CORRUPT_MESSAGE and one line of the log."""

from __future__ import annotations

import struct

import pytest

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import scan

COUNT, BROKEN = 50, 20
LENGTH_AT, MAGIC_AT = 8, 16


@pytest.fixture
def log(make_log):
    log = make_log().create()
    for number in range(COUNT):
        log.append([number], now=number)
    return log


def overwrite(log, field_at, data):
    """Writes into the header of one batch, behind the broker's back; returns where the batch is."""
    path = log.partition.segments[0].path
    batch = list(scan(path.read_bytes()))[BROKEN]
    with path.open("r+b") as file:
        file.seek(batch.position + field_at)
        file.write(data)
    return batch.position


def read_all(log, max_bytes):
    """The offsets that a consumer gets, and the error; it asks on at the end of what it got."""
    offsets = []
    for _ in range(COUNT + 1):
        try:
            buffers = log.read(len(offsets), max_bytes).buffers
        except CorruptMessage as error:
            return offsets, error.message
        whole = [batch for data in buffers for batch in scan(data)]
        assert whole, "no whole batch in the middle of the log"
        offsets += [batch.base_offset for batch in whole]
    raise AssertionError("no error")


LIES = {
    "a length beyond the end": (LENGTH_AT, struct.pack(">i", 1 << 30)),
    "a length beyond all files": (LENGTH_AT, struct.pack(">i", 2**31 - 1)),
    "a negative length": (LENGTH_AT, struct.pack(">i", -1)),
    "no length": (LENGTH_AT, struct.pack(">i", 0)),
    "an unknown magic": (MAGIC_AT, b"\x7f"),
}


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("lie", LIES)
def test_what_comes_before_is_served_and_then_an_error(log, lie, max_bytes, caplog):
    position = overwrite(log, *LIES[lie])
    offsets, message = read_all(log, max_bytes)
    assert offsets == list(range(BROKEN))
    assert f" at {position}" in message
    for _ in range(3):
        with pytest.raises(CorruptMessage):
            log.read(BROKEN, max_bytes)
    (line,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert line.getMessage() == "the log is corrupt"
    assert f" at {position}" in line.reason


def test_what_follows_a_batch_that_is_too_short_is_an_error(log):
    """The batch itself is the consumer's to check: its checksum no longer fits."""
    overwrite(log, LENGTH_AT, struct.pack(">i", 60))
    offsets, message = read_all(log, 1)
    assert offsets == list(range(BROKEN + 1))
    assert "has a broken batch at" in message

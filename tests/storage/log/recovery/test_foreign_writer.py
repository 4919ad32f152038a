"""Kafka wrote to a log of ours and was killed: nobody knows when what it appended was appended."""

from __future__ import annotations

import pytest

from tests.oracle import recordset
from tests.oracle.recordset import Rec

PREALLOCATED = 10 << 20


@pytest.fixture(params=["flushed", "killed"])
def ours(request, log):
    """Offsets 0 to 2 are flushed, 3 and 4 appended after, and we stop in order or are killed."""
    for now in (1_000, 2_000, 3_000):
        log.append([7], now=now)
    log.store.checkpoint()
    for now in (4_000, 5_000):
        log.append([8], now=now)
    if request.param == "flushed":
        log.store.checkpoint()
    log.is_flushed = request.param == "flushed"
    log.crash()
    return log


def path_of(log, base, suffix):
    return log.directory / f"{base:020}{suffix}"


def append(log, base, offset):
    """Append as Kafka does, which knows of no append times."""
    data = recordset.batch([Rec(9, b"theirs")], base_offset=offset)
    with path_of(log, base, ".log").open("ab") as file:
        file.write(data)


def open_indexes(log, base):
    """Give them their full size, as Kafka does with those of the last segment."""
    for suffix in (".index", ".timeindex"):
        path = path_of(log, base, suffix)
        with path.open("ab") as file:
            file.truncate(PREALLOCATED)


def appends(log):
    open_indexes(log, 0)
    append(log, 0, 5)


def rolls(log):
    append(log, 0, 5)
    append(log, 6, 6)
    open_indexes(log, 6)


@pytest.mark.parametrize("kafka", [appends, rolls])
def test_what_kafka_appended_has_no_append_time(ours, kafka):
    kafka(ours)
    ours.open()
    known = 5 if ours.is_flushed else 3
    end = ours.partition.log_end_offset
    times = [ours.partition.reader.append_time_of(offset) for offset in range(end)]
    assert times == [1_000, 2_000, 3_000, 4_000, 5_000][:known] + [None] * (end - known)
    ours.append([9], now=100)
    assert ours.partition.reader.append_time_of(end) == 5_000, "append times do not go back"


def test_what_we_appended_keeps_its_append_time(ours):
    """Killed, we leave no index that ends with zeros."""
    ours.open()
    assert [ours.partition.reader.append_time_of(o) for o in range(5)] == [
        1_000,
        2_000,
        3_000,
        4_000,
        5_000,
    ]


def test_an_index_with_entries_of_ours_is_no_sign_of_kafka(log):
    for now in range(1_000, 1_020):
        log.append([0], now=now, values=[b"x" * 3_000])
    log.store.checkpoint()
    log.append([0], now=2_000)
    log.crash()
    assert path_of(log, 0, ".index").stat().st_size > 0
    log.open()
    assert log.partition.reader.append_time_of(20) == 2_000


@pytest.mark.parametrize(
    "content", [bytes(size) for size in range(1, 8)] + [b"\1\2\3", b"\xff" * 7]
)
@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_torn_index_is_made_anew_and_shows_nothing(log, content, stop):
    for now in (1_000, 2_000):
        log.append([0], now=now)
    log.store.checkpoint()
    getattr(log, stop)()
    path_of(log, 0, ".index").write_bytes(content)
    log.open()
    assert [log.partition.reader.append_time_of(offset) for offset in (0, 1)] == [1_000, 2_000]
    assert len(log.contents()) == 2

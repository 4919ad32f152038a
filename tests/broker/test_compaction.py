"""Compaction by a running broker: rounds, the process that does the work, what happens to one that dies."""

import os

import pytest

from protocol.records.batch import records, scan
from tests.broker import asking
from tests.broker.conftest import healthy
from tests.oracle.recordset import Rec, batch

NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    with healthy(directory, {"clock": "manual", "log.cleaner.backoff.ms": MINUTE_MS}) as subject:
        yield subject


@pytest.fixture
def connection(manual):
    manual.clock.freeze(NEW_YEAR_MS)
    with manual.connect() as connection:
        yield connection


def compacted(connection, **more):
    name = asking.new_name()
    asking.create(
        connection,
        name,
        **{
            "cleanup_policy": "compact",
            "segment_bytes": "300",
            "file_delete_delay_ms": "0",
            **more,
        },
    )
    return name


def fill(connection, name, count, keys=4, first=0):
    for number in range(first, first + count):
        record = Rec(1_000 + number, b"v%d" % number, b"k%d" % (number % keys))
        assert asking.produce(connection, name, batch([record]))["error_code"] == 0


def survivors(connection, name):
    """(offset, time, key, value) of all there is, read as a consumer reads."""
    found, offset = [], 0
    while True:
        got = asking.fetch(connection, name, offset)
        assert got["error_code"] == 0, got
        batches = scan(got["records"] or b"")
        if not batches:
            return found
        found += [(r.offset, r.timestamp, r.key, r.value) for r in records(got["records"])]
        offset = batches[-1].last_offset + 1


def expected(count, sealed, keys=4):
    """What is left of `fill` when it was cleaned up to an offset."""
    last = {number % keys: number for number in range(sealed)}
    left = [*sorted(last.values()), *range(sealed, count)]
    return [(n, 1_000 + n, b"k%d" % (n % keys), b"v%d" % n) for n in left]


def leftovers(broker, name):
    names = os.listdir(broker.log_dir / f"{name}-0")
    return [each for each in names if each.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]


def test_the_last_record_of_each_key_stays(manual, connection):
    name = compacted(connection)
    fill(connection, name, 40)
    (told,) = manual.compact(name)
    assert (told["topic"], told["partition"], told["asked"]) == (name, 0, True)
    sealed = told["first_dirty_offset"]
    assert 30 < sealed < 40
    assert survivors(connection, name) == expected(40, sealed)
    assert told["bytes_written"] < told["bytes_read"]
    assert asking.list_offset(connection, name, 1_002)["offset"] == sealed - 4
    manual.sweep()
    assert leftovers(manual, name) == []
    fill(connection, name, 40, first=40)
    (told,) = manual.compact(name)
    assert survivors(connection, name) == expected(80, told["first_dirty_offset"])


def test_rounds_follow_the_clock(manual, connection):
    name = compacted(connection)
    fill(connection, name, 40)
    manual.clock.step(MINUTE_MS + 1)
    assert len(survivors(connection, name)) < 10
    assert manual.compact(name) == []

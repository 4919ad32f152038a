"""Scrubbing a log: what has gone bad is found wherever it is, and nothing else is."""

from __future__ import annotations

import itertools

import pytest

from tidelog.protocol.records.batch import Compression, scan
from tidelog.storage.log import scrubber
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.scrubber import Scrubbing
from tidelog.storage.segment.scrub import ScrubPosition, scrub

BATCHES = 12
LEADER_EPOCH = range(12, 16)  # of format 2: outside the checksum, and nothing beside it tells
FORMATS = {
    "format 0": {"magic": 0},
    "format 0, gzip": {"magic": 0, "compression": Compression.GZIP},
    "format 1": {"magic": 1},
    "format 1, lz4": {"magic": 1, "compression": Compression.LZ4},
    "format 2": {"magic": 2},
    "format 2, zstd": {"magic": 2, "compression": Compression.ZSTD},
}


@pytest.fixture(params=FORMATS)
def log(make_log, request):
    """Three batches with three records each in every closed segment, one in the active one."""
    log = make_log(segment_bytes=1 << 20).create()
    for number in range(BATCHES + 1):
        if number and number % 3 == 0:
            with log.partition.state.append_lock:
                roll(log.partition.state)
        log.append([number] * 3, now=number, **FORMATS[request.param])
    assert len(log.partition.segments) == BATCHES // 3 + 1
    return log


def scrubbed(log, most_bytes=1 << 20):
    """What is found in all closed segments, and how many bytes were read."""
    found, read_bytes = [], 0
    reader = log.partition.scrubber
    scrubbing = reader.first(0)
    while scrubbing is not None:
        result = reader.slice(scrubbing, most_bytes)
        assert result is not None
        found += [(scrubbing.segment.base_offset, each) for each in result.bad]
        read_bytes += result.read_bytes
        if result.next is None:
            scrubbing = reader.first(scrubbing.segment.base_offset + 1)
        else:
            scrubbing = scrubbing._replace(place=result.next)
    return found, read_bytes


def middle_batch(log):
    """The second segment's file, and the place of its second batch."""
    path = log.partition.segments[1].path
    batch = list(scan(path.read_bytes()))[1]
    return path, batch.position, batch.size


def flip(path, position, bit=0):
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


@pytest.mark.parametrize("most_bytes", [1, 150, 1 << 20])
def test_a_good_log_is_read_whole_but_for_its_active_segment(log, most_bytes):
    closed = log.partition.segments[:-1]
    flip(log.partition.segments[-1].path, 20)  # a writer may be at work there
    assert scrubbed(log, most_bytes) == ([], sum(each.tail.size for each in closed))


def test_a_bit_that_is_flipped_in_any_byte_is_found(log):
    path, start, size = middle_batch(log)
    is_newest = list(scan(path.read_bytes()))[1].magic == 2
    missed = set()
    for at, bit in zip(range(size), itertools.cycle(range(8)), strict=False):
        flip(path, start + at, bit)
        found, _ = scrubbed(log)
        if not found:
            missed.add(at)
        else:
            assert {base for base, _ in found} == {log.partition.segments[1].base_offset}
            assert found[0][1].position >= start
        flip(path, start + at, bit)
    assert missed == (set(LEADER_EPOCH) if is_newest else set())
    assert scrubbed(log)[0] == []


def test_what_follows_a_batch_with_a_wrong_checksum_is_read(log):
    path = log.partition.segments[1].path
    batches = list(scan(path.read_bytes()))
    for batch in (batches[0], batches[2]):
        flip(path, batch.position + batch.size - 1)
    found, _ = scrubbed(log, 1)
    assert [(each.position, each.reason) for _, each in found] == [
        (batches[0].position, "fails its CRC"),
        (batches[2].position, "fails its CRC"),
    ]


def test_nothing_is_read_behind_an_impossible_length_and_other_segments_are(log):
    path, start, _ = middle_batch(log)
    flip(path, start + 8, 6)  # the length
    flip(log.partition.segments[2].path, 30)
    found, _ = scrubbed(log)
    assert [base for base, _ in found] == [9, 18]
    assert found[0][1].position == start
    assert "cannot be read from here on" in found[0][1].reason


def test_a_file_that_is_shorter_than_it_was_is_found(log):
    path, start, size = middle_batch(log)
    with path.open("r+b") as file:
        file.truncate(start + size - 2)
    found, _ = scrubbed(log)
    assert [(base, each.position) for base, each in found] == [(9, start)]
    assert "ends before its last batch" in found[0][1].reason


def test_a_segment_that_is_missing_is_found(log):
    path, _, _ = middle_batch(log)
    log.partition.segments[1].rest()
    path.unlink()
    found, _ = scrubbed(log)
    assert [(base, each.reason) for base, each in found] == [
        (9, "cannot be read: No such file or directory")
    ]


def test_a_segment_that_is_deleted_meanwhile_is_no_damage(log):
    reader = log.partition.scrubber
    scrubbing = reader.first(0)
    result = reader.slice(scrubbing, 1)
    assert result.next is not None
    log.partition.retainer.delete_records_before(9)
    log.partition.retainer.apply_retention(0)
    assert reader.first(0).segment.base_offset == 9, "the first segment is gone"
    assert reader.slice(scrubbing._replace(place=result.next), 1) is None


def test_a_log_that_is_cut_meanwhile_is_no_damage(log):
    reader = log.partition.scrubber
    scrubbing = reader.first(9)
    log.partition.truncater.truncate_to(12, below_high_watermark=True)
    assert reader.slice(scrubbing, 1) is None


def test_what_is_read_while_the_log_is_cut_is_not_judged(log, monkeypatch):
    def cut_meanwhile(*asked):
        flip(asked[0].path, 30)
        found = scrub(*asked)
        assert found.bad
        log.partition.state.begin_generation()
        return found

    monkeypatch.setattr(scrubber, "scrub", cut_meanwhile)
    assert log.partition.scrubber.slice(log.partition.scrubber.first(9), 1 << 20) is None


def test_a_log_that_is_offline_is_not_read(log):
    scrubbing = Scrubbing(log.partition.segments[0], ScrubPosition(0, 0))
    log.partition.state.is_stopped = True
    assert log.partition.scrubber.slice(scrubbing, 1) is None

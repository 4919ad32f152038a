"""What a log knows of its times and producers after a truncation, without reading all of it again."""

import random

import pytest

from tidelog.storage import files
from tidelog.storage.log.producers import recovered_producers
from tidelog.storage.log.producers.recovered_producers import load_producers
from tidelog.storage.segment import indexed_log
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.survey import catch_up


def facts(producers):
    return {
        each.producer_id: (each.epoch, each.batches, each.last_append_time_ms) for each in producers
    }


def read_anew(partition):
    """The times of the last segment and the producers, as the log alone says."""
    state, active = partition.state, partition.state.active
    segment = Segment(state.directory, active.base_offset, active.tail)
    segment.has_true_indexes = segment.is_true = True
    segment.known_times[0].created_clock = active.known_times[0].created_clock
    catch_up(segment)
    producers = load_producers(
        state.directory,
        partition.segments,
        state.producer_id_expiration_ms,
        state.deletion_ms,
        log_start_offset=0,
    )
    return segment.times, facts(producers)


def produce(log, rng):
    producer = rng.randrange(4)
    known = log.partition.state.read_producers().get(producer)
    epoch, sequence = (known.epoch, known.next_sequence) if known else (0, 0)
    if rng.random() < 0.05:
        epoch, sequence = epoch + 1, 0
    times = [rng.randrange(-1, 99) for _ in range(rng.randrange(1, 4))]
    written = {}
    if producer:
        written = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    log.append(times, now=log.now + rng.randrange(3), **written)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_log_says(make_log, monkeypatch, seed):
    monkeypatch.setattr(indexed_log, "_REMEMBER_BYTES", 500)
    monkeypatch.setattr(recovered_producers, "_CUT_BYTES", (200, 1000, 100_000))
    rng = random.Random(seed)
    log = make_log(segment_bytes=6000, index_interval_bytes=100).create()
    for _ in range(4):
        for _ in range(rng.randrange(1, 90)):
            produce(log, rng)
        end = rng.randrange(max(0, log.partition.log_end_offset - 30), log.partition.log_end_offset)
        log.partition.truncater.truncate_to(end, below_high_watermark=True)
        known = log.partition.state.producers
        times, producers = read_anew(log.partition)
        assert log.partition.state.active.times == times
        assert known is None or facts(known) == producers
        if rng.random() < 0.3:
            log.crash()
            log.open()


def test_little_of_the_log_is_read_for_it(make_log, monkeypatch):
    """Only the last batches are cut; a follower of a long log does so while producers wait."""
    monkeypatch.setattr(indexed_log, "_REMEMBER_BYTES", 20_000)
    monkeypatch.setattr(recovered_producers, "_CUT_BYTES", (5_000,))
    log = make_log().create()
    for i in range(3_000):
        log.append([i], now=i, producer_id=7, producer_epoch=0, base_sequence=i)
    read, read_at = [0], files.read_at

    def counted(descriptor, size, position):
        read[0] += size
        return read_at(descriptor, size, position)

    monkeypatch.setattr(files, "read_at", counted)
    size = log.partition.size
    log.partition.truncater.truncate_to(2_990, below_high_watermark=True)
    log.partition.appender.read_for_appends()
    assert size > 200_000
    assert read[0] < 100_000, read
    assert log.partition.state.producers.get(7).last_sequence == 2_989
    log.append([1], now=3_000, producer_id=7, producer_epoch=0, base_sequence=2_990)


def test_a_restarted_follower_reads_only_what_was_not_saved(make_log, monkeypatch):
    log = make_log().create()
    log.partition.roles.lead(1)
    for i in range(3_000):
        log.append([i], now=i)
        if i == 2_900:
            log.partition.state.advance_high_watermark(2_901)
            log.partition.flusher.flush()
            log.partition.flusher.save_times()
    log.crash()
    walked, walk = [], Segment.walk

    def counted(segment, *asked):
        for found in walk(segment, *asked):
            walked.append(found)
            yield found

    log.open()
    monkeypatch.setattr(Segment, "walk", counted)
    log.partition.roles.follow(2, high_watermark=2_950)
    assert len(walked) < 200
    assert log.partition.max_event_time == 2_949
    log.partition.state.advance_high_watermark(2_960)
    assert log.partition.max_event_time == 2_959

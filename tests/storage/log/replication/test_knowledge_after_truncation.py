"""What a log knows of its times and producers after a truncation, without reading all of it again."""

from tidelog.storage import files
from tidelog.storage.log.producers import recovered_producers
from tidelog.storage.segment import log_times
from tidelog.storage.segment.segment import Segment


def test_little_of_the_log_is_read_for_it(make_log, monkeypatch):
    """Only the last batches are cut; a follower of a long log does so while producers wait."""
    monkeypatch.setattr(log_times, "_REMEMBER_BYTES", 20_000)
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
            log.partition.state.saved_times.save_covered(durable=True)
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

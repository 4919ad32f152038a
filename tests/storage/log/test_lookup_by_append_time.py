"""Lookups by append time where times went back, and beside appends; else see tests/storage/log_model."""

import random
import threading

from tests.broker.subject import eventually
from tidelog.storage.log import lookup
from tidelog.storage.log.lookup import AppendedSince


def test_a_known_way_back_leaves_what_is_unknown_before_it_in_doubt(make_log):
    """A clock was ahead, its append times were lost, and the operator let them go back."""
    log = make_log().create()
    log.append([5], now=1000)
    log.append([5], now=900_000)
    log.partition.append_clock.reset(2000)
    log.append([5], now=2000)
    log.append([5], now=7000)
    before, after = log.partition.segments
    before.append_times.mark_unknown(1)

    def ask(time, back_offset):
        return lookup.find_append_time(
            (before, after), time, start_offset=0, upper_offset=4, back_offset=back_offset
        )

    assert ask(5000, after.base_offset) == AppendedSince(3, 7000, 1)
    assert ask(1000, after.base_offset) == AppendedSince(0, 1000, None)
    assert ask(5000, 0) == AppendedSince(3, 7000, None)  # where nobody has noted it


def test_lookups_beside_appends(make_log):
    """What is told while batches come and segments roll is true of what had been acknowledged."""
    log = make_log(segment_bytes=600).create()
    partition, told, stop = log.partition, [], threading.Event()

    def ask():
        pick = random.Random(5)
        while not stop.is_set():
            end = partition.high_watermark
            time = pick.randint(0, end + 1)
            told.append((time, end, partition.reader.find_by_append_time(time, upper_offset=end)))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for now in range(3000):
            log.append([5], now=now)
        eventually(lambda: len(told) > 20, what="lookups")
    finally:
        stop.set()
        asking.join()
    for time, end, found in told:
        right = AppendedSince(time, time, None) if time < end else AppendedSince(None, None, None)
        assert found == right, (time, end)

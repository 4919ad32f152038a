"""What a leader tells a follower: all that its log needs comes over the wire."""

from __future__ import annotations

import pytest

from tests.storage.conftest import Log
from tidelog.broker.partitions import replication_state
from tidelog.protocol.api.fetch import FetchableTopicResponse, FetchPartition, FetchResponse
from tidelog.protocol.message import codec

NEW_YEAR_MS = 1_767_225_600_000
VERSION = 18
MOST_FETCHES = 1_000


def told(leader, offset):
    """The answer to a follower's fetch at an offset, as it is after it went over the wire."""
    wanted = FetchPartition(partition=0, fetch_offset=offset)
    data, _, _ = replication_state.read_for_follower(
        leader, wanted, 300, minimum_one=True, may_block=True
    )
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
    messages = codec(FetchResponse, VERSION)
    read, _ = messages.decode(messages.encode(answer))
    return read.responses[0].partitions[0]


def copied(leader, copy):
    """Follow until there is nothing more to fetch, and once more."""
    for _ in range(MOST_FETCHES):
        begun = copy.log_end_offset
        data = told(leader, begun)
        state = data.replication_state
        copy.replica.append_as_follower(
            data.records or b"",
            replication_state.received_append_times(data),
            replication_state.received_epochs(state),
            replication_state.received_state(data, state),
            now_ms=1,
        )
        if copy.log_end_offset == begun:
            return
    pytest.fail("it never ends")


def test_a_log_is_copied_over_the_wire(tmp_path):
    """Formats, append times and epochs, a step back of the clock, and a log start that moves."""
    log = Log(tmp_path / "leader", segment_bytes=600, message_format_version="0.10.2").create()
    leader = log.partition
    for number in range(12):
        log.append([1, 2], now=NEW_YEAR_MS + 5_000_000 + 7 * (number // 2))
    leader.append_clock.note_step_back(
        NEW_YEAR_MS + 1_000
    )  # it was ahead: append times go on from here
    for number in range(12):
        log.append([3], now=NEW_YEAR_MS + 1_000 + number)
    copy = Log(tmp_path / "copy", segment_bytes=900).create().partition
    copied(leader, copy)
    assert copy.log_end_offset == 36
    known = leader.reader.append_time_of
    for offset in range(36):
        assert copy.reader.append_time_of(offset) == known(offset)
    assert copy.state.timing.back_offset == 24
    assert [each.end_offset for each in copy.state.timing.corrections] == [24]
    assert copy.last_append_time == NEW_YEAR_MS + 1_011
    assert copy.log_start_offset == 0
    leader.retainer.delete_records_before(5)
    copied(leader, copy)
    assert copy.log_start_offset == 5
    log.close()

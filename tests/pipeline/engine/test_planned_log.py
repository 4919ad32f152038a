"""the predicted log is the log that comes, and so is what retention deletes of it."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config import BrokerConfig, topic_config
from tidelog.pipeline.engine import planned, whatif
from tidelog.pipeline.engine.planned import Arrival
from tidelog.protocol.records.batch import Record, build, scan, summarize
from tidelog.storage.log.partition import Partition

NOW = 1_767_225_600_000
HOUR, DAY = 3_600_000, 86_400_000

own_settings = st.fixed_dictionaries(
    {
        "segment.bytes": st.sampled_from(["350", "500", "100000"]),
        "segment.min.roll.interval.ms": st.sampled_from(["0", "10000"]),
        "segment.ms": st.sampled_from([str(DAY), str(100 * DAY)]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
        "retention.ms": st.sampled_from(["-1", str(7 * DAY)]),
        "retention.bytes": st.sampled_from(["-1", "400"]),
        "retention.time.basis": st.sampled_from(["record", "append"]),
        "retention.max.eventtime.ms": st.sampled_from(["-1", str(3 * DAY)]),
    }
)
a_time = st.one_of(
    st.integers(NOW - 30 * DAY, NOW), st.sampled_from([-1, NOW + 9 * DAY, NOW, -DAY, NOW - DAY])
)
some_batches = st.lists(st.lists(a_time, min_size=1, max_size=4), max_size=8)


def arrivals(batches):
    for data in batches:
        (batch,) = scan(data)
        found = summarize(data, batch)
        yield Arrival(found.first, found.largest, found.has_missing, batch.count, batch.size)


@settings(max_examples=80, deadline=None)
@given(own_settings, some_batches)
def test_it_is_the_log_that_comes(tmp_path_factory, own, times):
    config = topic_config(BrokerConfig(), own)
    batches = [
        build([Record(i, time, b"k", b"v" * 50, ()) for i, time in enumerate(each)])
        for each in times
    ]
    log = planned.log_of("t", 0, arrivals(batches), config, NOW)
    directory = tmp_path_factory.mktemp("planned")
    partition = Partition(directory, "t", 0, uuid.UUID(int=1), config, now_ms=NOW)
    for data in batches:
        partition.append(data, now_ms=NOW, produce_version=9)
    assert [(s.base_offset, s.end_offset, s.size) for s in log.segments] == [
        (s.base_offset, s.tail.end_offset, s.tail.size) for s in partition.segments
    ]
    for prediction, segment in zip(log.segments, partition.segments, strict=True):
        for name in ("first", "largest", "event", "aging", "has_missing", "last_append"):
            assert getattr(prediction.times, name) == getattr(segment.times, name), name
    assert log.max_event_time == partition.max_event_time
    rounds = [NOW, NOW + HOUR + 1, NOW + 8 * DAY]
    predicted = whatif.judge(log, whatif.Policy("now", config), rounds)
    for now in rounds:
        gone = [(each.base_offset, each.policy) for each in partition.retainer.apply_retention(now)]
        assert gone == [(e.base_offset, e.policy) for e in predicted.deleted if e.at_ms == now]
    partition.close()


def test_a_backfill_of_a_year_ago_is_told_to_die():
    config = topic_config(BrokerConfig(), {"retention.ms": str(7 * DAY)})
    old = [Arrival(NOW - 365 * DAY, NOW - 364 * DAY, False, 100, 10_000)]
    policy = whatif.Policy("now", config)
    outcome = whatif.judge(planned.log_of("t", 0, old, config, NOW), policy, [NOW])
    assert [(each.records, each.killed_early) for each in outcome.deleted] == [(100, 100)]
    kept = topic_config(BrokerConfig(), {"retention.time.basis": "append"})
    log = planned.log_of("t", 0, old, kept, NOW)
    assert whatif.judge(log, whatif.Policy("now", kept), [NOW]).deleted == ()


@pytest.mark.parametrize("start", [0, 17])
def test_nothing_is_an_empty_log(start):
    config = topic_config(BrokerConfig(), {})
    log = planned.log_of("t", 0, [], config, NOW, start)
    assert (log.records, log.size, log.high_watermark) == (0, 0, start)
    assert whatif.judge(log, whatif.Policy("now", config), [NOW]).deleted == ()

"""What an explanation of retention tells: what holds a segment, what it waits for, and when it ends.

That each segment goes at the moment and by the policy that are explained is held to the model of a log
(tests/storage/log_model).
"""

from tests.storage.time.test_event_time_retention import EVENT, HOUR, log_of
from tidelog.config.topic import TopicConfig


def held(make_log, appends, now, **settings):
    log = log_of(make_log, appends, **settings)
    return [
        (s.held_by, s.held_by_segment, s.due_ms, s.due_event_time)
        for s in log.partition.retainer.explain(now).segments
    ]


def test_what_holds_a_segment(make_log):
    appends = [(1_000, [50]), (2_000, [-1]), (3_000, [70])]
    assert held(make_log, appends, 3_000) == [("no policy", None, None, None)] * 3
    assert (
        held(make_log, appends, 3_000, retention_bytes=200)
        == [("retention.bytes", None, None, None)] * 3
    )
    assert held(make_log, appends, 3_000, retention_ms=5_000) == [
        ("retention.ms", None, 6_001, None),
        ("retention.ms", None, 7_001, None),
        ("retention.ms", None, 8_001, None),
    ]
    assert held(make_log, appends, 3_000, retention_max_eventtime_ms=100) == [
        (EVENT, None, None, 151),
        (EVENT, None, None, 171),
        (EVENT, None, None, 171),
    ]
    assert held(make_log, appends, 3_000, retention_max_eventtime_ms=10) == [
        ("retention.max.eventtime.grace.ms", None, HOUR + 1_001, 61),
        (EVENT, None, None, 81),
        (EVENT, None, None, 81),
    ]
    assert (
        held(make_log, [(1, [-1]), (2, [-1])], 3, retention_max_eventtime_ms=10)
        == [("no event time", None, None, None)] * 2
    )
    appends = [(1_000, [900]), (1_000, [-1]), (1_000, [100]), (2_000, [800])]
    settings = {"retention_ms": 500, "retention_time_basis": "record"}
    assert held(make_log, appends, 1_000, **settings) == [
        ("retention.ms", None, 1_401, None),
        ("retention.ms", None, 1_501, None),
        ("older segment", 1, 1_501, None),
        ("older segment", 1, 1_501, None),
    ]
    log = log_of(make_log, [(1, [5])], retention_ms=0)
    log.partition.retainer.apply_retention(10)
    (empty,) = log.partition.retainer.explain(20).segments
    assert (empty.held_by, empty.size, empty.is_active) == ("active and empty", 0, True)


def test_an_explanation_tells_the_facts(make_log):
    log = log_of(make_log, [(1_000, [40, -1, 30]), (2_000, [10**15])], retention_ms=100)
    explained = log.partition.retainer.explain(1_050)
    first, second = explained.segments
    assert (first.base_offset, first.end_offset, first.is_active) == (0, 3, False)
    assert (first.first_time, first.largest_time, first.event_time) == (40, 40, 40)
    assert (first.first_append_time, first.last_append_time) == (1_000, 1_000)
    assert (first.lacks_times, first.has_unknown_append_times) == (True, False)
    assert (second.largest_time, second.event_time) == (10**15, 2_000 + HOUR)
    assert first.sentence == "retention.ms=100 deletes it at 1970-01-01T00:00:01.101Z."
    assert second.is_active
    assert explained.max_event_time == 2_000 + HOUR
    assert explained.size == first.size + second.size == log.partition.size
    assert explained.going == (0, 0, 0, ())


def test_what_waits_for_an_older_segment_is_not_said_to_go_before_it(make_log):
    by_record = {"retention_ms": 1_000, "retention_time_basis": "record"}
    log = log_of(make_log, [(1_000, [1_000]), (1_000, [500])], **by_record)
    first, second = log.partition.retainer.explain(1_800).segments
    assert first.sentence == "retention.ms=1000 deletes it at 1970-01-01T00:00:02.001Z."
    assert second.held_by == "older segment"
    assert second.sentence == (
        "Segments go oldest first, and the one at 0 goes at 1970-01-01T00:00:02.001Z."
        " retention.ms=1000 would delete it with the next round."
        " It is active; an append at 1970-01-08T00:00:01.001Z begins a new segment"
        " (segment.ms=604800000)."
    )
    _, second = log.partition.retainer.explain(
        1_200
    ).segments  # its own moment is not the one it goes at
    assert second.due_ms == 2_001
    assert "would delete it at 1970-01-01T00:00:01.501Z. It is active" in second.sentence
    beyond = log_of(make_log, [(1_000, [1_000])], retention_ms=10**18).partition.retainer.explain(
        1_000
    )
    assert " deletes it at +31690708-07-05T01:46:41.001Z. It" in beyond.segments[0].sentence


def test_it_is_said_when_the_active_segment_ends(make_log):
    log = make_log(segment_ms=500, segment_min_roll_interval_ms=0).create()
    log.append([10**15], now=1_000)
    (active,) = log.partition.retainer.explain(1_100).segments
    moment = "an append at 1970-01-01T00:00:01.501Z"
    assert f" It is active; {moment} begins a new segment (segment.ms=500)." in active.sentence
    (active,) = log.partition.retainer.explain(1_501).segments
    assert " It is active; the next append begins a new segment (segment.ms" in active.sentence
    log.append([10**15], now=1_500)
    assert len(log.partition.segments) == 1
    log.append([10**15], now=1_501)
    assert len(log.partition.segments) == 2
    first, active = log.partition.retainer.explain(1_501).segments
    assert "It is active" not in first.sentence
    assert (first.rolls_ms, first.rolls_by) == (None, None)
    assert (active.rolls_ms, active.rolls_by) == (2_002, "segment.ms")
    for_ever = TopicConfig(segment_ms=2**63 - 1)
    active = log.partition.retainer.explain(1, for_ever).segments[1]
    assert (
        " It is active, and never ends by age (segment.ms=9223372036854775807)." in active.sentence
    )
    assert (active.rolls_ms, active.rolls_by) == (None, "segment.ms")
    gone = log.partition.retainer.explain(10**9, TopicConfig(retention_ms=1)).segments[1]
    assert gone.sentence.endswith(" It is active: the round begins a new segment first.")


def test_segments_end_by_the_clock_also_while_deletion_goes_by_another_time(make_log):
    log = make_log(segment_ms=500, segment_min_roll_interval_ms=0).create()
    log.append([1_000], now=1_000)
    (active,) = log.partition.retainer.explain(1_100, clock_ms=10**9).segments
    assert "It is active; the next append begins a new segment" in active.sentence


def test_what_a_wrong_clock_changes_is_said(make_log):
    log = make_log(retention_ms=1_000, retention_time_basis="append").create()
    log.append([900], now=500_000)
    (ahead,) = log.partition.retainer.explain(1_000).segments
    assert (ahead.rolls_ms, ahead.rolls_by) == (1_000, "wrong clock")
    assert "the next append begins a new segment (the clock was wrong)" in ahead.sentence
    log.partition.append_clock.note_step_back(1_000)
    log.append([900], now=1_000)
    first, active = log.partition.retainer.explain(1_500).segments
    assert (first.last_append_time, first.judged_append_time, first.due_ms) == (
        500_000,
        1_000,
        2_001,
    )
    assert first.sentence == (
        "retention.ms=1000 deletes it at 1970-01-01T00:00:02.001Z. A clock was wrong when it was "
        "written: its last append counts as 1970-01-01T00:00:01.000Z."
    )
    assert (active.judged_append_time, active.rolls_by) == (1_000, "segment.ms")
    assert "clock was wrong" not in active.sentence


def test_every_policy_has_its_condition(make_log):
    settings = {
        "retention_ms": 500,
        "retention_bytes": 10_000,
        "retention_max_eventtime_ms": 100,
        "retention_min_append_ms": 700,
        "flush_messages": 1,
    }
    log = log_of(make_log, [(1_000, [900]), (1_000, [-1])], **settings)
    log.partition.commit()
    log.append([1_000], now=2_000)
    first, second, last = log.partition.retainer.explain(1_200).segments
    size = first.size
    assert [
        (c.policy, c.due_ms, c.event_time, c.growth, c.is_floored) for c in first.conditions
    ] == [
        ("retention.bytes", None, None, 10_000 - log.partition.size + size, False),
        ("retention.ms", 1_701, None, None, True),
        (EVENT, None, 1_001, None, False),
    ]
    assert [c.event_time for c in second.conditions if c.policy == EVENT] == [None]
    # Policies go on below the high watermark alone, and what they wait for is said all the same.
    assert last.held_by == "high watermark"
    assert "retention.ms=500 would delete it at 1970-01-01T00:00:02.701Z" in last.sentence
    assert [c.policy for c in last.conditions] == ["retention.bytes", "retention.ms", EVENT]


def test_what_two_policies_delete_waits_for_an_older_segment_also_where_one_ends_with_it(make_log):
    log = log_of(
        make_log,
        [(1_000, [9_000]), (1_000, [500])],  # one append time: retention.ms ends for both at once
        retention_ms=5_000,
        retention_max_eventtime_ms=1_000,
        retention_max_eventtime_grace_ms=0,
    )
    first, second = log.partition.retainer.explain(2_000).segments
    assert (first.due_ms, second.due_ms) == (6_001, 6_001)
    assert (second.held_by, second.held_by_segment) == ("older segment", 0)
    assert second.sentence == (
        "Segments go oldest first, and the one at 0 goes at 1970-01-01T00:00:06.001Z."
        " retention.ms=5000 would delete it at 1970-01-01T00:00:06.001Z."
        " retention.max.eventtime.ms=1000 would delete it with the next round."
        " It is active; an append at 1970-01-08T00:00:01.001Z begins a new segment"
        " (segment.ms=604800000)."
    )
    assert log.partition.retainer.apply_retention(2_000) == []


def test_a_changed_setting_is_tried_without_being_set(make_log):
    log = log_of(make_log, [(1_000, [10, 11]), (2_000, [20])])
    log.partition.retainer.delete_records_before(1)
    changed = TopicConfig(retention_ms=7_500, retention_time_basis="append")
    going = log.partition.retainer.explain(9_000, changed).going
    assert going == (1, 1, log.partition.segments[0].tail.size, ("retention.ms",))
    assert log.partition.retainer.explain(9_000).going == (0, 0, 0, ())
    assert log.partition.retainer.apply_retention(9_000) == []


def test_append_times_that_nobody_knows_are_not_told(make_log):
    log = log_of(make_log, [(1_000, [10]), (2_000, [20])], retention_ms=10**15)
    log.close()
    for path in log.directory.glob("*.appendtimes"):
        path.unlink()
    (log.directory / "partition.times").unlink()
    log.open()
    for segment in log.partition.retainer.explain(3_000).segments:
        assert (segment.first_append_time, segment.last_append_time) == (None, None)
        assert segment.has_unknown_append_times
        assert "nobody knows when they were appended" in segment.sentence

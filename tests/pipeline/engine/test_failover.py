"""Where a group continues: KIP-33's crossed case by hand, and random logs against counting one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.engine.failover.offsets import NOWHERE, Ambiguous, OffsetMap, Spans
from tidelog.pipeline.engine.failover.proofs import Comparison, TargetLog, TooMany, prove_by_map
from tidelog.pipeline.engine.failover.times import UnreadTimes, margin_of, search_time
from tidelog.pipeline.engine.plausible import UNKNOWN
from tidelog.pipeline.replay.offset_map import OffsetRange


def ints(values):
    return np.array(list(values), np.int64)


def look_up(times, time_ms):
    """ListOffsets: the first record at or after a time; the end where there is none."""
    return next(
        (offset for offset, at in enumerate(times) if at != -1 and at >= time_ms), len(times)
    )


def one_by_one(places):
    """An offset map of single records: where each record of the source is, by its offset."""
    return OffsetMap([OffsetRange(offset, place, 1) for offset, place in places.items()])


def unread_times(times, now_ms=5_000):
    """The times as they are read: in two parts, without append times."""
    found = UnreadTimes(now_ms)
    at = ints(times)
    unknown = np.full(len(at), UNKNOWN)
    for part in np.array_split(np.arange(len(at)), 2):
        found.add(part, at[part], unknown[part], at[part] != -1, np.zeros(len(part), np.bool_))
    return found


# --- KIP-33, use case 3 --------------------------------------------------------------------------

CT1, CT2 = 1_000, 2_000
# m1 was created first. It took 1.5 s to the source and came behind m2 there; to the target it took 10 ms.
SOURCE = [("m2", CT2, 2_010), ("m1", CT1, 2_500)]
TARGET = [("m1", CT1), ("m2", CT2)]
PLACES = {0: 1, 1: 0}


def crossed(margin_ms, committed=0):
    chosen = look_up([at for _, at in TARGET], search_time(SOURCE[committed][1], margin_ms))
    unread = Spans([np.arange(committed, len(SOURCE))])
    log = TargetLog(0, len(TARGET), Spans([np.arange(len(TARGET))]), is_compacted=False)
    return chosen, prove_by_map(one_by_one(PLACES), unread, log, committed, chosen)


def test_by_create_time_alone_the_crossed_record_is_lost_and_that_is_seen():
    chosen, proof = crossed(margin_ms=0)
    assert (chosen, proof.lost, proof.first_lost, proof.covered) == (1, 1, 1, 1)


def test_the_longest_latency_as_margin_saves_it():
    latencies = [appended - created for _, created, appended in SOURCE]
    chosen, proof = crossed(margin_of(max(latencies), min(latencies)))
    assert (chosen, proof.lost, proof.covered, proof.duplicates) == (0, 0, 2, 0)


def test_what_the_margin_costs_is_counted():
    # m2 was read: m1 is next, and its own time finds it; m2 is after it and is read again.
    chosen, proof = crossed(margin_ms=0, committed=1)
    assert (chosen, proof.lost, proof.covered, proof.duplicates) == (0, 0, 1, 1)


def test_comparing_records_sees_the_loss_too():
    for chosen, lost in ((1, 1), (0, 0)):
        compared = Comparison(10)
        for offset, (name, _, _) in enumerate(SOURCE):
            compared.add_unread(offset, name.encode())
        for name, _ in TARGET[chosen:]:
            compared.add_after(name.encode())
        for at, (name, _) in enumerate(TARGET[:chosen]):
            compared.add_before(at, name.encode())
        assert compared.proof().lost == lost
        assert compared.proof().first_lost == (1 if lost else None)


# --- random logs ---------------------------------------------------------------------------------


@st.composite
def two_clusters(draw):
    """Records with event times, written to two clusters by ways of different length."""
    count = draw(st.integers(1, 30))
    wait = st.integers(-20, 300)
    start = draw(st.sampled_from([-(2**62), -500, -100, 0, 1_700_000_000_000]))
    events = [start + draw(st.integers(0, 400)) for _ in range(count)]
    events = [at if at != -1 else 0 for at in events]
    to_source = [at + draw(wait) for at in events]
    to_target = [at + draw(wait) for at in events]
    source = sorted(range(count), key=lambda n: (to_source[n], n))
    target = sorted(range(count), key=lambda n: (to_target[n], n))
    latencies = [to_source[n] - events[n] for n in range(count)]
    committed = draw(st.integers(0, count))
    return events, source, target, latencies, committed


@settings(max_examples=300, deadline=None)
@given(two_clusters(), st.sampled_from(["latency", "unread", "none"]))
def test_a_margin_of_the_latency_loses_nothing_and_the_counts_are_exact(case, kind):
    events, source, target, latencies, committed = case
    unread = source[committed:]
    times = unread_times((events[n] for n in unread), max(events))
    margin = {
        "latency": margin_of(max(latencies), min(latencies)),
        "unread": times.seen.step_back_ms,
        "none": 0,
    }[kind]
    chosen = (
        len(target)
        if times.seen.next_ms is None
        else look_up([events[n] for n in target], search_time(times.seen.next_ms, margin))
    )
    place = {n: offset for offset, n in enumerate(target)}
    exact = one_by_one({offset: place[n] for offset, n in enumerate(source)})
    log = TargetLog(0, len(target), Spans([np.arange(len(target))]), is_compacted=False)
    spans = Spans([np.arange(committed, len(source))])
    proof = prove_by_map(exact, spans, log, committed, chosen)
    lost = {n for n in unread if place[n] < chosen}
    again = set(target[chosen:]) & set(source[:committed])
    assert (proof.unread, proof.lost, proof.duplicates) == (len(unread), len(lost), len(again))
    assert (proof.missing, proof.foreign, proof.compacted) == (0, 0, 0)
    assert proof.covered == proof.unread - proof.lost
    assert kind == "none" or not lost

    compared = Comparison(100)
    for offset, n in enumerate(unread, committed):
        compared.add_unread(offset, b"%d" % n)
    for n in target[chosen:]:
        compared.add_after(b"%d" % n)
    for at, n in enumerate(target[:chosen]):
        compared.add_before(at, b"%d" % n)
    for n in source[:committed]:
        compared.add_read(b"%d" % n)
    assert compared.proof() == proof


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mirror_with_holes_on_both_sides(data):
    """Runs, gaps, retention and compaction in the target, records of its own: against a dict."""
    source = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1)))
    copied = data.draw(st.lists(st.sampled_from(source), unique=True))
    target = sorted(data.draw(st.sets(st.integers(0, 80), min_size=len(copied))))
    order = copied if data.draw(st.booleans()) else sorted(copied)  # as two clusters, or a mirror
    places = dict(zip(order, target, strict=False))
    start = data.draw(st.integers(0, 40))
    end = data.draw(st.integers(start, 90))
    kept = {at for at in target if start <= at < end and data.draw(st.booleans())}
    committed = data.draw(st.integers(0, 61))
    is_compacted = data.draw(st.booleans())
    exact = one_by_one(places)
    unread = [at for at in source if at >= committed]

    chosen = exact.choose(committed)
    expected = min((place for at, place in places.items() if at >= committed), default=None)
    if expected is None and places:
        expected = max(places.values()) + 1
    assert chosen == expected
    chosen = data.draw(st.integers(start, end)) if data.draw(st.booleans()) else chosen
    chosen = min(max(chosen or 0, start), end)

    log = TargetLog(start, end, Spans([ints(sorted(kept))]), is_compacted)
    proof = prove_by_map(exact, Spans([ints(unread)]), log, committed, chosen)
    lost = [at for at in unread if places.get(at) in kept and places[at] < chosen]
    taken = [
        at
        for at in unread
        if is_compacted and at in places and start <= places[at] < end and places[at] not in kept
    ]
    origin = {place: at for at, place in places.items()}
    ahead = [at for at in kept if at >= chosen]
    assert proof.lost == len(lost)
    assert proof.first_lost == (min(lost) if lost else None)
    assert proof.covered == sum(places.get(at) in kept and places[at] >= chosen for at in unread)
    assert proof.compacted == len(taken)
    assert proof.missing == proof.unread - proof.covered - proof.lost - proof.compacted
    assert proof.duplicates == sum(at in origin and origin[at] < committed for at in ahead)
    assert proof.foreign == sum(at not in origin for at in ahead)
    for at in range(62):
        assert exact.place_of(at) == places.get(at, NOWHERE)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from("abc"), max_size=12),
    st.lists(st.sampled_from("abcd"), max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_equal_records_are_counted(source, target, committed, chosen):
    unread, read = Counter(source[committed:]), Counter(source[:committed])
    after, before = Counter(target[chosen:]), Counter(target[:chosen])
    compared = Comparison(10)
    for offset, name in enumerate(source[committed:], committed):
        compared.add_unread(offset, name.encode())
    for name in target[chosen:]:
        compared.add_after(name.encode())
    assert compared.wants_before == bool(unread - after)
    for place, name in enumerate(target[:chosen]):
        compared.add_before(place, name.encode())
    assert compared.wants_read == bool(after - unread)
    for name in source[:committed]:
        compared.add_read(name.encode())
    found = compared.proof()
    assert found.covered == (unread & after).total()
    assert found.lost == ((unread - after) & before).total()
    assert found.missing == (unread - after - before).total()
    assert found.duplicates == ((after - unread) & read).total()
    assert found.foreign == (after - unread - read).total()


def test_too_many_records_are_not_compared():
    compared = Comparison(2)
    for offset in range(10):
        compared.add_unread(offset, b"same")
    compared.add_unread(10, b"b")
    with pytest.raises(TooMany):
        compared.add_unread(11, b"c")


# --- pieces --------------------------------------------------------------------------------------


def test_runs_of_several_rounds_go_together():
    later, first = OffsetRange(100, 40, 10), OffsetRange(0, 0, 30)
    known = OffsetMap([later, first, first])
    assert len(known) == 40
    assert known.source_range == (0, 110)
    assert [known.choose(at) for at in (0, 29, 30, 99, 100, 109, 110, 500)] == [
        *(0, 29, 40, 40, 40, 49, 50, 50)
    ]
    assert known.sources_of(ints([0, 29, 30, 39, 40, 49, 50])).tolist() == [
        *(0, 29, NOWHERE, NOWHERE, 100, 109, NOWHERE)
    ]
    assert OffsetMap([]).choose(3) is None
    assert OffsetMap([]).targets_of(ints([3])).tolist() == [NOWHERE]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([OffsetRange(0, 0, 10), OffsetRange(9, 20, 5)], "offset 9 of the source"),
        ([OffsetRange(0, 0, 10), OffsetRange(20, 9, 5)], "offset 9 of the target"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused(runs, said):
    with pytest.raises(Ambiguous, match=said):
        OffsetMap(runs)


@given(st.lists(st.sets(st.integers(0, 50)), max_size=4))
def test_spans_have_what_was_added(parts):
    wanted = sorted(set().union(*parts))
    cuts = [one for one in np.array_split(ints(wanted), 3) if len(one)]
    spans = Spans(cuts)
    assert spans.count == len(wanted)
    assert spans.has(np.arange(60)).tolist() == [at in wanted for at in range(60)]
    for low in (0, 25):
        found = [at for one in spans.chunks(low) for at in one.tolist()]
        assert found == [at for at in wanted if at >= low]


@pytest.mark.parametrize(
    ("next_ms", "margin_ms", "searched"),
    [
        (1_000, 400, 600),
        (1_000, 1_000, 0),
        (1_000, 1_001, -7),  # -6 to -1 mean the ends of a log
        (1_000, 1_006, -7),
        (1_000, 1_008, -8),
        (-62_135_596_800_000, 5, -62_135_596_800_005),
        (-(2**63) + 3, 10, -(2**63)),
    ],
)
def test_what_is_searched_for(next_ms, margin_ms, searched):
    assert search_time(next_ms, margin_ms) == searched


def test_clocks_that_run_ahead_widen_the_margin():
    assert margin_of(500, 20) == 500
    assert margin_of(500, -30) == 530
    assert margin_of(-10, -30) == 30


def test_unread_times():
    found = unread_times([-1, 70, -1, 40, 90, 95])
    assert (found.seen.next_ms, found.seen.next_offset) == (70, 1)
    assert (found.without, found.seen.step_back_ms) == (2, 30)
    assert unread_times([-1]).seen.next_ms is None
    far = unread_times([2**63 - 1, -(2**63)], now_ms=2**63 - 1)
    assert far.seen.step_back_ms == 2**64 - 1
    assert search_time(far.seen.next_ms, far.seen.step_back_ms) == -(2**63)


NOON = 1_700_000_000_000


def test_times_that_cannot_be_right_do_not_count():
    found = unread_times([NOON // 1000, NOON + 5, NOON * 1000, NOON, NOON + 90_000_000], NOON)
    assert (found.seen.next_ms, found.seen.next_offset, found.seen.step_back_ms) == (NOON + 5, 1, 5)
    assert (found.odd, found.first_odd, found.are_all_odd) == (3, (0, NOON // 1000), False)
    found = unread_times([NOON // 1000, NOON // 1000 - 3], NOON)
    assert (found.seen.next_ms, found.seen.step_back_ms, found.are_all_odd) == (
        NOON // 1000,
        3,
        True,
    )

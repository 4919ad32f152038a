"""The audit counts what twenty lines of plain Python count, however the log is cut and read.

The recount goes over a list of records with the rules as they are told; columns, histograms, heads and
carries are unknown to it. With a mistake injected in what it is compared to, the comparison fails.
"""

import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.engine import audit, lateness, partial_audits, tables
from tidelog.pipeline.engine.audit import UNKNOWN, Auditor, AuditSettings, Times
from tidelog.storage.time.arrivals import MISTAKEN_UNITS, find_unit_mismatch

NOW = 1_767_225_600_000
HOUR, DAY = 3_600_000, 86_400_000
RULES = AuditSettings(NOW, 60_000, (1_000, HOUR, DAY), (0, 1_000, HOUR))
EDGE = 2**63

near = st.integers(NOW - 3 * HOUR, NOW + 3 * HOUR)
a_time = st.one_of(
    near,
    near,
    st.integers(NOW - 400 * DAY, NOW + DAY),
    st.sampled_from(
        [-1, 0, -2, 1, -EDGE, EDGE - 1, NOW // 1000, NOW * 1000, NOW * 1_000_000, -HOUR]
    ),
    st.integers(-EDGE, EDGE - 1),
)


@st.composite
def logs(draw):
    """Records as (offset, time, append time, stamped by the broker?, producer id, size)."""
    kinds = draw(st.sampled_from(["known", "unknown", "mixed"]))
    rows, offset, append = [], draw(st.integers(0, 5)), NOW - 2 * HOUR
    for _ in range(draw(st.integers(0, 40))):
        append += draw(st.sampled_from([0, 0, 1, 900, HOUR // 7]))
        known = kinds == "known" or (kinds == "mixed" and draw(st.booleans()))
        stamped = known and draw(st.integers(0, 9)) == 0
        time = append if stamped else draw(a_time)
        producer = draw(st.sampled_from([-1, 7, 7, EDGE - 1, 0]))
        rows.append((offset, time, append if known else UNKNOWN, stamped, producer, offset % 9))
        offset += draw(st.sampled_from([1, 1, 1, 4]))
    return rows


def columns(rows):
    offset, time, append, stamped, producer, size = zip(*rows, strict=True) if rows else [()] * 6
    ints = [np.array(each, np.int64) for each in (offset, time, append, producer, size)]
    return Times(ints[0], ints[1], ints[2], np.array(stamped, bool), ints[3], ints[4])


def cut(rows, sizes):
    """Cut a list into parts; the sizes are used in turn."""
    parts, at, turn = [], 0, 0
    while at < len(rows):
        size = sizes[turn % len(sizes)]
        parts.append(rows[at : at + size])
        at, turn = at + size, turn + 1
    return parts


def audited(rows, splits, chunks, head, most=partial_audits.MOST_SPANS, rules=RULES):
    """The audit of a log cut into splits, each read in chunks."""

    def read(part, carry=None):
        auditor = Auditor(rules, carry, head)
        for chunk in cut(part, chunks):
            auditor.note(columns(chunk))
        partial_audit = partial_audits.partial_audit("t", 0, part[0][0], auditor)
        return pickle.loads(pickle.dumps(partial_audit))

    parts = cut(rows, splits)
    found = [read(part) for part in parts]
    for again in partial_audits.to_read_again(found):
        found[again.number] = read(parts[again.number], again.carry)
    assert not partial_audits.to_read_again(found)
    return partial_audits.partition_audit(found, rules, most)


def recount(rows, rules=RULES):
    """The same, one record at a time."""
    total, largest = Counter(), None
    late, delays, hours, worst = Counter(), [], {}, Counter()
    for _, time, append, stamped, producer, size in rows:
        total["records"] += 1
        if time == -1:
            total["missing"] += 1
            continue
        known, hour = append != UNKNOWN, time // HOUR
        future = time > (append if known else rules.now_ms) + rules.margin_ms
        unit = find_unit_mismatch(time, rules.now_ms)
        sums = hours.setdefault(hour, [0] * 7 + [time, time])
        marks = (1, future or unit is not None, future, unit is not None, time < 0, stamped, size)
        sums[:7] = [a + b for a, b in zip(sums, marks, strict=False)]
        sums[7:] = min(sums[7], time), max(sums[8], time)
        total.update(future=future, negative=time < 0, log_append=stamped, append_known=known)
        if unit:
            total[unit.unit] += 1
        if known and not stamped:
            delay = append - time
            delays.append((hour, delay, producer, not future and not unit, unit is None))
            for limit in rules.before_limits_ms:
                total["before", limit] += delay > limit
            for limit in rules.after_limits_ms:
                total["after", limit] += -delay > limit
        if not future and not unit:
            total["plausible"] += 1
            behind = 0 if largest is None else max(largest - time, 0)
            largest = time if largest is None else max(largest, time)
            if behind:
                late[hour, behind] += 1
                worst[hour] = max(worst[hour], min(behind, EDGE - 1))
                for limit in rules.before_limits_ms:
                    total["beyond", limit] += behind > limit and not known
    return total, late, delays, hours, worst, largest


def bucket_of(value):
    """The bucket of a whole number, by fractions."""
    if value < 0:
        return -bucket_of(-value)
    if value == 0:
        return 0
    value = int(float(value))  # as near as a double comes
    exponent = value.bit_length() - 1
    return exponent * 128 + int((Fraction(value, 2**exponent) - 1) * 128) + 1


def as_counter(table):
    *keys, counts = (column.tolist() for column in table.columns())
    return Counter(dict(zip(zip(*keys, strict=True), counts, strict=True)))


def check(rows, found, rules=RULES):
    total, late, delays, hours, worst, largest = recount(rows, rules)
    counts = found.counts
    for name in ("records", "missing", "negative", "log_append", "future", "plausible"):
        assert getattr(counts, name) == total[name], name
    assert counts.append_known == total["append_known"]
    assert counts.bytes == sum(size for *_, size in rows)
    assert counts.suspects == {unit: total[unit] for unit in MISTAKEN_UNITS}
    assert counts.delays == len(delays)
    assert counts.before.tolist() == [total["before", each] for each in rules.before_limits_ms]
    assert counts.after.tolist() == [total["after", each] for each in rules.after_limits_ms]
    beyond = found.tables.late.beyond.tolist()
    assert beyond == [total["beyond", each] for each in rules.before_limits_ms]
    assert found.largest == largest
    expected = Counter()
    for (hour, behind), count in late.items():
        expected[hour, bucket_of(behind)] += count
    assert as_counter(found.tables.late.cells) == expected
    assert as_counter(found.tables.late.worst) == {(h,): v for h, v in worst.items()}
    meant = [(hour, bucket_of(delay), producer) for hour, delay, producer, _, m in delays if m]
    assert as_counter(found.tables.delays) == Counter((hour, bucket) for hour, bucket, _ in meant)
    assert as_counter(found.producers) == Counter(
        (producer, bucket) for _, bucket, producer in meant
    )
    rows_by_hour = zip(*(c.tolist() for c in found.tables.hours.columns()), strict=True)
    assert {hour: sums for hour, *sums in rows_by_hour} == hours
    plausible = [delay for _, delay, _, is_plausible, _ in delays if is_plausible]
    assert found.longest_delay == max(plausible, default=None)
    assert found.shortest_delay == min(plausible, default=None)
    timed = [row for row in rows if row[1] != -1]
    assert found.least == min((row[1] for row in timed), default=None)
    assert found.most == max((row[1] for row in timed), default=None)
    assert (found.newest and found.newest.offset) == (timed[-1][0] if timed else None)


some_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(logs(), some_sizes, some_sizes, st.integers(1, 5))
def test_it_counts_what_a_recount_counts_for_any_cut(rows, splits, chunks, head):
    check(rows, audited(rows, splits, chunks, head))


@settings(deadline=None, max_examples=60)
@given(logs(), some_sizes, some_sizes, st.integers(1, 6))
def test_long_spans_are_the_same_for_any_cut(rows, one, other, most):
    whole = audited(rows, [10**6], [10**6], 4096, most)
    parts = audited(rows, one, other, 2, most)
    assert parts.tables.level == whole.tables.level
    for name in ("hours", "delays"):
        mine, theirs = (getattr(each.tables, name).columns() for each in (whole, parts))
        assert [c.tolist() for c in mine] == [c.tolist() for c in theirs]
    assert as_counter(whole.tables.late.cells) == as_counter(parts.tables.late.cells)
    assert as_counter(whole.tables.delays).total() == as_counter(whole.producers).total()
    level = whole.tables.level
    assert len(whole.tables.hours) <= most or level == len(partial_audits.SPAN_HOURS) - 1
    assert as_counter(whole.producers) == as_counter(parts.producers)


def disordered(count, seed=3, span=DAY):
    """A log without hypothesis: `count` records, jittered, some of them far behind or in the future."""
    random = np.random.default_rng(seed)
    append = NOW - 2 * DAY + np.sort(random.integers(0, span, count))
    time = append - random.integers(0, 5_000, count)
    time[random.random(count) < 0.02] -= 3 * DAY
    time[random.random(count) < 0.001] += DAY
    time[random.random(count) < 0.001] = -1
    offsets = np.arange(count)
    producer = random.integers(0, 3, count)
    return list(
        zip(
            *(each.tolist() for each in (offsets, time, append)),
            [False] * count,
            producer.tolist(),
            [1] * count,
            strict=True,
        )
    )


def test_many_records_through_whole_heads():
    rows = disordered(30_000)
    check(rows, audited(rows, [20_000], [7_000], lateness.HEAD))
    check(rows, audited(rows, [5_000], [65_536], lateness.HEAD))


def test_a_live_log_is_read_once_and_one_that_steps_back_again():
    rows = disordered(30_000)
    live = [row for row in rows if row[1] > row[2] - 10_000 and row[1] <= row[2]]
    old = [(row[0] + 10**6, row[1] - 300 * DAY, *row[2:]) for row in live]

    def again(parts):
        found = []
        for part in parts:
            auditor = Auditor(RULES)
            auditor.note(columns(part))
            found.append(partial_audits.partial_audit("t", 0, part[0][0], auditor))
        return [each.number for each in partial_audits.to_read_again(found)]

    assert again(cut(live, [10_000])) == []
    assert again([*cut(live, [10_000]), old[:10_000]]) == [3]
    assert again([*cut(live, [10_000]), old[:4096]]) == []  # all of it is head


# --- histograms ----------------------------------------------------------------------------------


@given(st.integers(0, 2**64 - 1))
def test_a_bucket_bounds_its_values(value):
    (index,) = tables.buckets_of(np.array([value], np.uint64)).tolist()
    assert index == bucket_of(value)
    largest = tables.largest_in(index)
    if value < 2**53:
        assert tables.largest_in(index - 1) < value <= largest or value == largest == 0
        assert largest - value <= value * tables.RELATIVE_ERROR
    else:  # not every number is a double there
        assert value <= largest <= value * (1 + tables.RELATIVE_ERROR) + 2**12
    if value < 256:
        assert largest == value


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]),
)
def test_a_quantile_is_never_too_small_and_hardly_too_large(values, share):
    buckets = tables.buckets_of(np.array(values, np.uint64))
    found = tables.quantile(buckets, np.ones(len(values), np.int64), share)
    exact = sorted(values)[-(-len(values) * round(share * 10**6) // 10**6) - 1]
    assert exact <= found <= exact * (1 + tables.RELATIVE_ERROR)


def test_no_values_have_no_quantile():
    assert tables.quantile(np.empty(0, np.int64), np.empty(0, np.int64), 0.5) is None


# --- mistakes ------------------------------------------------------------------------------------


MISTAKES = {
    "the largest time before a piece is forgotten": (
        partial_audits,
        "carries",
        lambda found: [None] * len(found),
    ),
    "limits are among what they refuse": (
        lateness,
        "beyond",
        lambda places, limits: np.bincount(places, minlength=limits + 1)[:-1],
    ),
    "magnitudes are rounded": (
        audit,
        "buckets_of",
        lambda sizes: tables.buckets_of(sizes // 1000 * 1000),
    ),
}


def telling():
    """A log in which all those mistakes show."""
    rows = disordered(600, span=HOUR)
    base = rows[-1][0] + 1
    last = rows[-1][2]
    odd = [last + 60_000, last + 60_001, NOW * 1000, NOW // 1000, last - HOUR, last - DAY, last - 5]
    return rows + [(base + i, time, last, False, 7, 1) for i, time in enumerate(odd)]


@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_an_injected_bug_shows(mistake, monkeypatch):
    rows = telling()
    if mistake is None:
        check(rows, audited(rows, [50], [20], 5))
        return
    where, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(where, name, wrong)
    if name == "beyond":
        monkeypatch.setattr(audit, name, wrong)
    with pytest.raises(AssertionError):
        check(rows, audited(rows, [50], [20], 5))

"""What a log is asked, and what the model answers: lookups by either time, the largest time, append times."""

from tests.storage.time.segment_plan.life import HIGHEST, LOWEST, seen
from tidelog.storage.log.lookup import AppendedSince


def look_up(life):
    nearby = [r.time for r in life.random.choices(life.rows, k=6)] if life.rows else []
    wanted = {t + d for t in nearby if t is not None for d in (-1, 0, 1)}
    wanted |= {LOWEST, HIGHEST, -7, 0, life.now, life.time(), -life.random.randrange(10**4)}
    uppers = [life.end, life.random.randint(life.log_start, life.end), life.log_start]
    for time in sorted(wanted):
        if time == -1 or not LOWEST <= time <= HIGHEST:
            continue
        for upper in uppers[: life.random.choice([1, 2, 3])]:
            expected = life.first_at(time, upper)
            found = life.partition.reader.find_by_time(time, upper_offset=upper)
            assert found == expected, f"find_by_time({time}, upper_offset={upper})"
            life.count(time)
        if not -6 <= time < 0:
            look_up_v0(life, time)
    for upper in uppers:
        known = [(r.time, -o) for o, r in life.visible(upper) if r.time is not None]
        expected = (-max(known)[1], max(known)[0]) if known else None
        assert life.partition.reader.find_largest_time(upper_offset=upper) == expected, upper
        life.count(0 if expected is None else expected[1])
    for target, answer in ((-1, life.end), (-2, life.log_start)):
        assert life.partition.reader.offsets_before_v0(target, 1) == [answer]


def look_up_v0(life, time):
    most = life.random.choice([0, 1, 2, 100])
    found = life.first_at(time, life.end)
    first = life.end if found is None else found[0]
    bases = sorted({max(p.base, life.log_start) for p in life.pieces}, reverse=True)
    expected = [first, *(b for b in bases if b < first)][:most]
    assert life.partition.reader.offsets_before_v0(time, most) == expected, f"v0 {time}"
    life.count(time)


def look_up_appended(life):
    """Ask when appending reached a time, which may be unknown."""
    nearby = [r.append for r in life.random.choices(life.rows, k=5)] if life.rows else []
    wanted = {t + d for t in nearby if t is not None for d in (0, 1)}
    wanted |= {LOWEST, HIGHEST, -1, life.now}
    for time in sorted(wanted):
        upper = life.random.choice([life.end, life.end, life.random.randint(0, life.end)])
        expected = first_appended(life, time, max(upper, life.log_start))
        found = life.partition.reader.find_by_append_time(
            time, upper_offset=max(upper, life.log_start)
        )
        assert found == expected, f"find_by_append_time({time}, upper_offset={upper})"
        seen["lookups by append time"] += 1
        seen["of them in doubt"] += found.unknown_from is not None


def first_appended(life, time, upper):
    """The first row surely appended at a time or later, and the first before it in doubt.

    Witnesses are all rows from the beginning of the segment on in which the log begins. An unknown
    row lies between the known ones around it, which is no help where these go back.
    """
    ends = [*(p.base for p in life.pieces[1:]), life.end]
    base = next((p.base for p, e in zip(life.pieces, ends, strict=True) if e > life.log_start), 0)
    before, after, following = None, {}, None
    for number in range(life.end - 1, base - 1, -1):
        after[number] = following
        following = following if life.rows[number].append is None else life.rows[number].append
    doubt = None
    for number in range(base, upper):
        append = life.rows[number].append
        known, latest = append is not None, before if append is None else append
        if latest is not None and latest >= time:
            if number >= life.log_start:
                return AppendedSince(number, append, doubt)
        elif not known:
            surely_not = after[number] is not None and after[number] < time
            if before is not None and surely_not and after[number] < before:
                surely_not = False
            if not surely_not and doubt is None and number >= life.log_start:
                doubt = number
        before = latest
    return AppendedSince(None, None, doubt)


def ask_append_times(life):
    assert life.partition.reader.read_max_event_time() == life.max_event
    for offset in range(max(life.log_start, life.end - 40), life.end):
        assert life.partition.reader.append_time_of(offset) == life.rows[offset].append, offset

"""Writes docs/time.svg: two times, the segments of one log, and what each retention policy deletes.

The picture is drawn from a run: one partition for each policy, in a directory of its own, with the
same batches appended by a manual clock; then a round of retention, and the result of `explain` for
the rest. So the picture always shows the code's behaviour. `--check` writes nothing and exits with
status 1 if the picture is stale.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.broker.clock import ManualClock
from tidelog.config import TopicConfig
from tidelog.protocol.records.encode import put_message
from tidelog.storage.log.partition import Partition
from tidelog.storage.log.retention import explanation
from tools.derived import write_or_check

if TYPE_CHECKING:
    from tidelog.storage.log.retention.deletion import Deletion
    from tidelog.storage.log.retention.explanation import PartitionExplanation, SegmentExplanation

PICTURE = ROOT / "docs" / "time.svg"

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z is day 0
NOW_MS = START_MS + 10 * DAY_MS
KEEP_MS = 5 * DAY_MS
BATCHES = 5  # per segment
KEPT_SEGMENTS = 3  # the number that retention.bytes keeps

LIVE, BACKFILL, FUTURE = "live", "backfill", "from the future"


class Produced(NamedTuple):
    """One batch that a producer sends: when, with which time, and why."""

    at_ms: int
    event_ms: int
    kind: str


class Policy(NamedTuple):
    """One row of the picture: its settings."""

    title: str
    subtitle: str
    settings: dict[str, int | str]


class Outcome(NamedTuple):
    """What a round deletes, and the explanation of the rest."""

    deleted: list[Deletion]
    before: PartitionExplanation


def _story() -> list[Produced]:
    """Returns nine days of live records, ten minutes old, a backfill on day five, a future time."""

    def live(hours: int) -> Produced:
        at_ms = START_MS + hours * HOUR_MS
        return Produced(at_ms, at_ms - 10 * MINUTE_MS, LIVE)

    before = [live(8 * number) for number in range(15)]
    before[6] = Produced(before[6].at_ms, NOW_MS + 3 * DAY_MS, FUTURE)
    first_ms = START_MS + 4 * DAY_MS + 20 * HOUR_MS
    backfill = [
        Produced(first_ms + number * 5 * HOUR_MS, START_MS + (number - 6) * 16 * HOUR_MS, BACKFILL)
        for number in range(5)
    ]
    return [*before, *backfill, *(live(144 + 8 * number) for number in range(10))]


_ROUND = {"retention_ms": -1, "retention_bytes": -1, "segment_ms": 2**62}


def _policies(batch_bytes: int) -> list[Policy]:
    return [
        Policy("retention.ms", "5 d, by record time (default)", {"retention_ms": KEEP_MS}),
        Policy(
            "retention.ms",
            "5 d, retention.time.basis=append",
            {"retention_ms": KEEP_MS, "retention_time_basis": "append"},
        ),
        Policy(
            "retention.max.eventtime.ms",
            "5 d behind the largest event time",
            {"retention_max_eventtime_ms": KEEP_MS},
        ),
        Policy(
            "retention.bytes",
            f"room for {KEPT_SEGMENTS} segments",
            {"retention_bytes": KEPT_SEGMENTS * BATCHES * batch_bytes},
        ),
    ]


# --- the run -------------------------------------------------------------------------------------


def _append(partition: Partition, clock: ManualClock, produced: Produced) -> int:
    """Appends a batch; returns its size in the log."""
    clock.set(produced.at_ms)
    records = bytearray()
    put_message(records, 1, 0, 0, produced.event_ms, None, b"value")
    return partition.append(bytes(records), now_ms=clock.now_ms(), produce_version=2).size


def _filled(directory: Path, settings: dict[str, int | str], batch_bytes: int) -> Partition:
    clock = ManualClock(START_MS)
    segment_bytes = BATCHES * batch_bytes
    config = TopicConfig(**{**_ROUND, "segment_bytes": segment_bytes, **settings})
    partition = Partition(directory, "topic", 0, None, config, now_ms=clock.now_ms())
    for produced in _story():
        _append(partition, clock, produced)
    return partition


def _batch_bytes() -> int:
    with tempfile.TemporaryDirectory() as directory:
        partition = Partition(Path(directory), "topic", 0, None, TopicConfig(), now_ms=START_MS)
        size = _append(partition, ManualClock(START_MS), _story()[0])
        partition.close()
    return size


def _run(policy: Policy, batch_bytes: int) -> Outcome:
    with tempfile.TemporaryDirectory() as directory:
        partition = _filled(Path(directory), policy.settings, batch_bytes)
        clock = ManualClock(NOW_MS)
        before = partition.retainer.explain(clock.now_ms())
        deleted = partition.retainer.apply_retention(clock.now_ms())
        partition.close()
    return Outcome(deleted, before)


# --- the drawing ---------------------------------------------------------------------------------

WIDTH, HEIGHT = 960, 640
LEFT, RIGHT, TOP, FLOOR = 236, 936, 84, 380  # of the plot
DAYS = (0.0, 10.35)
EVENT_DAYS = (-5.0, 14.0)
ROW_TOP, ROW_STEP, ROW_HEIGHT = 442, 46, 32
INK, FAINT, GRID = "#1f2430", "#5b6472", "#dfe3e8"
COLOURS = {LIVE: "#0072b2", BACKFILL: "#d55e00", FUTURE: "#a2559c"}
GONE, KEPT = "#f3c9c0", "#cfe8d5"

_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px;"
    f"fill:{INK}}}"
    f".faint{{fill:{FAINT};font-size:11px}}.small{{font-size:10.5px}}"
    ".mid{text-anchor:middle}.end{text-anchor:end}.bold{font-weight:600}"
)


def _day(time_ms: int) -> float:
    return (time_ms - START_MS) / DAY_MS


def _x(time_ms: int) -> float:
    low, high = DAYS
    return LEFT + (_day(time_ms) - low) / (high - low) * (RIGHT - LEFT)


def _y(time_ms: int) -> float:
    low, high = EVENT_DAYS
    return FLOOR - (_day(time_ms) - low) / (high - low) * (FLOOR - TOP)


def _text(x: float, y: float, words: str, kind: str = "", colour: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{fill}>{words}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str, more: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" {more}/>'
    )


def _spot(x: float, y: float, kind: str) -> str:
    colour = COLOURS[kind]
    if kind == LIVE:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}"/>'
    if kind == BACKFILL:
        return (
            f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" fill="{colour}"/>'
        )
    return f'<path d="M{x:.1f} {y - 5:.1f} l5 9 h-10 z" fill="{colour}"/>'


def _borders(segments: tuple[SegmentExplanation, ...]) -> list[tuple[float, float]]:
    """Returns each segment's range of append times: from its first batch to the next segment's."""
    starts = [_x(s.first_append_time or START_MS) for s in segments]
    return list(zip(starts, [*starts[1:], _x(NOW_MS)], strict=True))


def _axes() -> list[str]:
    out = [
        _text(24, 34, "Two times, one log, and what each policy deletes of it", "bold"),
        _text(
            24,
            53,
            "Each mark is a batch of one partition. A segment goes when all of it is old enough; the oldest "
            "goes first, and the first that stays ends the round.",
            "faint",
        ),
    ]
    for day in range(0, 11, 2):
        x = _x(START_MS + day * DAY_MS)
        out += [_line(x, TOP, x, FLOOR, GRID), _text(x, FLOOR + 17, f"day {day}", "faint mid")]
    for day in range(-4, 15, 4):
        y = _y(START_MS + day * DAY_MS)
        out += [_line(LEFT, y, RIGHT, y, GRID), _text(LEFT - 8, y + 4, f"day {day}", "faint end")]
    out += [
        _text(24, TOP + 12, "event time", "bold"),
        _text(24, TOP + 28, "when it happened", "faint"),
        _text(24, FLOOR + 17, "append time", "bold"),
        _text(24, FLOOR + 33, "when it was written", "faint"),
    ]
    for number, kind in enumerate((LIVE, BACKFILL, FUTURE)):
        y = TOP + 62 + number * 20
        out += [_spot(30, y - 4, kind), _text(44, y, kind)]
    y = TOP + 62 + 60
    out += [_line(24, y - 4, 38, y - 4, FAINT, 'stroke-dasharray="2 3"')]
    out += [_text(44, y, "event = append", "faint")]
    return out


def _plot(outcome: Outcome) -> list[str]:
    """Returns the batches, their segments, and the borders that the policies draw."""
    out = []
    for number, (start, end) in enumerate(_borders(outcome.before.segments)):
        if number % 2 == 0:
            out.append(
                f'<rect x="{start:.1f}" y="{TOP}" width="{end - start:.1f}" height="{FLOOR - TOP}" '
                'fill="#eef2f7"/>'
            )
    out += _axes()
    now = _x(NOW_MS)
    dots = 'stroke-dasharray="2 3"'
    out.append(_line(_x(START_MS), _y(START_MS), now, _y(NOW_MS), FAINT, dots))
    out += [
        _line(now, TOP, now, FLOOR, INK, 'stroke-width="1.5"'),
        _text(now - 6, TOP + 14, "now", "bold end"),
    ]
    event = outcome.before.max_event_time
    assert event is not None
    by_record, by_event = _y(NOW_MS - KEEP_MS), _y(event - KEEP_MS)
    by_append = _x(NOW_MS - KEEP_MS)
    dash = 'stroke-width="1.3" stroke-dasharray="7 4"'
    out += [
        _line(LEFT, by_record, RIGHT, by_record, INK, dash),
        _text(LEFT + 6, by_record - 5, "now - retention.ms", "small"),
        _line(LEFT, by_event, RIGHT, by_event, COLOURS[FUTURE], dash),
        _text(
            now - 8, by_event + 14, "largest event time - retention.max.eventtime.ms", "small end"
        ),
        _line(by_append, TOP, by_append, FLOOR, INK, dash),
        _text(by_append + 6, TOP + 14, "now - retention.ms, basis append", "small"),
    ]
    for produced in _story():
        x, y = _x(produced.at_ms), _y(produced.event_ms)
        if produced.kind == FUTURE:
            counted = _y(produced.at_ms)
            out.append(
                _line(
                    x, y, x, counted, COLOURS[FUTURE], 'stroke-dasharray="1 3" stroke-width="1.5"'
                )
            )
            out.append(
                f'<circle cx="{x:.1f}" cy="{counted:.1f}" r="4" fill="none" stroke="{COLOURS[FUTURE]}"/>'
            )
            out.append(_text(x + 9, y + 5, "ages from when it was written", "small"))
        out.append(_spot(x, y, produced.kind))
    return out


def _row(top: float, policy: Policy, outcome: Outcome) -> list[str]:
    """Returns one policy's row: its segments, deleted or kept, and why."""
    out = [
        _text(24, top + 13, policy.title, "bold"),
        _text(24, top + 28, policy.subtitle, "faint"),
    ]
    gone = {deletion.base_offset for deletion in outcome.deleted}
    segments = outcome.before.segments
    for segment, (start, end) in zip(segments, _borders(segments), strict=True):
        is_gone = segment.base_offset in gone
        middle = (start + end) / 2
        out.append(
            f'<rect x="{start + 1:.1f}" y="{top}" width="{end - start - 2:.1f}" height="{ROW_HEIGHT}" '
            f'rx="3" fill="{GONE if is_gone else KEPT}" stroke="{"#b5493a" if is_gone else "#3d8b57"}"/>'
        )
        words = ("deleted",) if is_gone else _why(segment)
        for number, line in enumerate(words):
            y = top + 20 - 6 * (len(words) - 1) + 12 * number
            out.append(_text(middle, y, line, "small mid"))
    return out


def _why(segment: SegmentExplanation) -> tuple[str, ...]:
    """Returns the explanation of a kept segment in a few words."""
    if segment.held_by == explanation.OLDER:
        return "held by an", "older one"
    if segment.held_by == explanation.EVENT_TIME and segment.due_event_time is not None:
        return "kept until an", f"event of day {_day(segment.due_event_time):.1f}"
    if segment.held_by == explanation.SIZE:
        return "kept until", "the log grows"
    assert segment.due_ms is not None, segment
    hours = (segment.due_ms - NOW_MS) / HOUR_MS
    return "kept for", (f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.3g} days")


def picture() -> str:
    """Returns the whole picture."""
    batch_bytes = _batch_bytes()
    policies = _policies(batch_bytes)
    outcomes = [_run(policy, batch_bytes) for policy in policies]
    body = _plot(outcomes[0])
    for number, (start, end) in enumerate(_borders(outcomes[0].before.segments)):
        body.append(_text((start + end) / 2, ROW_TOP - 12, f"segment {number}", "faint mid"))
    for number, (policy, outcome) in enumerate(zip(policies, outcomes, strict=True)):
        body += _row(ROW_TOP + number * ROW_STEP, policy, outcome)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="Batches by append time and event time, and the segments '
        f'each retention policy deletes">\n<!-- derived by tools/derive_time_picture.py: do not edit -->\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10" '
        'fill="#ffffff" stroke="#c9ced6"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PICTURE, picture()))

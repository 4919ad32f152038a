"""Mistakes to inject: a rule of the product is replaced by a wrong one while a run is lived.

Each is a mistake that was there once, or that somebody could make. The numbers of seeds within which each
has to be caught are here too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tests.simulation.clocks.beside import MISTAKES
from tests.time_rules import time_rules
from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
from tidelog.storage.log.retention import explanation, retainer
from tidelog.storage.log.times import behind, partition_times
from tidelog.storage.log.times.append_clock import AppendClock
from tidelog.storage.log.times.saved_times import SavedTimes
from tidelog.storage.time import corrections
from tidelog.storage.time.adoption import Adoptions
from tidelog.storage.time.read_clock import ReadClock
from tidelog.storage.time.timestamp import MAX_TIMESTAMP
from tidelog.storage.time.trusted_clock import TrustedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.storage.time.trusted_clock import Reading

HOUR_MS = 3_600_000
SEGMENTS_TO_DELETE = retainer.segments_to_delete
SCHEDULE = explanation.retention_schedule
PACK = partition_times.pack
LIMITED = corrections._limited


def roll_by_record_times(times, largest, append_ms, now_ms, segment_ms, min_ms) -> bool:
    """Rolls as KIP-33 says: only the record times decide, where there are any."""
    if times.created is None or append_ms - times.created < min_ms:
        return False
    if times.first is None or largest is None:
        return append_ms - times.created > segment_ms
    return largest - times.first > segment_ms


def roll_by_any_record_time(times, largest, append_ms, now_ms, segment_ms, min_ms) -> bool:
    """A record time beyond its append time ends a segment."""
    if times.created is None or append_ms - times.created < min_ms:
        return False
    if append_ms - times.created > segment_ms:
        return True
    return largest is not None and times.first is not None and largest - times.first > segment_ms


def cap_follows_the_window(config) -> int:
    """A limit of the window, except "no limit", is the cap of event times too."""
    after_ms = config.message_timestamp_after_max_ms
    return HOUR_MS if after_ms in {None, MAX_TIMESTAMP} else after_ms


def aged_by_record_time(times, retention) -> int | None:
    """Counts record times of the future."""
    newest = times.last_append if retention.by_append or times.largest is None else times.largest
    if retention.retention_ms is None or newest is None:
        return None
    return newest + retention.retention_ms + 1


def aged_without_append(times, retention) -> int | None:
    """Counts the first append time: a segment is as old as its oldest record."""
    if retention.retention_ms is None or times.created is None:
        return None
    return min(times.created, times.last_append) + retention.retention_ms + 1


def expires_by_any_event(times, retention, max_event_time) -> int | None:
    """Event time deletes by the largest event time, whatever clock it came from."""
    if retention.event_ms is None or times.event is None or max_event_time is None:
        return None
    if max_event_time <= times.event + retention.event_ms:
        return None
    return times.last_append + retention.grace_ms + 1 if retention.grace_ms else 0


def one_too_many(candidates, *args: Any, **facts: Any) -> list[str]:
    """A round deletes one segment that is not due."""
    due = SEGMENTS_TO_DELETE(candidates, *args, **facts)
    return [*due, due[-1]] if due and len(due) < len(candidates) - 1 else due


def all_but_one(*args: Any, **facts: Any) -> list[str]:
    """A round leaves one segment that is due."""
    return SEGMENTS_TO_DELETE(*args, **facts)[:-1]


def explained_without_floor(candidates, retention, **facts: Any) -> Any:
    """Explain forgets the floor and the grace."""
    return SCHEDULE(candidates, retention._replace(floor_ms=0, grace_ms=0), **facts)


def deletion_by_the_latest(self: ReadClock, reading: Reading) -> int:
    """Goes by what was read last, whether or not the logs have taken it into account."""
    return self.latest.deletion_time(reading.wall_ms, reading.elapsed_ms)


def only_two_corrections(known) -> tuple[corrections.Correction, ...]:
    """Joins the oldest corrections of a partition where there is a third one."""
    with mock.patch.object(corrections, "_MOST_CORRECTIONS", 2):
        return LIMITED(known)


class Mistake(NamedTuple):
    """Where a rule is, its name, what replaces it, and the seeds that are enough to catch it."""

    owner: Any
    name: str
    wrong: Callable[..., Any]
    seeds: int = 60
    known: int = 1  # a seed that catches it, tried first; a change of a run may move it
    blinks: bool = False  # whether it takes a clock that is wrong for a moment


BUGS: dict[str, Mistake] = {
    # finding 1
    "only record times end a segment": Mistake(time_rules, "should_roll", roll_by_record_times),
    "record times of the future end a segment": Mistake(
        time_rules, "should_roll", roll_by_any_record_time
    ),
    "record times of the future keep a segment": Mistake(
        time_rules, "aged_from", aged_by_record_time
    ),
    "a segment is as old as its first append": Mistake(
        time_rules, "aged_from", aged_without_append
    ),
    # finding 2
    "append times wait for the clock": Mistake(time_rules, "is_behind", lambda *_: False),
    "what a slow clock stamped stays so": Mistake(AppendClock, "_step_forward", lambda *_: False),
    "only two corrections are remembered": Mistake(
        corrections, "_limited", only_two_corrections, 200, 47
    ),
    # finding 3
    "what is adopted counts as of 1970": Mistake(Adoptions, "time_of", lambda *_: 0),
    "every start adopts anew": Mistake(
        partition_times, "pack", lambda times: PACK(times._replace(adopted=())), 400, 287
    ),
    # finding 4
    "a leap counts in event time": Mistake(
        time_rules, "expires_from", expires_by_any_event, 150, 113
    ),
    # finding 7
    "the window caps event times": Mistake(
        time_rules, "event_slack", cap_follows_the_window, 200, 67
    ),
    "event times have no cap": Mistake(
        time_rules, "event_limit", lambda *_: MAX_TIMESTAMP, 300, 237
    ),
    # finding 14
    "there is no floor": Mistake(time_rules, "floored_until", lambda *_: None),
    # P2
    "the wall clock deletes": Mistake(
        TrustedClock, "deletion_time", lambda _, wall_ms, __: wall_ms
    ),
    "a leap is trusted": Mistake(TrustedClock, "_is_impossible", lambda *_: True, known=113),
    # clocks that blink
    "only the watch meets a step of the clock": Mistake(
        TrustedClock, "is_steady", lambda *_: True, blinks=True
    ),
    "a step that the logs do not know deletes": Mistake(
        ReadClock, "deletion_time", deletion_by_the_latest, 400, 236, blinks=True
    ),
    "a raised limit of event times counts what is there": Mistake(
        SavedTimes, "keep_events", lambda _: None, 100, 56
    ),
    # leaders that change
    "the next leader believes the clock of the one before": Mistake(
        LeaderClocks, "behind_ms", lambda *_: 0, 200, 61
    ),
    "append times that stood still count as they are": Mistake(
        behind, "note_standstill", lambda *_: None, 200, 3
    ),
    "a restart forgets which leader's clock was behind": Mistake(
        partition_times, "pack", lambda times: PACK(times._replace(written_behind=None)), 0, 17875
    ),
    # P4
    "a round deletes one too many": Mistake(retainer, "segments_to_delete", one_too_many),
    "a round leaves one that is due": Mistake(retainer, "segments_to_delete", all_but_one),
    "explain forgets floor and grace": Mistake(
        explanation, "retention_schedule", explained_without_floor
    ),
    **{name: Mistake(*where, seeds=200) for name, where in MISTAKES.items()},
}


@contextlib.contextmanager
def injected(name: str | None) -> Iterator[None]:
    """Injects one mistake for the time of a `with` block; None injects none."""
    if name is None:
        yield
        return
    mistake = BUGS[name]
    with mock.patch.object(mistake.owner, mistake.name, mistake.wrong):
        yield

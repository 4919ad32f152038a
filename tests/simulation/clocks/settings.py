"""What a run is made of: the times that producers send, and the settings of the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.clocks.model import Rules
from tidelog.config.setting import LONG_MAX

if TYPE_CHECKING:
    import random

SECOND, MINUTE, HOUR, DAY, YEAR = 1_000, 60_000, 3_600_000, 86_400_000, 31_557_600_000
BEGIN_MS = 1_780_000_000_000
RELEASED_MS = BEGIN_MS - 100 * DAY
RELEASES = {"0.9.0": 0, "0.10.2": 1, "3.0": 2}  # and the message format of each

STAMPS = {
    "right": lambda world: world.machine.true_ms - world.random.randint(0, 5_000),
    "seconds": lambda world: world.machine.true_ms // 1_000,
    "microseconds": lambda world: world.machine.true_ms * 1_000,
    "nanoseconds": lambda world: world.machine.true_ms * 1_000_000,
    "decades ahead": lambda world: world.machine.true_ms + 20 * YEAR,
    "decades behind": lambda world: world.machine.true_ms - 30 * YEAR,
    "a week ahead": lambda world: world.machine.true_ms + 7 * DAY,
    "constant": lambda world: BEGIN_MS - 40 * DAY,
    "none": lambda world: -1,
    "negative": lambda world: -world.random.randint(2, 2 * YEAR),
    "disordered": lambda world: world.machine.true_ms + world.random.randint(-9 * DAY, 9 * DAY),
    "the broker's": lambda world: world.machine.wall_ms,
}


def choose(random: random.Random) -> dict[str, Any]:
    """Chooses the settings of a topic."""
    pick = random.choice
    is_by_event = pick([False, False, True])
    return {
        "retention_ms": -1 if is_by_event else pick([HOUR, 6 * HOUR, DAY, 7 * DAY, -1]),
        "retention_bytes": pick([-1, -1, -1, 3_000, 12_000]),
        "retention_time_basis": pick(["record", "record", "append"]),
        "retention_max_eventtime_ms": pick([HOUR, 2 * DAY] if is_by_event else [-1, -1, DAY]),
        "retention_max_eventtime_grace_ms": pick([HOUR, HOUR, 0, DAY]),
        "retention_min_append_ms": pick([0, 0, 0, 2 * HOUR, 3 * DAY]),
        "event_time_ahead_max_ms": pick([HOUR, HOUR, 0, DAY]),
        "segment_ms": pick([10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY]),
        "segment_min_roll_interval_ms": pick([10_000, 10_000, 0, HOUR]),
        "segment_bytes": pick([1 << 20, 1 << 20, 2_000]),
        "message_format_version": pick(["0.9.0", "0.10.2", "3.0", "3.0", "3.0"]),
        "message_timestamp_type": pick(["CreateTime", "CreateTime", "LogAppendTime"]),
        "message_timestamp_after_max_ms": pick([None, None, LONG_MAX - 1]),
        "file_delete_delay_ms": 0,
    }


def rules_of(settings: dict[str, Any]) -> Rules:
    """Returns what the settings mean to the model."""
    return Rules(
        settings["retention_ms"],
        settings["retention_bytes"],
        settings["retention_time_basis"] == "append",
        settings["retention_max_eventtime_ms"],
        settings["retention_max_eventtime_grace_ms"],
        settings["retention_min_append_ms"],
        settings["event_time_ahead_max_ms"],
        settings["segment_ms"],
        settings["segment_min_roll_interval_ms"],
        settings["segment_bytes"],
    )

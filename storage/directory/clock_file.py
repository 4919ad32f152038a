"""What is known about the clock, in two small files of the first log directory.

`clock-checkpoint` is written durably: at the first start, when the clock has changed, and once an
hour. `recent-clock-checkpoint` is written every ten seconds and not durably: a power loss may leave
an old, an empty or a damaged one. Both have the same format, and that with the larger serial number
is the newer (`checked_json`). They are replaced whole by rename.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.storage import filenames, files
from tidelog.storage.directory.checked_json import CheckedJsonError, mismatched, packed, unpacked
from tidelog.storage.time.corrections import ClockHistory, ForwardStep
from tidelog.storage.time.trusted_clock import ClockState, Course, Leap, Reading, StepBack

if TYPE_CHECKING:
    from pathlib import Path


class StoredClock(NamedTuple):
    """What is stored about the clock."""

    serial: int  # grows with each write
    state: ClockState
    history: ClockHistory
    steps_back: tuple[StepBack, ...] = ()  # the last ones, to be shown


def read_clock(directory: Path) -> tuple[StoredClock | None, list[str]]:
    """Returns what was stored last, None if nothing was, and what is wrong with the files."""
    found, wrong = [], []
    for name in (filenames.CLOCK_CHECKPOINT, filenames.RECENT_CLOCK_CHECKPOINT):
        path = directory / name
        try:
            found.append(parse_clock(path.read_bytes()))
        except FileNotFoundError:
            continue
        except (OSError, CheckedJsonError) as error:
            wrong.append(f"{path}: {error}")
    return max(found, key=lambda each: each.serial, default=None), wrong


def write_clock(directory: Path, stored: StoredClock, *, durable: bool) -> None:
    """Replaces one of the files; raises OSError."""
    name = filenames.CLOCK_CHECKPOINT if durable else filenames.RECENT_CLOCK_CHECKPOINT
    files.replace(directory / name, packed(_fields(stored)), durable=durable, losable=not durable)


def _fields(stored: StoredClock) -> dict[str, Any]:
    state, history = stored.state, stored.history
    return {
        "serial": stored.serial,
        **state._asdict(),
        "history_id": history.history_id,
        "steps": [(number, *step) for number, step in history.steps],
        "steps_back": stored.steps_back,
    }


def parse_clock(data: bytes) -> StoredClock:
    """Returns what the bytes of a file hold; raises CheckedJsonError."""
    fields = unpacked(data, "the clock")
    try:
        leap = fields["leap"]
        state = ClockState(
            Reading(*fields["last"]),
            Course(*fields["course"]),
            tuple(Course(*each) for each in fields["left"]),
            None if leap is None else Leap(*leap),
            fields["behind_ms"],
            fields["behind_from_ms"],
            tuple(Course(*each) for each in fields.get("leapt", ())),
        )
        steps = tuple((number, ForwardStep(*step)) for number, *step in fields["steps"])
        history = ClockHistory(fields["history_id"], steps)
        steps_back = tuple(StepBack(*step) for step in fields.get("steps_back", ()))
        return StoredClock(fields["serial"], state, history, steps_back)
    except (ValueError, KeyError, TypeError) as error:
        raise mismatched(error) from error

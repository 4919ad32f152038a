"""What the tests of complaints do again and again, on tidelog and on Apache Kafka alike."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.broker import asking
from tests.broker.subject import eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.oracle import wire

NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS, HOUR_MS, DAY_MS, YEAR_MS = 60_000, 3_600_000, 86_400_000, 365 * 86_400_000
EARLIEST, LATEST, LARGEST = -2, -1, -3


def wall_ms() -> int:
    """The machine's clock, which Kafka lives by."""
    return time.time_ns() // 1_000_000


def write(connection: wire.Connection, topic: str, times: Iterable[int], size: int = 200) -> None:
    """One request for each time; every one must be acknowledged."""
    for one in times:
        answer = asking.produce(connection, topic, recordset.batch([Rec(one, b"v" * size)]))
        assert answer["error_code"] == 0, answer


def create(connection: wire.Connection, **settings: str) -> str:
    """A topic with small segments that keeps everything, unless told otherwise."""
    name = asking.new_name("field")
    asking.create(connection, name, **{"segment_bytes": "300", "retention_ms": "-1", **settings})
    eventually(
        lambda: asking.list_offset(connection, name, EARLIEST)["error_code"] == 0,
        what="a leader: Kafka names one before it has become it",
    )
    return name


def found(connection: wire.Connection, topic: str, target: int, **more: int) -> tuple[int, int]:
    """(offset, time) of a lookup."""
    got = asking.list_offset(connection, topic, target, **more)
    assert got["error_code"] == 0, got
    return got["offset"], got["timestamp"]


def start_of(connection: wire.Connection, topic: str) -> int:
    """The first offset that is still there."""
    return found(connection, topic, EARLIEST)[0]


def trim(connection: wire.Connection, topic: str, offset: int) -> None:
    """Delete the records before an offset."""
    assert asking.delete_records(connection, topic, offset)[0] == 0


def segments(log_dir: Path, topic: str) -> Sequence[int]:
    """Where the segments of partition 0 begin."""
    return sorted(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log"))


def wait_for_a_round(connection: wire.Connection) -> None:
    """Until Kafka's retention has deleted what was due when it was called."""
    control = create(connection, retention_ms="1")
    write(connection, control, [0, 0, 0])
    eventually(lambda: start_of(connection, control) >= 2, what="Kafka's retention to come round")

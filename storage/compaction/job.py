"""What one cleaning of a log has to know, as plain values, so that another process can do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.storage.time.adoption import Adopted, Adoptions
from tidelog.storage.time.corrections import Correction

if TYPE_CHECKING:
    from collections.abc import Mapping

_SLOT_BYTES = 24  # memory of a key, by offset
_SLOT_BYTES_BY_TIME = 40  # 32 in the compiled map, and a quarter of that for one of the tombstones
_LEAST_KEYS = 1_000


class SourceSegment(NamedTuple):
    """A segment as it was when the cleaning began."""

    base_offset: int
    end_offset: int
    size: int


class LastWrite(NamedTuple):
    """The end of what an idempotent producer wrote: its last data offset (-1: none) and its epoch."""

    last_offset: int
    epoch: int


class Job(NamedTuple):
    """All that a cleaning needs to know, as plain values, so that another process can do it."""

    sources: tuple[SourceSegment, ...]  # every segment that lies below the upper offset, in order
    first_dirty_offset: int
    upper_offset: int  # only what lies before it may be cleaned
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    by_time: bool
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    dedupe_bytes: int  # memory for keys
    load_factor: float
    write_bytes: int  # gathered before they are written
    event_slack_ms: int
    back_offset: int  # where the append clock was last reset
    writers: Mapping[int, LastWrite]  # by producer id
    adoptions: Adoptions
    corrections: tuple[Correction, ...] = ()  # of append times
    late_horizons: tuple[int, int] | None = None  # see `counted_horizon`
    is_old_due: bool = False  # the clean section's tombstones of formats 0 and 1 may go
    waiting: tuple[
        SourceSegment, ...
    ] = ()  # by time: the segments behind, which are not cleaned yet

    def packed(self) -> dict[str, Any]:
        """Returns the values as JSON can hold them."""
        return {**self._asdict(), "writers": [[p, *w] for p, w in self.writers.items()]}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Job:
        """Returns the value of which `packed` made a JSON object."""
        fields = dict(packed)
        for name in ("sources", "waiting"):
            fields[name] = tuple(SourceSegment(*each) for each in fields[name])
        fields["writers"] = {p: LastWrite(*rest) for p, *rest in fields["writers"]}
        ranges, latest_ms = fields["adoptions"]
        fields["adoptions"] = Adoptions(tuple(Adopted(*each) for each in ranges), latest_ms)
        fields["corrections"] = tuple(Correction(*each) for each in fields["corrections"])
        late_horizons = fields["late_horizons"]
        fields["late_horizons"] = None if late_horizons is None else tuple(late_horizons)
        return cls(**fields)

    @property
    def most_keys(self) -> int:
        """The number of keys that fit into `dedupe_bytes`."""
        slot = _SLOT_BYTES_BY_TIME if self.by_time else _SLOT_BYTES
        return max(int(self.dedupe_bytes / slot * self.load_factor), _LEAST_KEYS)

    @property
    def most_tombstones(self) -> int:
        """The number of keys for which it is looked whether a tombstone may go, by time."""
        return self.most_keys // 4 if self.by_time else 0

"""When a micro-batch is due, by `minOffsetsPerTrigger` and `maxTriggerDelay`."""

from __future__ import annotations


class Triggers:
    """Holds micro-batches back until they are large enough, or the last one is long ago.

    The first one of a started query is not held back, as in Spark's Kafka source.
    """

    def __init__(self) -> None:
        self._last_s: float | None = None

    def is_due(self, offsets: int, least: int, delay_s: float, now_s: float) -> bool:
        """Returns whether `offsets` new ones make a micro-batch at a moment of a monotonic clock."""
        is_due = self._last_s is None or now_s - self._last_s >= delay_s or offsets >= least
        if is_due:
            self._last_s = now_s
        return is_due

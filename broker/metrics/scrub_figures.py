"""The bytes that scrubbing has read, and the damage that it found, for /metrics and `tidelog doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.scrub_file import Damage


class ScrubFigures:
    """The figures of one broker. The event loop changes them, and other threads read them."""

    def __init__(self) -> None:
        """Nothing has been read yet."""
        self.bytes_read = 0
        self.ended_ms: int | None = None  # when the last whole pass ended, by the broker's clock
        self._damage: dict[tuple[str, int, int], Damage] = {}

    def damage(self, topic: str | None = None) -> list[Damage]:
        """Returns the damaged segments, of all topics or of one, in order."""
        known = sorted(self._damage.values())
        return [each for each in known if topic in (None, each.topic)]

    def restore(self, damage: Iterable[Damage]) -> None:
        """Restores the damage that was known before the start."""
        for each in damage:
            self._damage[each[:3]] = each

    def known(self, topic: str, partition: int, base_offset: int) -> Damage | None:
        """Returns the known damage of a segment; None if there is none."""
        return self._damage.get((topic, partition, base_offset))

    def record(self, topic: str, partition: int, base_offset: int, damage: Damage | None) -> None:
        """Stores the damage of a segment that was read whole; None: it has none."""
        if damage is None:
            self._damage.pop((topic, partition, base_offset), None)
        else:
            self._damage[topic, partition, base_offset] = damage

    def keep(self, topic: str, partition: int, base_offsets: Container[int]) -> None:
        """Drops the damage of segments that a log does not have any more."""
        for key in list(self._damage):
            if key[:2] == (topic, partition) and key[2] not in base_offsets:
                del self._damage[key]

    def keep_logs(self, names: Container[TopicPartition]) -> None:
        """Drops the damage of logs that are not here any more."""
        for key in list(self._damage):
            if key[:2] not in names:
                del self._damage[key]

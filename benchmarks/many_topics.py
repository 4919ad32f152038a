"""Topics of many partitions, and the parts of requests that name each of the partitions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.oracle import wire

    Fields = dict[str, Any]

PARTITIONS = 2_000  # of each topic


class Topics:
    """Topics t000, t001 and so on, of PARTITIONS each."""

    def __init__(self, count: int) -> None:
        self.names = [f"t{number:03}" for number in range(count)]

    def make(self, connection: wire.Connection, timeout_ms: int) -> None:
        """Creates them."""
        for name in self.names:
            topic = struct.pack(">ih4sihii", 1, 4, name.encode(), PARTITIONS, 1, 0, 0)
            connection.ask_raw(19, 0, topic + struct.pack(">i", timeout_ms))

    def each(self, named: str, number: str, **fields: Any) -> list[Fields]:
        """Returns all topics, with these fields for each partition."""
        partitions = [{number: index, **fields} for index in range(PARTITIONS)]
        return [{named: name, "partitions": partitions} for name in self.names]

    def indexes(self, named: str, indexes: str) -> list[Fields]:
        """Returns all topics, with the numbers of their partitions."""
        return [{named: name, indexes: list(range(PARTITIONS))} for name in self.names]

    def committed(self) -> list[Fields]:
        """Returns what a commit of offset 0 for each partition names."""
        return self.each(
            "name",
            "partition_index",
            committed_offset=0,
            committed_leader_epoch=-1,
            committed_metadata="",
        )

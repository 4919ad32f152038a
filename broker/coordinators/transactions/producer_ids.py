"""Producer ids that no producer has had, from blocks that the metadata store allocates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.broker.metadata.cluster import ClusterMetadata

_BLOCK: Final = 1000


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._ids = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Returns a producer id that nobody has had. Raises KafkaStorageError."""
        async with self._lock:
            for producer_id in self._ids:
                return producer_id
            self._ids = iter(await self._metadata.allocate_producer_ids(_BLOCK))
            return next(self._ids)

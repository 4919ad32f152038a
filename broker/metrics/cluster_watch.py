"""Counts elections and changes of ISRs of the partitions that this broker leads.

Compares each image of the metadata with the one before. Changes between two images, such as an ISR that
shrinks and expands again at once, are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.image import changed_topics

if TYPE_CHECKING:
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.records import PartitionRecord


class ClusterWatch:
    """Counters since the start, of the partitions that this broker leads."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.unclean_elections = 0

    async def run(self) -> None:
        """Compares each new image, until cancelled."""
        image = self._metadata.image
        while True:
            newer = await self._metadata.newer_image(image.revision)
            self.compare(image, newer)
            image = newer

    def compare(self, before: Image, after: Image) -> None:
        """Counts the elections and changes of ISRs between two images."""
        for topic in changed_topics(after, before):
            earlier = before.topics.get(topic.name)
            if earlier is None or earlier.topic_id != topic.topic_id:
                continue
            for old, new in zip(earlier.assignments, topic.assignments, strict=False):
                if old is not new and new.leader == self._metadata.node_id:
                    self._count(old, new)

    def _count(self, old: PartitionRecord, new: PartitionRecord) -> None:
        if old.leader != new.leader:
            self.elections += 1
            if new.is_recovering and not old.is_recovering:
                self.unclean_elections += 1
        elif len(new.isr) < len(old.isr):
            self.isr_shrinks += 1
        elif len(new.isr) > len(old.isr):
            self.isr_expands += 1

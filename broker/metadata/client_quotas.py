"""Changes of client quotas in the metadata: one key for each entity that has quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata import records
from tidelog.broker.metadata.store import MOST_COMPARISONS, Delete, absent, unchanged_since

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.store import Compare, Operation
    from tidelog.broker.quotas.entity import Entity

    Changes = Mapping[str, float | None]  # by the key of the quota; None removes one

_AT_ONCE = MOST_COMPARISONS // 2  # entities of one transaction: each needs two comparisons


async def alter(metadata: ClusterMetadata, changes: Mapping[Entity, Changes]) -> None:
    """Sets some of the quotas of entities, or removes those that are None; does not check the values.

    Raises KafkaStorageError; then it is unknown which of them are changed.
    """
    entities = list(changes)
    for start in range(0, len(entities), _AT_ONCE):
        some = {each: changes[each] for each in entities[start : start + _AT_ONCE]}
        while not await _alter(metadata, some):
            pass  # others have changed them since the image: try again on the newest one


async def _alter(metadata: ClusterMetadata, changes: Mapping[Entity, Changes]) -> bool:
    """Commits changes; returns False, and changes nothing, if any of the keys is not as in the image."""
    image = metadata.image
    compares: list[Compare] = []
    operations: list[Operation] = []
    for entity, ops in changes.items():
        before = image.quotas.get(entity, {})
        merged: dict[str, float | None] = {**before, **ops}
        after = {key: value for key, value in merged.items() if value is not None}
        if after == before:
            continue
        compares += _unchanged(image, entity)
        key = records.quota_key(entity)
        operations.append(records.put_quotas(entity, after) if after else Delete(key))
    return not operations or await metadata.transact(compares, operations) is not None


def _unchanged(image: Image, entity: Entity) -> tuple[Compare, ...]:
    key = records.quota_key(entity)
    return unchanged_since(key, image.revision) if entity in image.quotas else absent(key)

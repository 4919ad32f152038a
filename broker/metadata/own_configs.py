"""The dynamic settings of one of several brokers, which win over those of all brokers.

They are in a key of each broker's own. A broker that has none has no key.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from broker.metadata import records
from broker.metadata.store import Delete, absent, unchanged_since

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.image import Image
    from broker.metadata.store import Operation


def of(image: Image, broker: int) -> Mapping[str, str]:
    """Returns the settings that a broker has alone."""
    return image.own_configs.get(broker, MappingProxyType({}))


async def alter(
    metadata: ClusterMetadata, changes: Mapping[str, str | None], *, since: Image
) -> bool:
    """Sets some of this broker's own settings, or removes those that are None.

    Returns False, and changes nothing, if they have changed `since`.
    """
    key = records.own_configs_key(metadata.node_id)
    named = {**of(since, metadata.node_id), **changes}
    configs = {name: value for name, value in named.items() if value is not None}
    operation: Operation = Delete(key)
    if configs:
        operation = records.put_own_configs(metadata.node_id, configs)
    has_key = metadata.node_id in since.own_configs
    compares = unchanged_since(key, since.revision) if has_key else absent(key)
    return await metadata.transact(compares, (operation,)) is not None

"""The dynamic settings of one of several brokers, which win over those of all brokers.

Each broker's settings are in a key of its own. A broker without any has no key. An older tidelog refuses
such keys as damage; its registration shows it, because it names no protocol.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog.broker.metadata import records
from tidelog.broker.metadata.store import Delete, absent, unchanged_since
from tidelog.protocol.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.store import Operation


def of(image: Image, broker: int) -> Mapping[str, str]:
    """Returns the dynamic settings of one broker."""
    return image.own_configs.get(broker, MappingProxyType({}))


def check_readable(image: Image, what: str = "settings of one broker") -> None:
    """Checks that every registered broker ignores keys that it does not know.

    `what` names the content of such keys for the error. Raises InvalidConfig.
    """
    older = [
        str(broker)
        for broker, registered in sorted(image.registrations.items())
        if not registered.record.protocol
    ]
    if older:
        raise InvalidConfig(
            f"{what} cannot be read by the older tidelog of broker {', '.join(older)}, "
            f"which would not start any more: upgrade it first, or unregister it if it is gone for good"
        )


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

"""The start of the topics: settings, logs and metadata, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata import topic_writes
from tidelog.broker.metadata.local import shared_path
from tidelog.broker.topics.adoption import adopt_logs
from tidelog.broker.topics.leadership import claim_partitions
from tidelog.broker.topics.strays import rename_unknown_logs

if TYPE_CHECKING:
    from tidelog.broker.topics.services import Services


async def open_topics(services: Services) -> None:
    """Opens the log store, makes the logs match the metadata, and adopts logs without metadata.

    A broker in a cluster adopts none: it renames logs of topics that do not exist to `-stray`. After a
    crash it recovers each log when the log begins to lead or follow: others lead meanwhile.

    The metadata must be open, and the log directories locked if another process might use them.
    Raises InvalidConfig if the broker's settings are inconsistent, LogDirectoryError, and
    KafkaStorageError. The caller closes the store in any case.
    """
    await services.topics.store_implied_basis()
    image = services.metadata.image
    services.settings.use(image)
    services.store.default_config = services.config.topic_defaults
    is_alone = not services.cluster.is_shared
    is_beside = not is_alone and _has_metadata_beside(services)
    services.store.open(
        services.clock.now_ms(),
        services.settings.served_topics(image),
        recovers_later=not is_alone and not is_beside,
        is_alone=is_alone,
    )
    if not is_alone:  # the shared metadata decide which broker leads, and which topics there are
        await services.pools.topics.run(rename_unknown_logs, services.store, image)
        if is_beside:  # those of a broker that was alone until now
            await claim_partitions(
                services.metadata, services.store, services.pools.reads, unknown_only=True
            )
        await services.topics.start()
        return
    await topic_writes.abandon_creations(services.metadata)
    await topic_writes.inherit_deletions(services.metadata)
    await claim_partitions(services.metadata, services.store, services.pools.reads)
    await services.topics.start()
    await adopt_logs(services)


def _has_metadata_beside(services: Services) -> bool:
    """Returns whether the metadata that brokers share lie in a log directory of this one."""
    shared = shared_path(services.config)
    if shared is None:
        return False
    beside = shared.resolve().parent
    return any(path.resolve() == beside for path in services.store.log_dirs)

"""Whether a broker is alone or one of several: what that changes at its start and at its end.

A broker that never was one of several imports nothing of `broker/cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.local import FILE as METADATA_FILE
from tidelog.broker.metadata.local import shared_path
from tidelog.storage.filenames import REGISTRATION_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Protocol

    from tidelog.broker.cluster.alone import Alone
    from tidelog.broker.cluster.cluster import Cluster
    from tidelog.broker.http.services import Services as Below
    from tidelog.broker.metrics.cluster_watch import ClusterWatch
    from tidelog.config import BrokerConfig

    class Services(Below, Protocol):
        """What a broker is that may become one of several."""

        cluster_watch: ClusterWatch | None

        def join(self, cluster: Cluster) -> object:
            """Makes this broker one of several, whose logs have replicas on others."""


def check_directories(config: BrokerConfig, directories: Sequence[Path]) -> None:
    """Refuses directories of another cluster, before metadata are made. Raises LogDirectoryError."""
    if config.cluster.metadata_store:
        from tidelog.broker.cluster.directories import check_metadata_beside

        check_metadata_beside(directories, shared_path(config))
    elif _were_shared(directories) and not (directories[0] / METADATA_FILE).exists():
        from tidelog.broker.cluster.alone import check_not_of_a_cluster

        check_not_of_a_cluster(directories)


def _were_shared(directories: Iterable[Path]) -> bool:
    """Returns whether one of several brokers has used a directory."""
    return any((path / REGISTRATION_FILE).exists() for path in directories)


def member_of(services: Services) -> Cluster | Alone | None:
    """Returns what a broker is that is, or was, one of several; None for one that never was.

    Raises MetadataError, LogDirectoryError and OSError.
    """
    if services.config.cluster.metadata_store:
        from tidelog.broker.cluster.cluster import Cluster
        from tidelog.broker.metrics.cluster_watch import ClusterWatch

        services.join(Cluster(services))
        services.cluster_watch = ClusterWatch(services.metadata)
        return services.cluster
    if services.metadata.image.registrations or _were_shared(services.store.log_dirs):
        from tidelog.broker.cluster.alone import Alone

        return Alone(services)
    return None


async def leave(services: Services, member: Cluster | Alone | None) -> None:
    """Closes the logs, and then ends the session and says in the directories how it ended."""
    if member is None:
        return
    failed = {partition.directory.parent for partition in services.partitions.offline()}
    is_flushed = False
    try:
        services.store.close(unlocks=False)  # the next process waits until all is written
        is_flushed = True
    finally:
        await member.leave(is_flushed=is_flushed, failed=failed)

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

    from tidelog.broker.cluster.alone import Alone
    from tidelog.broker.cluster.cluster import Cluster
    from tidelog.broker.node import Node
    from tidelog.config import BrokerConfig


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


def member_of(node: Node) -> Cluster | Alone | None:
    """Returns what a broker is that is, or was, one of several; None for one that never was.

    Raises MetadataError, LogDirectoryError and OSError.
    """
    if node.config.cluster.metadata_store:
        from tidelog.broker.cluster.cluster import Cluster
        from tidelog.broker.metrics.cluster_watch import ClusterWatch

        node.join(Cluster(node))
        node.cluster_watch = ClusterWatch(node.metadata)
        return node.cluster
    if node.metadata.image.registrations or _were_shared(node.store.log_dirs):
        from tidelog.broker.cluster.alone import Alone

        return Alone(node)
    return None


async def leave(node: Node, member: Cluster | Alone | None) -> None:
    """Closes the logs, and then ends the session and says in the directories how it ended."""
    if member is None:
        return
    failed = {partition.directory.parent for partition in node.partitions.offline()}
    is_flushed = False
    try:
        node.store.close(unlocks=False)  # the next process waits until all is written
        is_flushed = True
    finally:
        await member.leave(is_flushed=is_flushed, failed=failed)

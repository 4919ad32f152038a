"""A broker that is alone, on metadata or directories that brokers of a cluster have used.

Promises that it claims nothing of which another broker has a replica, and that a later start in the
cluster knows whether its logs have lost something meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.clock import machine_boot_id
from tidelog.broker.cluster.directories import Directories, has_file, used_by
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.metadata.store import MetadataError
from tidelog.storage.directory.log_directory import LogDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidelog.broker.cluster.services import Services
    from tidelog.broker.metadata.image import Image


class Alone:
    """The log directories of a broker that was one of several, and is alone now."""

    def __init__(self, services: Services) -> None:
        """Writes down that the logs change from here on.

        Raises MetadataError if other brokers have replicas, LogDirectoryError if a directory belongs
        to another broker, and OSError.
        """
        image = services.metadata.image
        check_alone(image, services.config.cluster.node_id)
        self._directories = Directories(
            services.store.log_dirs,
            machine_boot_id(),
            image.cluster_id,
            services.config.cluster.node_id,
        )
        self._directories.note_use()

    async def leave(self, *, is_flushed: bool, failed: Iterable[Path]) -> None:
        """Writes down how the process ends; see `Cluster.leave`. Raises OSError."""
        self._directories.note_end(is_flushed=is_flushed, failed=failed)


def check_alone(image: Image, broker: int) -> None:
    """Raises MetadataError if other brokers have replicas of partitions, or lead them."""
    if not image.registrations:
        return  # only brokers of a cluster register
    others: set[int] = set()
    partitions = 0
    for topic in image.topics.values():
        for record in topic.assignments:
            found = {*record.replicas, record.leader} - {broker, NO_LEADER}
            others |= found
            partitions += bool(found)
    if not others:
        return
    named = " and ".join(map(str, sorted(others)))
    who = f"brokers {named} have" if len(others) > 1 else f"broker {named} has"
    count = f"{partitions} partition{'s' if partitions > 1 else ''}"
    raise MetadataError(
        f"broker {broker} cannot be alone: {who} replicas of {count}; "
        f"start all of them with --brokers {max(broker, *others)}, and to be alone then, move what "
        f"they have with 'tidelog broker remove ID'"
    )


def check_not_of_a_cluster(paths: Iterable[Path]) -> None:
    """Raises LogDirectoryError if a directory is that of one of several brokers.

    To be called before metadata are made in the first directory.
    """
    for path in filter(has_file, paths):
        raise LogDirectoryError(
            f"log directory {path} belongs to {used_by(path)}: start that broker with the metadata "
            f"of its cluster (--brokers, or --set metadata.store=sqlite:PATH)"
        )

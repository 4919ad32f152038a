"""Bugs to inject in what makes a log durable: syncs that do nothing, and promises that are made too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.storage.log_model.host import Host
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.power_loss import Disk

INSTALL, FLUSH = Host.install, Partition.flush


def skipping(is_skipped: Callable[[Path], bool]) -> Callable[[Host, Disk], None]:
    """Let syncs of some files, or of the names in some directories, do nothing."""

    def install(host: Host, disk: Disk) -> None:
        disk.skips = is_skipped
        INSTALL(host, disk)

    return install


def acknowledged_early(partition: Partition) -> int:
    """Acknowledge what came while the disk was busy as well."""
    FLUSH(partition)
    return partition.log_end_offset


def recovery_point_ahead(partition: Partition) -> int:
    """Take what was appended meanwhile for durable: the next flush passes it by."""
    end = FLUSH(partition)
    partition.state.mark_durable(0, recovery_point=partition.log_end_offset)
    return end


def checkpoint_first(store: LogStore) -> None:
    for partition in store.opened():
        partition.state.mark_durable(0, recovery_point=partition.log_end_offset)
    store._write_checkpoints()


# What each is, and what is replaced by what.
BUGS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "the log is not synced": (Host, "install", skipping(lambda path: path.suffix == ".log")),
    "append times are not synced": (
        Host,
        "install",
        skipping(lambda path: path.suffix == ".appendtimes"),
    ),
    "names of segments are not synced": (Host, "install", skipping(lambda path: path.is_dir())),
    "what came during a sync is acknowledged": (Partition, "flush", acknowledged_early),
    "the recovery point is ahead of the sync": (Partition, "flush", recovery_point_ahead),
    "a checkpoint comes before the sync": (LogStore, "checkpoint", checkpoint_first),
}

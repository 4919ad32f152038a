"""The metadata of a broker that stores them in one file beside its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.cluster import ClusterMetadata
from broker.metadata.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


def local_metadata(path: Path, node_id: int = 1) -> ClusterMetadata:
    """Returns the metadata in a SQLite file, not opened yet, for the broker with this id."""
    return ClusterMetadata(SqliteStore(path), node_id)

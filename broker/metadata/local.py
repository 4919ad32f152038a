"""The metadata of brokers that store them in one file of their machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker.metadata.cluster import ClusterMetadata
from broker.metadata.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from config import BrokerConfig

FILE = "tidelog.sqlite"  # in the first log directory of a broker that is alone


def metadata_of(config: BrokerConfig) -> ClusterMetadata:
    """Returns the metadata that a broker's settings name, not opened yet."""
    if not config.metadata_store:
        return local_metadata(Path(config.log_dirs[0]) / FILE, config.node_id)
    return local_metadata(shared_path(config), config.node_id, is_shared=True)


def shared_path(config: BrokerConfig) -> Path:
    """Returns the path of the metadata file that several brokers share."""
    return Path(config.metadata_store.removeprefix("sqlite:"))


def local_metadata(path: Path, node_id: int = 1, *, is_shared: bool = False) -> ClusterMetadata:
    """Returns the metadata in a SQLite file, not opened yet, for the broker with this id.

    If the file is shared, other brokers of this machine have it open too: each notices at once what
    another has committed, and that another has died, and then deletes its key `live/ID`.
    """
    return ClusterMetadata(shared_store(path, node_id) if is_shared else SqliteStore(path), node_id)


def shared_store(path: Path, node_id: int) -> SqliteStore:
    """Returns the store of one of several brokers with the same file, not opened yet."""
    # Loaded here, because a broker that is alone needs none of it.
    from broker.metadata.broker_records import live_key
    from broker.metadata.liveness.peers import Peers
    from broker.metadata.liveness.registration import remove_dead

    async def on_death(other: int) -> None:
        await remove_dead(store, path.parent, other, live_key(other))

    store = SqliteStore(path, peers=Peers(path.parent, node_id, on_death))
    return store

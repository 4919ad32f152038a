"""Opens the metadata store that a broker's settings name: a file of its machine, or etcd."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import MetadataError
from tidelog.config.broker.etcd_address import is_etcd, parse_etcd

if TYPE_CHECKING:
    from tidelog.broker.metadata.liveness.peers import Peers
    from tidelog.config import BrokerConfig
    from tidelog.config.broker.cluster import ClusterConfig

log = logging.getLogger("tidelog.etcd")

FILE = "tidelog.sqlite"  # in the first log directory, unless `metadata.store` names another place


def metadata_of(config: BrokerConfig) -> ClusterMetadata:
    """Returns the metadata that a broker's settings name, not opened yet.

    Raises MetadataError if they need a library that is not installed, or a file that cannot be read.
    """
    path = _path_of(config)
    if path is None:
        return _in_etcd(config.cluster)
    if not config.cluster.metadata_store:
        return local_metadata(path, config.cluster.node_id)
    blocked_after_s = config.cluster.broker_session_timeout_ms / 1000
    return local_metadata(
        path, config.cluster.node_id, is_shared=True, blocked_after_s=blocked_after_s
    )


def places_of(config: BrokerConfig) -> list[Path]:
    """Returns the directories of a broker: those of its logs, and that of its metadata if it is apart."""
    places = [Path(directory) for directory in config.log_dirs]
    path = _path_of(config)
    if path is not None and not any(each.is_relative_to(path.parent) for each in places):
        places.append(path.parent)
    return places


def are_beside_logs(config: BrokerConfig) -> bool:
    """Returns whether the metadata are a file in a log directory of the broker.

    Then its logs are those of an only broker, or were before others joined.
    """
    path = _path_of(config)
    return path is not None and path.resolve().parent in (
        Path(directory).resolve() for directory in config.log_dirs
    )


def _path_of(config: BrokerConfig) -> Path | None:
    """Returns the path of the metadata file; None if the metadata are no file."""
    if not config.cluster.metadata_store:
        return Path(config.log_dirs[0]) / FILE
    return shared_path(config)


def shared_path(config: BrokerConfig) -> Path | None:
    """Returns the path of the metadata file that several brokers share; None if it is no file."""
    store = config.cluster.metadata_store
    return None if is_etcd(store) else Path(store.removeprefix("sqlite:"))


def _in_etcd(config: ClusterConfig) -> ClusterMetadata:
    try:
        from tidelog.broker.metadata.etcd.login import EtcdUser
        from tidelog.broker.metadata.etcd.members import EtcdTls
        from tidelog.broker.metadata.etcd.store import EtcdStore
    except ModuleNotFoundError as error:
        raise MetadataError(
            f"metadata in etcd need a library that is not installed ({error.name}): "
            f"pip install '.[etcd]' in a clone of tidelog"
        ) from None
    files = (
        config.metadata_store_ca_file,
        config.metadata_store_certificate_file,
        config.metadata_store_key_file,
    )
    tls = EtcdTls(*(Path(name) if name else None for name in files)) if any(files) else None
    name, password_file = config.metadata_store_user, config.metadata_store_password_file
    user = EtcdUser(name, Path(password_file)) if name else None
    if user is not None and tls is None:
        log.warning(
            "etcd password sent without TLS",
            extra={"user": name, "advice": "set metadata.store.ca.file to use TLS"},
        )
    store = EtcdStore(parse_etcd(config.metadata_store), tls, user=user)
    # etcd counts the revisions of all who use it.
    return ClusterMetadata(store, config.node_id, is_new=lambda found: not found.pairs)


def local_metadata(
    path: Path, node_id: int = 1, *, is_shared: bool = False, blocked_after_s: float | None = None
) -> ClusterMetadata:
    """Returns the metadata in a SQLite file, not opened yet, for the broker with this id.

    If the file is shared, other brokers of this machine have it open too: each notices at once that
    another has committed, or has died, and then deletes the dead broker's key `live/ID`. If a write waits
    for other processes for longer than `blocked_after_s`, the log names them.
    """
    if not is_shared:
        return ClusterMetadata(SqliteStore(path), node_id)
    store, peers = _shared(path, node_id, blocked_after_s)
    return ClusterMetadata(store, node_id, peers.perhaps_dead)


def shared_store(path: Path, node_id: int) -> SqliteStore:
    """Returns the store of one of several brokers with the same file, not opened yet."""
    return _shared(path, node_id)[0]


def _shared(
    path: Path, node_id: int, blocked_after_s: float | None = None
) -> tuple[SqliteStore, Peers]:
    # Loaded here, because a broker that is alone needs none of it.
    from tidelog.broker.metadata.brokers.records import live_key
    from tidelog.broker.metadata.liveness.peers import Peers
    from tidelog.broker.metadata.liveness.registration import remove_dead

    async def on_death(other: int) -> None:
        await remove_dead(store, path.parent, other, live_key(other))

    peers = Peers(path.parent, node_id, on_death)
    store = SqliteStore(path, peers=peers, blocked_after_s=blocked_after_s)
    return store, peers

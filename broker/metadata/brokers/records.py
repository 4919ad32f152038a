"""The records that brokers write about themselves: sessions, registrations, offline logs, the controller.

`live/ID`, `seen/ID` and `controller` belong to a lease and end with it; `broker/ID` and `offline/ID`
stay. The revision that created `live/ID` is the broker epoch (KIP-631), that of `controller` the
controller epoch. docs/formats.md lists the values.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.broker.metadata.brokers.keys import (
    CONTROLLER,
    LIVE_PREFIX,
    OFFLINE_PREFIX,
    REGISTRATION_PREFIX,
    SEEN_PREFIX,
)
from tidelog.broker.metadata.names import read_id, written_id
from tidelog.broker.metadata.values import numbers, put, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from tidelog.broker.metadata.store import Put

_NO_PARTITIONS: Mapping[UUID, tuple[int, ...]] = MappingProxyType({})


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int


class Secret(str):
    """A string whose repr is hidden, so that no log shows it: only brokers of the cluster use it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


NO_SECRET: Final = Secret()


class LiveBrokerRecord(NamedTuple):
    """A session of a broker. Each session has a different `incarnation`.

    Its requests to other brokers are authenticated by the `secret` (decision 44); "" in the session of an
    older tidelog, which has none.

    A fenced broker leads nothing and is in no ISR; it is fenced until it has caught up with the
    metadata. A broker that `is_stopping` is in a controlled shutdown (KIP-841): it leads nothing
    either, and joins no ISR.
    """

    incarnation: str
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    is_fenced: bool = True
    is_stopping: bool = False
    secret: Secret = NO_SECRET


class RegistrationRecord(NamedTuple):
    """The last registration of a broker, which outlives its session.

    `directories` are the ids of its log directories; of a broker that was always the only one there are
    none. `is_clean` is true if its logs have lost nothing since the registration before. `protocol` is its
    inter.broker.protocol.version; "" in a registration of an older tidelog.
    """

    incarnation: str
    directories: tuple[str, ...] = ()
    is_clean: bool = False
    protocol: str = ""


class OfflineRecord(NamedTuple):
    """The partitions that a broker cannot or should not lead: their numbers, by topic id.

    The logs of `partitions` have failed, in the log directories with the ids `directories`; the
    broker's next start is then unclean. Those of `full` take no appends, because their disk is
    full, and have lost nothing. Those of `slow` are on a slow disk: others should lead them.
    """

    directories: tuple[str, ...] = ()
    partitions: Mapping[UUID, tuple[int, ...]] = _NO_PARTITIONS
    full: Mapping[UUID, tuple[int, ...]] = _NO_PARTITIONS
    slow: Mapping[UUID, tuple[int, ...]] = _NO_PARTITIONS


class SeenRecord(NamedTuple):
    """The revision of a broker's image in which a stopping broker leads nothing any more."""

    revision: int


class ControllerRecord(NamedTuple):
    """The broker that is the controller."""

    broker: int


BrokerRecord: TypeAlias = (
    LiveBrokerRecord | RegistrationRecord | OfflineRecord | SeenRecord | ControllerRecord
)


def live_key(broker: int) -> str:
    """Returns the key of a broker's session."""
    return f"{LIVE_PREFIX}{broker}"


def registration_key(broker: int) -> str:
    """Returns the key of a broker's last registration."""
    return f"{REGISTRATION_PREFIX}{broker}"


def offline_key(broker: int) -> str:
    """Returns the key of the partitions that a broker cannot lead."""
    return f"{OFFLINE_PREFIX}{broker}"


def seen_key(broker: int) -> str:
    """Returns the key of a broker's `SeenRecord`."""
    return f"{SEEN_PREFIX}{broker}"


def broker_of(key: str) -> int:
    """Returns the broker's id in one of the four keys above. Raises ValueError."""
    return int(key.partition("/")[2])


def put_live(broker: int, record: LiveBrokerRecord, lease: int) -> Put:
    """Returns the operation that writes a broker's session, which ends with its lease."""
    return put(live_key(broker), record._asdict())._replace(lease=lease)


def put_registration(broker: int, record: RegistrationRecord) -> Put:
    """Returns the operation that writes a broker's registration."""
    return put(registration_key(broker), record._asdict())


def put_offline(broker: int, record: OfflineRecord) -> Put:
    """Returns the operation that writes the partitions that a broker cannot lead."""
    fields = {
        "partitions": _by_written_id(record.partitions),
        "full": _by_written_id(record.full),
        "slow": _by_written_id(record.slow),
    }
    return put(offline_key(broker), {"directories": record.directories, **fields})


def put_seen(broker: int, revision: int, lease: int) -> Put:
    """Returns the operation that writes the revision that a broker has seen, until its lease ends."""
    return put(seen_key(broker), {"revision": revision})._replace(lease=lease)


def put_controller(broker: int, lease: int) -> Put:
    """Returns the operation that makes a broker the controller until its lease ends."""
    return put(CONTROLLER, {"broker": broker})._replace(lease=lease)


def read(key: str, fields: Mapping[str, Any]) -> BrokerRecord:
    """Returns the record in the JSON value of a key. Raises KeyError, TypeError and ValueError."""
    if key == CONTROLLER:
        return ControllerRecord(int(fields["broker"]))
    if key.startswith(LIVE_PREFIX):
        broker_of(key)
        return LiveBrokerRecord(
            text(fields["incarnation"]),
            tuple(
                Endpoint(text(listener), text(host), int(port))
                for listener, host, port in fields["endpoints"]
            ),
            None if fields["rack"] is None else text(fields["rack"]),
            bool(fields["is_fenced"]),
            bool(fields["is_stopping"]),
            Secret(text(fields.get("secret", NO_SECRET))),  # an older tidelog writes none
        )
    if key.startswith(REGISTRATION_PREFIX):
        broker_of(key)
        directories = tuple(map(text, fields["directories"]))
        protocol = text(fields.get("protocol", ""))
        is_clean = bool(fields["is_clean"])
        return RegistrationRecord(text(fields["incarnation"]), directories, is_clean, protocol)
    if key.startswith(SEEN_PREFIX):
        broker_of(key)
        return SeenRecord(int(fields["revision"]))
    if not key.startswith(OFFLINE_PREFIX):
        raise ValueError("nobody here writes such a key")
    broker_of(key)
    directories = tuple(map(text, fields["directories"]))
    return OfflineRecord(
        directories,
        _by_id(fields["partitions"]),
        _by_id(fields["full"]),
        _by_id(fields.get("slow", {})),  # an older tidelog writes none
    )


def _by_written_id(partitions: Mapping[UUID, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {written_id(topic_id): indexes for topic_id, indexes in partitions.items()}


def _by_id(partitions: Mapping[str, Iterable[int]]) -> Mapping[UUID, tuple[int, ...]]:
    return MappingProxyType({read_id(id_): numbers(found) for id_, found in partitions.items()})

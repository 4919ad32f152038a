"""The brokers of the cluster as an image knows them: sessions, registrations, and the controller."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.brokers.records import (
    ControllerRecord,
    LiveBrokerRecord,
    OfflineRecord,
    RegistrationRecord,
    SeenRecord,
    broker_of,
)
from tidelog.broker.metadata.image import Members

if TYPE_CHECKING:
    from collections.abc import Iterable


class LiveBroker(NamedTuple):
    """The session of a broker.

    `epoch` is the broker epoch, the revision that created the key; `mod_revision` is the one that
    last modified it.
    """

    broker: int
    epoch: int
    record: LiveBrokerRecord
    mod_revision: int


class Registration(NamedTuple):
    """The last registration of a broker.

    `epoch` is the revision of the registration, in which the session with that epoch began.
    `is_first` says that the cluster has known no registration of it before.
    """

    broker: int
    epoch: int
    record: RegistrationRecord
    is_first: bool = False


class Offline(NamedTuple):
    """What a broker cannot lead, and the revision that last modified it."""

    broker: int
    record: OfflineRecord
    mod_revision: int


class Controller(NamedTuple):
    """The controller. `epoch` is the controller epoch, the revision that created its key."""

    broker: int
    epoch: int


def members(stored: Iterable[tuple[str, object, int, int]]) -> Members:
    """Returns the members that keys name: (key, record, create revision, mod revision) of each."""
    live: dict[int, LiveBroker] = {}
    registered: dict[int, Registration] = {}
    offline: dict[int, Offline] = {}
    seen: dict[int, int] = {}
    controller = None
    for key, record, created, modified in stored:
        if isinstance(record, LiveBrokerRecord):
            live[broker_of(key)] = LiveBroker(broker_of(key), created, record, modified)
        elif isinstance(record, RegistrationRecord):
            registered[broker_of(key)] = Registration(
                broker_of(key), modified, record, created == modified
            )
        elif isinstance(record, OfflineRecord):
            offline[broker_of(key)] = Offline(broker_of(key), record, modified)
        elif isinstance(record, SeenRecord):
            seen[broker_of(key)] = record.revision
        elif isinstance(record, ControllerRecord):
            controller = Controller(record.broker, created)
    return Members(
        MappingProxyType(live),
        MappingProxyType(registered),
        MappingProxyType(offline),
        controller,
        MappingProxyType(seen),
    )

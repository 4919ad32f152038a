"""Reads the brokers of the cluster, and the controller, from the keys that brokers write."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog.broker.metadata.brokers.members import (
    Controller,
    LiveBroker,
    Members,
    Offline,
    Registration,
)
from tidelog.broker.metadata.brokers.records import (
    ControllerRecord,
    LiveBrokerRecord,
    OfflineRecord,
    RegistrationRecord,
    SeenRecord,
    broker_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


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

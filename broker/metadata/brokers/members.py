"""The brokers of the cluster in an image: sessions, registrations, offline logs, and the controller."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.metadata.brokers.records import (
        LiveBrokerRecord,
        OfflineRecord,
        RegistrationRecord,
    )

_NONE: MappingProxyType[Any, Any] = MappingProxyType({})


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
    `is_first` is true if the cluster has had no registration of it before.
    """

    broker: int
    epoch: int
    record: RegistrationRecord
    is_first: bool = False


class Offline(NamedTuple):
    """The partitions that a broker cannot or should not lead, and the revision that last modified the key."""

    broker: int
    record: OfflineRecord
    mod_revision: int


class Controller(NamedTuple):
    """The controller. `epoch` is the controller epoch, the revision that created its key."""

    broker: int
    epoch: int


class Members(NamedTuple):
    """The brokers of the cluster, by broker id, and the controller."""

    brokers: Mapping[int, LiveBroker] = _NONE
    registrations: Mapping[int, Registration] = _NONE
    offline: Mapping[int, Offline] = _NONE
    controller: Controller | None = None
    seen: Mapping[int, int] = _NONE  # the revisions at which brokers saw those that stop

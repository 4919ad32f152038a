"""Connections beyond the limits of all connections, which are for other brokers.

Brokers connect by the listeners of the clients, so nobody knows who it is that connects. As many
connections as the other brokers may need are accepted beyond max.connections, and beyond
max.connection.creation.rate: `FOR_EACH_BROKER` for each of them. Such a connection may ask only what brokers
ask each other (`admission.ASKED_BETWEEN_BROKERS`). One that has proven in a request which broker it is stays
as long as that broker's session; of the others the one that was silent for longest makes room for the next
that comes.

In Kafka the listener of the brokers, if it is another one than that of the clients, closes the connection
of another listener that was silent for longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.network.connection import Connection

FOR_EACH_BROKER: Final = 4
"""Connections that another broker may need: for fetches, transactions, and some that are not closed yet."""


class OverLimit:
    """The open connections that are beyond the limits."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Adds one more, for which there has to be room."""
        self._open.add(connection)
        connection.is_over_limit = True

    def discard(self, connection: Connection) -> None:
        """Removes one that has left, if it is beyond the limits."""
        self._open.discard(connection)

    def make_room(self, image: Image, me: int) -> tuple[bool, Connection | None]:
        """Returns whether there is room for one more, and who has to be closed for it."""
        others = len(image.registrations.keys() - {me})
        if len(self._open) < FOR_EACH_BROKER * others:
            return True, None
        strangers = [each for each in self._open if not _is_of_live_broker(each, image)]
        if not others or not strangers:
            return False, None
        return True, min(strangers, key=lambda connection: connection.last_active_s)


def _is_of_live_broker(connection: Connection, image: Image) -> bool:
    if connection.proven is None:
        return False
    broker, epoch = connection.proven
    live = image.brokers.get(broker)
    return live is not None and live.epoch == epoch

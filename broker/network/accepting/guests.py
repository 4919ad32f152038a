"""Connections beyond the limits of all connections, which are for other brokers.

Brokers connect by the listeners of the clients, so nobody knows who it is that connects. As many
connections as the other brokers may need are accepted beyond max.connections, and beyond
max.connection.creation.rate: `FOR_EACH_BROKER` for each of them. Such a guest may ask only what brokers ask
each other (`ASKED_BETWEEN_BROKERS`). A guest that has proven in a request which broker it is stays as long as
that broker's session; of the others the one that was silent for longest makes room for the next that comes.

In Kafka the listener of the brokers, if it is another one than that of the clients, closes the connection
of another listener that was silent for longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.protocol.api import add_partitions_to_txn, fetch, write_txn_markers
from tidelog.protocol.message import API_VERSIONS

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.network.connection import Connection

FOR_EACH_BROKER: Final = 4
"""Connections that another broker may need: for fetches, transactions, and some that are not closed yet."""
ASKED_BETWEEN_BROKERS: Final = frozenset(
    (
        API_VERSIONS,
        fetch.API.key,
        write_txn_markers.API.key,
        add_partitions_to_txn.API.key,
    )
)


class Guests:
    """The open connections that are beyond the limits."""

    def __init__(self) -> None:
        # Each with the broker that it is, and the epoch of its session, once that is known.
        self._open: dict[Connection, tuple[int, int] | None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Takes one more, for which there has to be room."""
        self._open[connection] = None
        connection.is_guest = True

    def discard(self, connection: Connection) -> None:
        """Forgets one that has left, if it is a guest."""
        self._open.pop(connection, None)

    def recognize(self, connection: Connection, broker: int, epoch: int, image: Image) -> None:
        """Notes which broker a guest has proven to be, in the session of which epoch."""
        if connection in self._open and _is_live(broker, epoch, image):
            self._open[connection] = broker, epoch

    def make_room(self, image: Image, me: int) -> tuple[bool, Connection | None]:
        """Returns whether there is room for one more, and who has to be closed for it."""
        others = len(image.registrations.keys() - {me})
        if len(self._open) < FOR_EACH_BROKER * others:
            return True, None
        strangers = [
            connection
            for connection, known in self._open.items()
            if known is None or not _is_live(*known, image)
        ]
        if not others or not strangers:
            return False, None
        return True, min(strangers, key=lambda connection: connection.last_active_s)


def _is_live(broker: int, epoch: int, image: Image) -> bool:
    live = image.brokers.get(broker)
    return live is not None and live.epoch == epoch

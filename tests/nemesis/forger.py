"""A stranger beside the load, who forges what brokers ask each other, and never has an error code of 0.

It claims to be each of the brokers, behind at offset 0 of every partition, in sessions of now (broker epochs
are small numbers), of old and of the far future, with and without a proof that it guesses. It ends
transactions with the largest coordinator epoch. A request that a broker has served is the event `Believed`.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from tests import forged
from tests.nemesis.clients import Client
from tests.nemesis.history import Believed, Failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.forged import Forged
    from tests.nemesis.history import History, Place

_PAUSE_S = 0.02
_PATIENCE_S = 2.0
_EPOCHS = 3_000  # revisions of the metadata, of which broker epochs are some
_LATER_EPOCH, _LAST_COORDINATOR = 2**62, 2**31 - 1


def topic_ids(bootstrap: str, topics: Sequence[str]) -> dict[str, bytes]:
    """Returns the ids of topics, as anybody is told them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = {}
    for name, future in admin.describe_topics(TopicCollection(list(topics))).items():
        told = future.result(30).topic_id
        bits = told.get_most_significant_bits(), told.get_least_significant_bits()
        found[name] = b"".join((each & (2**64 - 1)).to_bytes(8, "big") for each in bits)
    return found


class Forger(Client):
    """A client that asks one broker after the other."""

    def __init__(
        self,
        history: History,
        addresses: Sequence[str],
        places: Sequence[Place],
        ids: Mapping[str, bytes],
    ) -> None:
        """`addresses` are those of the brokers 1, 2, ...; `ids` the ids of the topics."""
        super().__init__("forger", history)
        self._answered = 0
        self._addresses, self._places, self._ids = addresses, places, ids
        self._random = random.Random(self.name)

    def work(self) -> None:
        """Forges until the end; it is a problem if no broker has answered."""
        while not self.is_over.wait(_PAUSE_S):
            with contextlib.suppress(OSError, struct.error):  # a broker is away
                self._attack(self._random.choice(self._addresses))
        if not self._answered and not self.is_abandoned:
            self.history.add(Failed(self.name, "no broker has answered"))

    def _attack(self, address: str) -> None:
        """Asks one broker for a while on one connection."""
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), _PATIENCE_S) as connection:
            for _ in range(50):
                if self.is_over.wait(_PAUSE_S):
                    return
                what, request = self._next()
                connection.sendall(request.frame)
                (size,) = struct.unpack(">i", _received(connection, 4))
                code = request.code_in(_received(connection, size)[4:])
                self._answered += 1
                if not code:
                    self.history.add(Believed(address, what))

    def _next(self) -> tuple[str, Forged]:
        """Returns the next request, and what it is."""
        draw, place = self._random, self._random.choice(self._places)
        broker = draw.randint(1, len(self._addresses))
        kind = draw.randrange(5)
        if kind == 0:
            ended = forged.marker((draw.randrange(9), 0), place, _LAST_COORDINATOR, is_commit=True)
            return f"a marker in {place}", ended
        if kind == 1:
            return f"an old fetch of {broker} in {place}", forged.old_fetch(
                broker, place.topic, (place.partition, 0)
            )
        epoch = _LATER_EPOCH if kind == 2 else draw.randrange(_EPOCHS)
        tags = (
            forged.sender_tags(broker, epoch, draw.randbytes(16)) if kind == 3 else forged.NO_TAGS
        )
        fetch = forged.fetch(broker, epoch, self._ids[place.topic], (place.partition, 0), tags)
        return f"a fetch of {broker} in epoch {epoch} in {place}", fetch


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        data += more
    return data

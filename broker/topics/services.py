"""The services that changes of topics use; `boot.py` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.network.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.pools import Pools
    from tidelog.broker.topics.topics import Topics
    from tidelog.storage.directory.store import LogStore


class Membership(Protocol):
    """This broker in its cluster."""

    async def take_over(self, services: Services) -> None:
        """Takes over what belongs to no other broker, when the logs are open and before any is created.

        Raises KafkaStorageError.
        """

    async def adopt_logs(self, services: Services) -> None:
        """Creates topics of logs without one, if only an operator can have brought such logs."""

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now. Raises KafkaStorageError."""

    def for_placing(self, image: Image) -> Image:
        """Returns an image whose registrations are those of the brokers that can be given replicas."""

    def restore_reserves(self) -> None:
        """Makes reserves again where a disk has room, after it was full; for a thread."""


class Services(Below, Protocol):
    """The services that changes of topics use."""

    @property
    def cluster(self) -> Membership: ...

    @property
    def pools(self) -> Pools: ...

    @property
    def store(self) -> LogStore: ...

    @property
    def topics(self) -> Topics: ...

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now. Raises KafkaStorageError."""

"""What every coordinator does: it has a topic, follows who leads its partitions, starts and stops."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.broker.coordination.internal_topic import InternalTopic
from tidelog.broker.coordination.loading import Loader
from tidelog.broker.coordination.ownership import Ownership
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordination.following import Following
    from tidelog.broker.coordination.internal_topic import Declared
    from tidelog.broker.coordination.ownership import Load
    from tidelog.broker.coordination.services import Services
    from tidelog.broker.metadata.image import Image

Read = TypeVar("Read")


class Coordinating(ABC, Generic[Read]):
    """The coordinator of the keys of one topic; `Read` is what is read of a partition."""

    def __init__(self, services: Services, declared: Declared, clock: Clock) -> None:
        """`clock` stamps the records."""
        self._services, self._clock, self._declared = services, clock, declared
        self.ownership = Ownership(is_alone=True)
        self.topic = InternalTopic(services, declared, clock, self.ownership)
        self.loader: Loader[Read] = Loader(
            services,
            declared.name,
            self.ownership,
            read=self._read,
            loaded=self._loaded,
            resigned=self._resigned,
        )
        self._following: Following | None = None
        self._chores: list[asyncio.Task[None]] = []

    @abstractmethod
    def _read(self, index: int, goes_on: Callable[[], bool]) -> Read:
        """Reads a partition, in a thread."""

    @abstractmethod
    def _loaded(self, load: Load, read: Read) -> None:
        """Takes in what a partition has."""

    @abstractmethod
    def _resigned(self, indexes: Sequence[int]) -> None:
        """Drops what partitions have that another broker coordinates now."""

    def _followed(self, image: Image) -> None:
        """Takes each image of the metadata, as one of several brokers."""

    def join_cluster(self) -> None:
        """Coordinates only the keys of partitions that this broker leads, of several brokers."""
        # A broker that is alone needs none of it.
        from tidelog.broker.coordination.following import Following

        self.ownership.join()
        self._following = Following(
            self._services,
            self._declared.name,
            self._declared.replication_factor,
            self.ownership,
            carry_out=self.loader.carry_out,
            followed=self._followed,
        )

    def roles_changed(self) -> None:
        """Hears that a log on this broker leads now, or leads no more."""
        if self._following is not None:
            self._following.look_again()

    def _begin(self, *work: Coroutine[Any, Any, None]) -> None:
        """Starts to read what is stored, and other work that goes on until `_end`."""
        if self._following is not None:
            work += (self._following.run(),)
        elif not self.topic.is_missing:
            self.loader.carry_out(self.ownership.begin_alone(self.topic.partitions()))
        loop = asyncio.get_running_loop()
        self._chores = [loop.create_task(each) for each in (self.loader.run(), *work)]

    async def _end(self) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)


def resolve(ticket: asyncio.Future[Any], outcome: object) -> None:
    """Answers who waits with a result, or with an error, unless somebody has."""
    if ticket.done():
        return
    if isinstance(outcome, BrokerError):
        ticket.set_exception(outcome)
    else:
        ticket.set_result(outcome)

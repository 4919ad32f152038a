"""The replicas of this broker: what the rest of the broker may ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.metadata.image import Image


class Replicas(Protocol):
    """All partitions of which this broker has a replica; its methods run on the event loop."""

    def apply(self, image: Image) -> None:
        """Gives each partition the role that an image says, once its log is there."""
        ...

    def stop_all(self, reason: str) -> None:
        """Gives up every role, because the session of this broker has ended."""
        ...

    def tick(self) -> None:
        """Lets time pass for every replica."""
        ...

    async def close(self) -> None:
        """Gives up every role and waits for the work in progress."""
        ...

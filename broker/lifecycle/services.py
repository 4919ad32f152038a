"""The services that a member of a cluster uses, and what it offers to other rooms; `boot.py` makes both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.logs.maintenance.services import Services as Below
from tidelog.broker.logs.services import Membership as BelowMembership

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tidelog.broker.logs.services import Services as LogServices
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.network.accepting.listener import Listener


class Membership(BelowMembership, Protocol):
    """This broker in its cluster: `Cluster`, or `SoleMember` where nobody shares the metadata."""

    async def take_over(self, services: LogServices) -> None:
        """Takes over what belongs to no other broker, when the logs are open and before any is created.

        Raises KafkaStorageError.
        """

    async def adopt_logs(self, services: LogServices) -> None:
        """Creates topics of logs without one, if only an operator can have brought such logs."""

    @property
    def why_not_serving(self) -> str | None:
        """What keeps this broker from serving, as a sentence; None while it serves."""

    @property
    def metadata_error(self) -> str | None:
        """Why the metadata cannot be changed now, as a sentence; None if they can."""

    @property
    def unwritable(self) -> Mapping[Path, str]:
        """Why nothing can be written to log directories."""

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now. Raises KafkaStorageError."""

    def for_placing(self, image: Image) -> Image:
        """Returns an image whose registrations are those of the brokers that can be given replicas."""

    def enter(self) -> None:
        """Checks the log directories before logs are opened.

        Raises MetadataError, LogDirectoryError and OSError.
        """

    async def start(self, listeners: Iterable[Listener]) -> None:
        """Registers, and returns when this broker may serve. Raises MetadataError and KafkaStorageError."""

    async def hand_over(self) -> None:
        """Waits until other brokers lead what this one leads, or until the time for it is over."""

    async def leave(self, *, is_flushed: bool, failed: Iterable[Path]) -> None:
        """Ends the session. Nothing may be served any more; see `Cluster.leave`."""


class Services(Below, Protocol):
    """The services that a member of a cluster uses."""

    @property
    def cluster(self) -> Membership: ...

"""What the work on this broker's logs needs of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.network.services import Services as Below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.logs.reconciler import Reconciler
    from tidelog.broker.pools import Pools
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.time.trusted_clock import Change


class Membership(Protocol):
    """This broker in its cluster."""

    def restore_reserves(self) -> None:
        """Makes reserves again where a disk has room, after it was full; for a thread."""


class Groups(Protocol):
    """The groups that this broker coordinates."""

    async def correct_times(self, changes: Sequence[Change]) -> None:
        """Corrects the times of committed offsets by steps of the clock."""


class Services(Below, Protocol):
    """What the work on this broker's logs needs."""

    @property
    def cluster(self) -> Membership: ...

    @property
    def coordinator(self) -> Groups: ...

    @property
    def pools(self) -> Pools: ...

    @property
    def reconciler(self) -> Reconciler: ...

    @property
    def store(self) -> LogStore: ...

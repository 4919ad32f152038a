"""One line of the log for what happens to many partitions at once, with their number.

When a broker dies, thousands of partitions get another leader within a second. A line says how many, and
names the first ones; each partition has a line of its own only at debug level.
"""

from __future__ import annotations

import asyncio
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WITHIN_S: Final = 1.0  # what happens within this time is one line
_NAMED: Final = 5

_Key = tuple[int, str, tuple[tuple[str, object], ...]]


class FoldedLog:
    """The lines about partitions that are to be logged together; used on one event loop."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._partitions: dict[_Key, list[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self,
        level: int,
        what: str,
        partition: str,
        own: Mapping[str, object] = MappingProxyType({}),
        **same: object,
    ) -> None:
        """Logs what has happened to a partition, soon, in one line with others of the `same` fields.

        The partition's line has its `own` fields, too.
        """
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug(what, extra={"log": partition, **same, **own})
        self._partitions.setdefault((level, what, tuple(same.items())), []).append(partition)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WITHIN_S, self.flush)

    def flush(self) -> None:
        """Logs at once what is still to be logged."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._partitions = self._partitions, {}
        for (level, what, same), partitions in gathered.items():
            self._log.log(level, what, extra=folded(partitions, **dict(same)))


def folded(partitions: Sequence[str], **fields: object) -> dict[str, object]:
    """Returns the fields of a line about some partitions: how many, and the names of the first ones."""
    named = " ".join(partitions[:_NAMED])
    if len(partitions) > _NAMED:
        named += f" ({len(partitions) - _NAMED} more)"
    return {"partitions": len(partitions), "logs": named, **fields}

"""Logs one line for the same event of many partitions or groups, with their number.

When a broker dies, thousands of partitions get another leader within a second. One line has their number and
the names of the first ones; each one has a line of its own only at debug level.
"""

from __future__ import annotations

import asyncio
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WITHIN_S: Final = 1.0  # the same events within this time are one line
_NAMED: Final = 5

_Key = tuple[int, str, tuple[tuple[str, object], ...]]


class Fields(NamedTuple):
    """The names of the fields of a line: of one name, of the number, and of the first names."""

    name: str
    number: str
    names: str


PARTITIONS: Final = Fields("log", "partitions", "logs")
GROUPS: Final = Fields("group", "groups", "named")


class FoldedLog:
    """Collects lines about partitions or groups that are logged together; used on one event loop."""

    def __init__(self, log: logging.Logger, fields: Fields = PARTITIONS) -> None:
        self._log = log
        self._fields = fields
        self._names: dict[_Key, list[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self,
        level: int,
        what: str,
        name: str,
        own: Mapping[str, object] = MappingProxyType({}),
        **same: object,
    ) -> None:
        """Logs an event of one partition or group, within `WITHIN_S`, with others of the `same` fields.

        The line at debug level has the `own` fields, too.
        """
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug(what, extra={self._fields.name: name, **same, **own})
        self._names.setdefault((level, what, tuple(same.items())), []).append(name)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WITHIN_S, self.flush)

    def flush(self) -> None:
        """Logs all collected lines at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._names = self._names, {}
        for (level, what, same), names in gathered.items():
            self._log.log(level, what, extra=_folded(names, self._fields, dict(same)))


def folded(partitions: Sequence[str], **fields: object) -> dict[str, object]:
    """Returns the fields of a line about some partitions: their number, and the first names."""
    return _folded(partitions, PARTITIONS, fields)


def _folded(names: Sequence[str], fields: Fields, others: dict[str, object]) -> dict[str, object]:
    first = " ".join(names[:_NAMED])
    if len(names) > _NAMED:
        first += f" ({len(names) - _NAMED} more)"
    return {fields.number: len(names), fields.names: first, **others}

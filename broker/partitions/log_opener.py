"""Opening partitions in threads, while the event loop serves others.

Opening reads what a clean stop left: usually a few small files, but a whole segment where an index
is missing or another program has written the log. A partition is opened once, in one thread,
however many requests wait for it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.protocol.errors import BrokerError, KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.broker.pools import Pool
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Partition

    Failures = dict[TopicPartition, BrokerError]


class LogOpener:
    """Opens partitions, and knows which are being opened."""

    def __init__(
        self,
        store: LogStore,
        open_log: Callable[[str, int], Partition | None],
        pool: Pool,
    ) -> None:
        """`open_log` opens one, for threads; raises BrokerError."""
        self._store = store
        self._open_log = open_log
        self._pool = pool
        self._under_way: dict[TopicPartition, asyncio.Future[Failures]] = {}

    def closed(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that are here and have to be opened first."""
        return [name for name in names if self._store.is_closed(*name)]

    async def open(self, names: Iterable[TopicPartition]) -> Failures:
        """Opens partitions, if there are any by these names; returns what went wrong, by name."""
        wanted = self.closed(names)
        missing = [name for name in dict.fromkeys(wanted) if name not in self._under_way]
        if missing:
            work = self._pool.submit(self._open, missing)
            self._under_way.update(dict.fromkeys(missing, work))
            work.add_done_callback(partial(self._done, missing))
        failures: Failures = {}
        for work in {self._under_way[name] for name in wanted}:
            failures |= await asyncio.shield(work)
        return {name: failures[name] for name in wanted if name in failures}

    def _open(self, names: Sequence[TopicPartition]) -> Failures:
        """In the thread: one after another, until the broker stops."""
        failures: Failures = {}
        for name in names:
            try:
                if self._pool.is_stopping:
                    raise KafkaStorageError("the broker stops")
                self._open_log(*name)
            except BrokerError as error:
                failures[name] = error
        return failures

    def _done(self, names: Sequence[TopicPartition], _work: asyncio.Future[Failures]) -> None:
        for name in names:
            del self._under_way[name]

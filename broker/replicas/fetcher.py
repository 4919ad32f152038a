"""Fetches from one leader: one connection, and one request at a time for all partitions it leads.

A partition that is ready while the leader parks a fetch does not wait for its answer: an empty
request on the same connection ends the wait, and the next fetch asks for it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.replicas.serving import SINCE_VERSION
from broker.replicas.views import sent_fetch
from client import apis
from client.async_connection import open_connection
from client.calls.replication import replica_fetch
from client.errors import ClientError

if TYPE_CHECKING:
    from typing import Any
    from uuid import UUID

    from broker.replicas.followed import Followed
    from broker.replicas.local_replica import Name
    from broker.replicas.replicas import Replicas
    from broker.replication.messages import FetchRequest
    from client.async_connection import AsyncConnection
    from protocol.api import fetch

log = logging.getLogger("tidelog.replicas")

_CONNECT_S = 5.0
_ANSWER_S = 30.0  # Kafka's replica.socket.timeout.ms
_FIRST_RETRY_S = 0.02
_LONGEST_RETRY_S = 1.0


class _Sent(NamedTuple):
    followed: Followed
    request: FetchRequest


class Fetcher:
    """Fetches all partitions here that one broker leads."""

    def __init__(self, host: Replicas, leader: int) -> None:
        self._host = host
        self.leader = leader
        self._followed: dict[Name, Followed] = {}
        self._ready = asyncio.Event()
        self._connection: AsyncConnection | None = None
        self._is_asking = False
        self._ends_wait: asyncio.Task[None] | None = None
        self._retry_s = _FIRST_RETRY_S
        self._is_broken = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, followed: Followed) -> None:
        """Fetches a partition from now on."""
        self._followed[followed.name] = followed
        self._retry_s = _FIRST_RETRY_S
        self.ask_again()

    def discard(self, followed: Followed) -> None:
        """Fetches a partition no more."""
        if self._followed.get(followed.name) is followed:
            del self._followed[followed.name]

    def ask_again(self) -> None:
        """Includes what is ready now in a fetch at once."""
        self._ready.set()
        if self._is_asking and self._connection is not None and self._ends_wait is None:
            self._ends_wait = asyncio.get_running_loop().create_task(
                self._end_wait(self._connection)
            )

    async def close(self) -> None:
        """Fetches nothing more."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close()
        tasks = [each for each in (self._task, self._ends_wait) if each is not None]
        await asyncio.wait(tasks)

    # --- the loop ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_until_broken()
            except (ClientError, OSError) as error:
                if not self._is_broken:
                    self._is_broken = True
                    log.warning("no fetch from broker %d: %s", self.leader, error)
            except Exception:
                log.exception("fetching from broker %d failed", self.leader)
            finally:
                self._close_connection()
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(self._retry_s * 2, _LONGEST_RETRY_S)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _fetch_until_broken(self) -> None:
        while True:
            self._ready.clear()
            sent = self._next()
            if not sent:
                await self._ready.wait()
                continue
            connection = await self._connected()
            self._is_asking = True
            try:
                answer = await self._ask(connection, sent)
            finally:
                self._is_asking = False
            self._retry_s, self._is_broken = _FIRST_RETRY_S, False
            if answer.error_code:
                raise ClientError(f"a fetch is refused with error {answer.error_code}")
            self._take(sent, answer)

    def _next(self) -> dict[Name, _Sent]:
        """Returns what to ask for, in turn: the first ones come last the next time."""
        sent: dict[Name, _Sent] = {}
        for name, followed in self._followed.items():
            request = followed.next_fetch()
            if request is not None:
                sent[name] = _Sent(followed, request)
        if len(sent) > 1:
            first = next(iter(sent))
            self._followed[first] = self._followed.pop(first)
        return sent

    async def _connected(self) -> AsyncConnection:
        connection = self._connection
        if connection is None or connection.is_closed:
            endpoint = self._host.endpoint(self.leader)
            if endpoint is None:
                raise ClientError("it is not registered")
            connection = self._connection = await open_connection(
                endpoint.host,
                endpoint.port,
                f"broker-{self._host.cluster.me}-fetcher",
                timeout_s=_CONNECT_S,
            )
        return connection

    async def _ask(self, connection: AsyncConnection, sent: dict[Name, _Sent]) -> Any:
        by_topic: dict[UUID, list[fetch.FetchPartition]] = {}
        most = self._host.partition_max_bytes
        for (topic_id, index), (_, request) in sent.items():
            wanted = sent_fetch(index, request, most)
            by_topic.setdefault(topic_id, []).append(wanted)
        wait_ms = self._host.fetch_wait_ms
        message = replica_fetch(
            self._host.cluster.me,
            self._host.cluster.epoch,
            by_topic,
            max_bytes=self._host.response_max_bytes,
            max_wait_ms=wait_ms,
        )
        return await connection.ask(
            message,
            apis.FETCH,
            timeout_s=_ANSWER_S + wait_ms / 1000,
            least_version=SINCE_VERSION,
        )

    async def _end_wait(self, connection: AsyncConnection) -> None:
        """Lets the leader answer the fetch that it has parked."""
        cluster = self._host.cluster
        message = replica_fetch(cluster.me, cluster.epoch, {}, max_bytes=0, max_wait_ms=0)
        try:
            with contextlib.suppress(ClientError, OSError):  # the fetch fails, too
                await connection.ask(
                    message, apis.FETCH, timeout_s=_ANSWER_S, least_version=SINCE_VERSION
                )
        finally:
            self._ends_wait = None
        if self._ready.is_set() and self._is_asking:  # more are ready since the last fetch was sent
            self.ask_again()

    def _take(self, sent: dict[Name, _Sent], answer: Any) -> None:
        for topic in answer.responses:
            for data in topic.partitions:
                name = (topic.topic_id, data.partition_index)
                asked = sent.get(name)
                if asked is not None and self._followed.get(name) is asked.followed:
                    asked.followed.take(asked.request, data)

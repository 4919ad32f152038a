"""Fetches from one leader: one connection, and one session for all partitions it leads (KIP-227).

Each fetch names the partitions that can be asked for anew: those that the leader has answered, and
that are done with the answer. The others are asked for already. So an idle partition costs nothing.

A partition that is fetched no more is forgotten: its leader must not count the session as a
fetch of it (`Leader.on_forgotten`).

A partition that is ready while the leader parks a fetch does not wait for its answer: the next fetch
is sent at once, and ends the wait of the first.

Answers wait for memory that all fetchers share. Who has it waits for nothing but its leader, the disk
and, for a large compressed batch, memory to unpack it, so each has its turn.

An answer is handled, and the next fetch sent, in the very read of the socket that brings the answer:
producers with acks=all wait for both. An answer that takes long gives way to the loop: the rest of it is
handled in later turns. Another answer may be handled before, for it has other partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.alarm import Alarm
from tidelog.broker.partitions.following.fetch_request import fetch_of, served_last
from tidelog.broker.partitions.views import SINCE_VERSION, endpoint_of, is_in_sync
from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.client.errors import ClientError, raise_for_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any
    from uuid import UUID

    from tidelog.broker.partitions.following.fetch_request import FetcherContext
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower
    from tidelog.broker.partitions.replication.messages import FetchRequest
    from tidelog.broker.partitions.replication.quota import ReplicationQuota
    from tidelog.client.async_connection import AsyncConnection
    from tidelog.protocol.api.fetch import PartitionData
    from tidelog.protocol.message import Message
    from tidelog.protocol.topic_partition import TopicIdPartition

    _Parts = Iterator[tuple[UUID, PartitionData]]

log = logging.getLogger("tidelog.replicas")

_CONNECT_S = 5.0
_ANSWER_S = 30.0  # Kafka's replica.socket.timeout.ms
_LOOK_S = 5.0  # how often overdue answers are searched for
_FIRST_RETRY_S = 0.02
_LONGEST_RETRY_S = 1.0
_MOST_UNDER_WAY = 2  # fetches: one is parked, the other ends its wait
_NAMED = (
    128  # partitions in one fetch, at most: some 5 ms of work on the event loops of both brokers
)
_TAKEN_S = 0.008  # how long an answer holds the loop
_LAST_EPOCH = 2**31 - 1


class _Asked(NamedTuple):
    """A partition that the leader has not answered yet."""

    followed: PartitionFollower
    request: FetchRequest
    number: int  # of the fetch that asked


class _Sent(NamedTuple):
    """A fetch without an answer."""

    number: int
    at_s: float


class Fetcher:
    """Fetches all partitions here that one broker leads."""

    def __init__(self, context: FetcherContext, leader: int) -> None:
        self._context = context
        self.leader = leader
        self._followed: dict[TopicIdPartition, PartitionFollower] = {}
        self._to_ask: dict[
            TopicIdPartition, PartitionFollower
        ] = {}  # in the order in which they became ready
        self._asked: dict[TopicIdPartition, _Asked] = {}
        self._to_forget: dict[TopicIdPartition, None] = {}  # until the next fetch, which names them
        self._sent: deque[_Sent] = deque()
        self._number = 0  # of the last fetch on this connection
        self._session_id = 0
        self._ready = asyncio.Event()
        self._connection: AsyncConnection | None = None
        self._failure: Exception | None = None  # of this connection
        self._version = SINCE_VERSION  # of Fetch, on this connection
        self._retry_s = _FIRST_RETRY_S
        self._is_broken = False
        self._held_back: dict[
            TopicIdPartition, PartitionFollower
        ] = {}  # by the quota, until it is exceeded no more
        # What partitions that may not be asked for now wait for.
        self._busy: dict[TopicIdPartition, asyncio.Future[None]] = {}
        self._quota_alarm = Alarm(self._let_go)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, followed: PartitionFollower) -> None:
        """Fetches a partition from now on."""
        self._followed[followed.name] = followed
        self._to_forget.pop(followed.name, None)  # it is asked for anew
        self._retry_s = _FIRST_RETRY_S
        self.ask_again(followed)

    def discard(self, followed: PartitionFollower) -> None:
        """Stops fetching a partition."""
        name = followed.name
        if self._followed.get(name) is followed:
            del self._followed[name]
            self._to_ask.pop(name, None)
            self._asked.pop(name, None)
            self._held_back.pop(name, None)
            self._busy.pop(name, None)
            if self._session_id or self._sent:  # the session begins with the first answer
                if not self._to_forget:  # all of this turn are forgotten together
                    asyncio.get_running_loop().call_soon(self._send_soon)
                self._to_forget[name] = None

    def ask_again(self, followed: PartitionFollower) -> None:
        """Includes a partition that is ready in a fetch at once."""
        name = followed.name
        if self._followed.get(name) is not followed:
            return
        self._to_ask[name] = followed
        self._send_soon()

    def _send_soon(self) -> None:
        """Sends a fetch beside the one under way, or makes the task of the connection send one."""
        if self._sent:
            with contextlib.suppress(ClientError, OSError):  # what is under way fails, too
                self._send()
        else:
            self._ready.set()

    async def close(self) -> None:
        """Stops fetching."""
        self._task.cancel()
        self._disconnect()
        await asyncio.wait([self._task])

    # --- the loop ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_until_broken()
            except (ClientError, OSError) as error:
                if not self._is_broken:
                    self._is_broken = True
                    log.warning(
                        "fetch from leader failed",
                        extra={"broker": self.leader, "reason": error},
                    )
            except Exception:
                log.exception("fetch from leader failed", extra={"broker": self.leader})
            finally:
                self._disconnect()
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(self._retry_s * 2, _LONGEST_RETRY_S)

    def _disconnect(self) -> None:
        """Ends the connection and its session: everything has to be asked for anew."""
        self._failure = None  # by its traceback it would keep an answer in memory
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._sent.clear()
        self._asked.clear()
        self._to_forget.clear()
        self._held_back.clear()
        self._quota_alarm.close()
        self._to_ask = dict(self._followed)
        if self._to_ask:
            self._ready.set()
        else:
            self._ready.clear()

    async def _fetch_until_broken(self) -> None:
        await self._ready.wait()
        self._connection = connection = await self._connect()
        self._version = connection.version_between(apis.FETCH, SINCE_VERSION)
        self._failure = None
        watch = asyncio.get_running_loop().create_task(self._watch(connection))
        try:
            while self._failure is None:
                self._ready.clear()
                self._send()
                await self._ready.wait()
            raise self._failure
        finally:
            watch.cancel()

    def answered(self, answer: Any) -> None:
        """Handles the answer to the first fetch under way, and sends the next one."""
        if self._failure is not None or not self._sent:
            return
        try:
            number = self._sent.popleft().number
            if answer.error_code:
                raise_for_code(answer.error_code, "a fetch is refused")
            self._retry_s, self._is_broken = _FIRST_RETRY_S, False
            self._session_id = answer.session_id
            self._context.clocks.compare(self.leader, answer.clock_ms)
            left = (
                (topic.topic_id, data) for topic in answer.responses for data in topic.partitions
            )
            self._take(number, left, set())
        except Exception as error:  # noqa: BLE001 - raised again by the loop of this fetcher
            self.broken(error)

    def broken(self, failure: Exception) -> None:
        """Ends this connection: the loop begins another one."""
        self._failure = failure
        self._ready.set()

    async def _watch(self, connection: AsyncConnection) -> None:
        """Ends a connection on which an answer is overdue."""
        while True:
            await asyncio.sleep(_LOOK_S)
            latest_s = self._context.monotonic_s() - _ANSWER_S - self._context.fetch_wait_ms / 1000
            if self._sent and self._sent[0].at_s < latest_s:
                log.warning("fetch from leader timed out", extra={"broker": self.leader})
                connection.close()
                return

    async def _connect(self) -> AsyncConnection:
        endpoint = endpoint_of(self._context.metadata.image, self.leader)
        if endpoint is None:
            raise ClientError("it is not registered")
        self._number = self._session_id = 0
        return await open_connection(
            endpoint.host,
            endpoint.port,
            f"broker-{self._context.cluster.me}-fetcher",
            timeout_s=_CONNECT_S,
            room=self._context.received,
            tags=self._context.senders.tags_for(self.leader),
        )

    # --- fetches ----------------------------------------------------------------------------------

    def _send(self) -> None:
        """Sends fetches until nothing is left to ask for, or enough is under way.

        Raises ConnectionBroken and VersionMismatch.
        """
        while self._send_one() and self._to_ask:
            pass

    def _send_one(self) -> bool:
        """Sends a fetch of some partitions; returns whether it has."""
        connection = self._connection
        if connection is None or len(self._sent) >= _MOST_UNDER_WAY:
            return False
        if not self._session_id:
            if self._sent:
                return False  # the session has not begun yet
            self._number = 0  # begins one
            self._to_forget.clear()
        asked = self._next()
        if not asked and not self._to_forget and (self._sent or not self._asked):
            return False
        connection.post_to(self, self._request(asked), apis.FETCH, self._version)
        self._sent.append(_Sent(self._number, self._context.monotonic_s()))
        self._number += 1
        return True

    def _next(self) -> list[tuple[TopicIdPartition, FetchRequest]]:
        """Returns what to ask for: some partitions that can be fetched now, and are not asked for."""
        ready, self._to_ask = self._to_ask, {}
        quota = self._context.quotas.follower
        if quota is not None:
            ready = self._allowed(ready, quota)
        asked: list[tuple[TopicIdPartition, FetchRequest]] = []
        for name, followed in ready.items():
            if len(asked) == _NAMED:
                self._to_ask[name] = followed
                continue
            request = followed.next_fetch()
            if request is None:
                self._await_ready(followed)
                continue
            self._asked[name] = _Asked(followed, request, self._number)
            asked.append((name, request))
        return asked

    def _await_ready(self, followed: PartitionFollower) -> None:
        """Asks for a partition again once it is no longer busy."""
        busy = followed.busy
        if busy is not None and self._busy.get(followed.name) is not busy:
            self._busy[followed.name] = busy
            busy.add_done_callback(partial(self._is_ready, followed))

    def _is_ready(self, followed: PartitionFollower, done: asyncio.Future[None]) -> None:
        if self._busy.get(followed.name) is done:
            del self._busy[followed.name]
            self.ask_again(followed)

    def _request(self, asked: list[tuple[TopicIdPartition, FetchRequest]]) -> Message | bytes:
        """Returns the next fetch, which asks for some partitions."""
        number = self._number
        session = self._session_id, number and (number - 1) % _LAST_EPOCH + 1
        forgotten, self._to_forget = self._to_forget, {}
        return fetch_of(self._context, self._version, session, asked, forgotten)

    def _allowed(
        self, ready: dict[TopicIdPartition, PartitionFollower], quota: ReplicationQuota
    ) -> dict[TopicIdPartition, PartitionFollower]:
        """Returns what may be asked for; the rest is held back until the quota is exceeded no more.

        A replica that is in sync is never held back.
        """
        wait_ms = quota.wait_ms(self._context.now_ms())
        if not wait_ms:
            return ready
        image, me = self._context.metadata.image, self._context.cluster.me
        held = {
            name: followed
            for name, followed in ready.items()
            if quota.is_throttled(followed.partition.topic, followed.partition.index)
            and not is_in_sync(image, me, name)
        }
        if held:
            self._held_back |= held
            self._quota_alarm.set(asyncio.get_running_loop().time() + wait_ms / 1000)
        return {name: followed for name, followed in ready.items() if name not in held}

    def _let_go(self) -> None:
        """Asks for what the quota has held back."""
        self._to_ask |= self._held_back
        self._held_back = {}
        self._ready.set()
        self._send_soon()

    def _count(self, followed: PartitionFollower, data: Any) -> None:
        """Counts the records of an answer against the quota."""
        quota, partition = self._context.quotas.follower, followed.partition
        if quota is not None and quota.is_throttled(partition.topic, partition.index):
            quota.record(len(data.records), self._context.now_ms())

    def _take(self, number: int, left: _Parts, served: set[TopicIdPartition]) -> None:
        """Handles an answer, for some milliseconds at a time, and in the end sends the next fetch.

        `number` is that of its fetch, `left` are the partitions to handle, `served` those before them that
        came with records.
        """
        asked, now_s = self._asked, self._context.monotonic_s
        until_s = now_s() + _TAKEN_S
        for topic_id, data in left:
            name = (topic_id, data.partition_index)
            found = asked.get(name)
            if found is None or found.number > number:
                continue  # it has changed its role since it asked
            del asked[name]
            self._to_ask[name] = found.followed
            if data.records:
                served.add(name)
                self._count(found.followed, data)
            found.followed.take(found.request, data)
            if now_s() > until_s:
                rest = partial(self._take_rest, self._connection, number, left, served)
                asyncio.get_running_loop().call_soon(rest)
                return
        if served and len(self._to_ask) > 1:
            self._to_ask = served_last(self._to_ask, served)
        if not self._session_id:  # the leader remembers none of the questions
            self._to_ask.update({name: each.followed for name, each in self._asked.items()})
            self._asked.clear()
        self._send()

    def _take_rest(
        self,
        connection: AsyncConnection | None,
        number: int,
        left: _Parts,
        served: set[TopicIdPartition],
    ) -> None:
        if self._failure is not None or self._connection is not connection:
            return  # everything is asked for anew
        try:
            self._take(number, left, served)
        except Exception as error:  # noqa: BLE001 - raised again by the loop of this fetcher
            self.broken(error)

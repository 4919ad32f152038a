"""The members of etcd: chooses the member of each call, with a deadline, and translates its errors.

Every call has a deadline. It goes to a member that is connected, and the next one goes to another
member if this one has failed. A call that may be repeated is tried again within its deadline. Every
call requires a member that has a leader (`hasleader`, etcd's API guide): without it, a watch would wait for
ever at a member that is cut off from the others.

All coroutines run in the loop of gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from aetcd import rpc

from tidelog.broker.metadata.etcd.login import EtcdLogin, LoginError
from tidelog.broker.metadata.store import MetadataError
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tidelog.broker.metadata.etcd.login import EtcdUser, Metadata

log = logging.getLogger("tidelog.etcd")

HAS_LEADER: Metadata = (("hasleader", "true"),)
_ATTEMPT_S = 1.5  # one member has so long to answer, then another one gets the call
_CALL_S = 4.0  # all attempts together
_RETRY_S = 0.05
_NO_LEADER = "etcdserver: no leader"  # before anything is done with the call
_NO_SPACE = "database space exceeded"
_NO_SPACE_MEANS = (
    "is out of space (NOSPACE) and takes no writes: compact and defragment it, then disarm the alarm "
    "(etcdctl compact, defrag, alarm disarm)"
)
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a watch may return many changes in one message
    # A member that is stopped is tried again soon, and one that does not answer is noticed.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd refuses more than one ping in 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
)


class EtcdTls(NamedTuple):
    """Files in PEM form: the trusted CAs (None: those of gRPC), and the client's certificate and key."""

    ca: Path | None
    certificate: Path | None
    key: Path | None


class EtcdMember:
    """One member: its channel, and the services that are used."""

    def __init__(self, endpoint: str, credentials: Any) -> None:
        self.endpoint = endpoint
        self.channel = (
            grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
        )
        self.kv = rpc.KVStub(self.channel)
        self.lease = rpc.LeaseStub(self.channel)
        self.watch = rpc.WatchStub(self.channel)
        self.auth = rpc.AuthStub(self.channel)
        self.maintenance = rpc.MaintenanceStub(self.channel)


class RefusedError(Exception):
    """etcd has refused a call for a reason that concerns its caller; nothing was done."""

    def __init__(self, code: Any, details: str) -> None:
        super().__init__(details)
        self.code = code


class EtcdMembers:
    """All members of one etcd."""

    def __init__(
        self, endpoints: Sequence[str], tls: EtcdTls | None, user: EtcdUser | None = None
    ) -> None:
        """Connects to nothing yet. Raises MetadataError if a file of `tls` cannot be read."""
        self.login = EtcdLogin(user)
        self._endpoints = endpoints
        self._credentials = None if tls is None else _credentials(tls)
        self._members: list[EtcdMember] = []
        self._first = 0  # where the search for a member begins

    async def open(self) -> None:
        """Starts to connect to all of them."""
        self._members = [EtcdMember(each, self._credentials) for each in self._endpoints]
        for member in self._members:
            member.channel.get_state(try_to_connect=True)

    async def close(self) -> None:
        """Closes the connections."""
        for member in self._members:
            await member.channel.close(None)
        self._members = []

    async def call(
        self, method: Callable[[EtcdMember], Any], request: Any, *, is_repeatable: bool
    ) -> Any:
        """Makes a call, and returns its answer.

        A call that is not repeatable is sent again only if a member has refused it without effect.
        Raises RefusedError, and KafkaStorageError.
        """

        async def ask(member: EtcdMember, metadata: Metadata) -> Any:
            return await method(member)(request, timeout=_ATTEMPT_S, metadata=metadata)

        return await self.try_each(ask, is_repeatable=is_repeatable)

    async def try_each(
        self, ask: Callable[[EtcdMember, Metadata], Any], *, is_repeatable: bool
    ) -> Any:
        """Awaits `ask(member, metadata)` for one member after another until one answers; see `call`.

        A member that refuses an old token has done nothing, and gets the call again with a new one.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _CALL_S
        while True:
            member = await self.connected(deadline_s)
            metadata = HAS_LEADER
            try:
                metadata += await self.login.metadata(member)
                return await ask(member, metadata)
            except grpc.aio.AioRpcError as error:
                is_old = self.login.discard_token(
                    error.details() or "", metadata[len(HAS_LEADER) :]
                )
                if not is_old:
                    self.failed(member)
                failure = self.failure_of(member, error)
                if isinstance(failure, RefusedError | LoginError):
                    raise failure from None
                is_undone = is_repeatable or is_old or error.details() == _NO_LEADER
                is_undone |= metadata == HAS_LEADER and self.login.is_needed
                if not is_undone or loop.time() + _RETRY_S >= deadline_s:
                    raise failure from None
            await asyncio.sleep(_RETRY_S)

    async def connected(self, deadline_s: float) -> EtcdMember:
        """Returns a member that is connected, the preferred one if it is.

        Raises KafkaStorageError if there is none until a time of the loop.
        """
        while True:
            states = []
            for turn in range(len(self._members)):
                number = (self._first + turn) % len(self._members)
                member = self._members[number]
                state = member.channel.get_state(try_to_connect=True)
                if state is grpc.ChannelConnectivity.READY:
                    self._first = number
                    return member
                states.append((member, state))
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0 or not states:
                named = ", ".join(self._endpoints)
                raise KafkaStorageError(f"etcd is out of reach: no connection to {named}")
            await _any_change(states, left_s)

    def failure_of(self, member: EtcdMember, error: Any) -> RefusedError | KafkaStorageError:
        """Translates an error of gRPC, also one about the user."""
        refusal = self.login.refusal(member.endpoint, error.details() or "")
        return failure_of(member, error) if refusal is None else refusal

    def failed(self, member: EtcdMember) -> None:
        """Sends the next calls to another member than this one, if there is one."""
        if self._members and self._members[self._first] is member:
            self._first = (self._first + 1) % len(self._members)


async def _any_change(states: list[tuple[EtcdMember, Any]], within_s: float) -> None:
    """Waits until the state of the connection to any of the members changes."""
    waits = [
        asyncio.ensure_future(member.channel.wait_for_state_change(state))
        for member, state in states
    ]
    try:
        await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waits, return_exceptions=True)


def failure_of(member: EtcdMember, error: Any) -> RefusedError | KafkaStorageError:
    """Translates an error of gRPC."""
    code, details = error.code(), error.details() or ""
    if _NO_SPACE in details:
        return KafkaStorageError(f"etcd at {member.endpoint} {_NO_SPACE_MEANS}")
    if code in {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.FAILED_PRECONDITION,
    }:
        return RefusedError(code, details)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        details = f"no answer within {_ATTEMPT_S} s"
    return KafkaStorageError(f"etcd at {member.endpoint}: {details or code.name}")


def alarm_of(errors: Iterable[str]) -> str | None:
    """Returns why a member refuses writes, by the errors in its status, as a sentence; None if it does not.

    The errors are alarms, such as `memberID:7 alarm:NOSPACE`, and "etcdserver: no leader".
    """
    text = " ".join(errors)
    if "NOSPACE" in text:
        return f"etcd {_NO_SPACE_MEANS}"
    if "CORRUPT" in text:
        return (
            "etcd has found that the data of its members differ (CORRUPT) and answers no more: replace "
            "the member that differs, then disarm the alarm (etcdctl alarm list, alarm disarm)"
        )
    return None


def _credentials(tls: EtcdTls) -> Any:
    try:
        ca, certificate, key = (None if path is None else path.read_bytes() for path in tls)
    except OSError as error:
        raise MetadataError(f"cannot read {error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(ca, key, certificate)

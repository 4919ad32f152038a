"""Logs in to etcd with a user and a password: a token for each call, and a new one when etcd requires it.

etcd drops a token after some minutes, when a member restarts, and when users or roles change. It then
refuses a call before anything is done, so the call is sent again with a new token. At each member there is
one login at a time, for all calls that wait for it: a member that hangs does not delay calls to another one.
The file with the password is read for each login: to change the password, change the file.

Source: etcd's guide to role-based access control, and its api/v3rpc/rpctypes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from aetcd import rpc

from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from pathlib import Path

Metadata = tuple[tuple[str, str], ...]

_LOGIN_S = 3.0  # etcd needs a tenth of a second to check the password
_OLD_TOKEN = ("invalid auth token", "revision of auth store is old")
_NO_USER = "user name is empty"
_DENIED = "permission denied"
_WRONG = "authentication failed"
_NOT_ENABLED = "authentication is not enabled"


class EtcdUser(NamedTuple):
    """The broker's user in etcd, and the file whose first line is the password."""

    name: str
    password_file: Path


class LoginError(KafkaStorageError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """etcd refuses the login or the rights of this broker, and trying again does not help."""


class EtcdLogin:
    """The token of one user. All coroutines run in the loop of gRPC."""

    def __init__(self, user: EtcdUser | None) -> None:
        """`user` is None for an etcd without authentication."""
        self._user = user
        self._token: str | None = None
        self._logins: dict[Any, asyncio.Task[str]] = {}  # those under way, by member

    @property
    def is_needed(self) -> bool:
        """Whether a call carries a token."""
        return self._user is not None

    async def metadata(self, member: Any) -> Metadata:
        """Returns the metadata of a call; logs in first, at this member, if there is no token.

        Raises AioRpcError as any call does, and LoginError.
        """
        user = self._user
        if user is None:
            return ()
        token = self._token
        if token is None:
            login = self._logins.get(member)
            if login is None:
                login = self._logins[member] = asyncio.create_task(_token(member, user))
                login.add_done_callback(partial(self._logged_in, member))
            token = await asyncio.shield(login)  # other calls wait for it, too
        return (("token", token),)

    def _logged_in(self, member: Any, attempt: asyncio.Task[str]) -> None:
        del self._logins[member]
        if not attempt.cancelled() and attempt.exception() is None:
            self._token = attempt.result()

    def discard_token(self, details: str, used: Metadata) -> bool:
        """Discards the token if a call with this metadata was refused for it, by etcd's `details`.

        Returns whether to send the call again; then the next call logs in.
        """
        if self._user is None or not any(each in details for each in _OLD_TOKEN):
            return False
        if used == (("token", self._token),):
            self._token = None
        return True

    def refusal(self, where: str, details: str) -> LoginError | None:
        """Returns the error for a refused call; None if the refusal is not about the user."""
        if _NO_USER in details:
            return LoginError(
                f"etcd at {where} asks for a user: set metadata.store.user and "
                f"metadata.store.password.file"
            )
        if _DENIED in details:
            name = "" if self._user is None else f" {self._user.name}"
            return LoginError(
                f"etcd at {where} does not let user{name} read and write the keys of the cluster: grant "
                f"its role readwrite on them (etcdctl role grant-permission ROLE --prefix=true readwrite "
                f"/tidelog/NAME/)"
            )
        return None


async def _token(member: Any, user: EtcdUser) -> str:
    try:
        password = user.password_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginError(f"metadata.store.password.file cannot be read: {error}") from None
    request = rpc.AuthenticateRequest(name=user.name, password=password[0] if password else "")
    try:
        return str((await member.auth.Authenticate(request, timeout=_LOGIN_S)).token)
    except grpc.aio.AioRpcError as error:
        details = error.details() or ""
        if _WRONG in details:
            raise LoginError(
                f"etcd at {member.endpoint} refuses user {user.name}: the name, or the password in "
                f"{user.password_file}, is wrong"
            ) from None
        if _NOT_ENABLED in details:
            raise LoginError(
                f"etcd at {member.endpoint} knows no users: enable them (etcdctl auth enable), or leave "
                f"out metadata.store.user"
            ) from None
        raise

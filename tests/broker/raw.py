"""Frames made by hand, and a connection that sends many before it reads any.

Bodies come from kafka-python's schemas through the wire client of the oracle tests; the frames and
headers are made here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.oracle import wire

if TYPE_CHECKING:
    from tests.broker.subject import Subject
    from tidelog.protocol.topic_partition import TopicPartition


def frame(body: bytes) -> bytes:
    """A body behind its length."""
    return struct.pack(">i", len(body)) + body


def header(
    key: int,
    version: int,
    *,
    correlation_id: int = 7,
    client_id: bytes = b"raw",
    flexible: bool = False,
) -> bytes:
    """A request header of version 1, or 2 if flexible."""
    head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
    return head + (b"\0" if flexible else b"")


def request(api: str, version: int, *, correlation_id: int = 7, **fields: Any) -> bytes:
    """A request without its length."""
    key, flexible, body = wire.encode_request(api, version, fields)
    return header(key, version, correlation_id=correlation_id, flexible=flexible) + body


def name_of(connection: wire.Connection) -> str:
    """The connection as the broker's log names it."""
    host, port = connection._socket.getsockname()
    return f"{host}:{port}"


class Pipe(wire.Connection):
    """Sends requests without waiting; reads answers in the order they come."""

    def __init__(self, broker: Subject, timeout_s: float = 60) -> None:
        super().__init__(broker.bootstrap, timeout_s=timeout_s)
        self.asked: list[TopicPartition] = []

    def push(self, api: str, version: int, **fields: Any) -> None:
        """Send one request; its correlation id is its number."""
        self.send(frame(self.encoded(api, version, **fields)))

    def encoded(self, api: str, version: int, **fields: Any) -> bytes:
        """The next request, noted as sent."""
        self.asked.append((api, version))
        return request(api, version, correlation_id=len(self.asked) - 1, **fields)

    def pull(self) -> tuple[int, Any] | None:
        """The next answer with its request's number; None if the broker closed."""
        answer = self.receive()
        if answer is None:
            return None
        (number,) = struct.unpack_from(">i", answer)
        return number, wire.decode_answer(*self.asked[number], answer[4:])

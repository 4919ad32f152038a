"""Codecs of long messages in steps, and responses that are encoded once for all who ask the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.network.answers import Encoded, Excessive, Pending
from tidelog.broker.network.scheduler import checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Hashable

    from tidelog.protocol.message import Codec, Message
    from tidelog.protocol.wire import Buffer

    Decoding = Generator[None, None, tuple[Any, int]]

ANSWER_BYTES: Final = 64 << 20
"""The most bytes of a response, records aside: librdkafka refuses more than 100 MB."""
_MOST_KEPT = 16


async def decode_in_steps(steps: Decoding) -> Message:
    """Decodes a request that may have many elements, step by step. Raises DecodeError."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            request: Message = end.value[0]
            return request
        await checkpoint()


async def encode_in_steps(codec: Codec, response: Any, what: str) -> list[Buffer]:
    """Encodes a response that may have many elements.

    Raises EncodeError, and Excessive for one of more than ANSWER_BYTES.
    """
    steps = codec.encode_in_steps(response)
    while True:
        try:
            size_bytes = next(steps)
        except StopIteration as end:
            parts: list[Buffer] = end.value
            return parts
        if size_bytes > ANSWER_BYTES:
            text = f"the answer to {what} would have more than {ANSWER_BYTES} bytes"
            raise Excessive(text, text)
        await checkpoint()


class EncodedOnce:
    """Responses that many clients ask for, each made by the first who asks.

    A response is kept under a key for as long as the same holds: for that, who asks gives a `basis`, an
    object that is compared by identity, and what else the response depends on.
    """

    def __init__(self) -> None:
        self._basis: object = None
        self._kept: dict[Hashable, tuple[Hashable, Encoded]] = {}
        self._making: dict[Hashable, asyncio.Future[None]] = {}

    def find(
        self, key: Hashable, basis: object, state: Hashable, again: Callable[[], Any]
    ) -> Encoded | Pending | None:
        """Returns the response that is kept; None if the caller has to make it, by `make`.

        While somebody makes it, returns a Pending that calls `again`.
        """
        if basis is not self._basis:
            self._basis = basis
            self._kept.clear()
        kept = self._kept.get(key)
        if kept is not None and kept[0] == state:
            return kept[1]
        making = self._making.get(key)
        return None if making is None else Pending(making, again)

    async def make(
        self, key: Hashable, basis: object, state: Hashable, make: Callable[[], Awaitable[Encoded]]
    ) -> Encoded:
        """Makes a response, and keeps it unless the basis has changed meanwhile."""
        happened = self._making[key] = asyncio.get_running_loop().create_future()
        try:
            made = await make()
        finally:
            if self._making.get(key) is happened:  # another one may be making it, too
                del self._making[key]
            if not happened.done():
                happened.set_result(None)
        if basis is self._basis and len(self._kept) < _MOST_KEPT:
            self._kept[key] = state, made
        return made

"""Which topics a consumer says it reads: the one place that looks into what members tell one another.

Only groups of the type "consumer" are looked into, and only to know which offsets are in use. What cannot be
read is None: nothing is concluded from it. Source: Kafka's ConsumerProtocolSubscription message.
"""

from __future__ import annotations

from functools import cache

from protocol.message import Codec, DecodeError
from protocol.schema import Bytes, Message, String, since


class ConsumerProtocolSubscription(Message):
    """The beginning of it, the same in every version; owned partitions and more may follow."""

    topics: list[String] = since(0)
    user_data: Bytes | None = since(0, default=None)


@cache
def _codec() -> Codec:
    return Codec(ConsumerProtocolSubscription, 0, flexible=False)


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics of a consumer's subscription; None if it cannot be read."""
    try:
        said, _ = _codec().decode(metadata, 2)
    except DecodeError:
        return None
    return set(said.topics)

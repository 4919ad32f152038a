"""Reads the topics of a consumer's subscription: the only code that reads members' metadata.

The topics are read only for groups of the type "consumer", to know which offsets are in use. A subscription
that cannot be read is None, and nothing is concluded from it. Source: Kafka's
ConsumerProtocolSubscription message.
"""

from __future__ import annotations

from functools import cache

from tidelog.protocol.message import Codec, DecodeError
from tidelog.protocol.schema import Bytes, Message, String, since


class ConsumerProtocolSubscription(Message):
    """The first fields, equal in all versions; owned partitions and more may follow."""

    topics: list[String] = since(0)
    user_data: Bytes | None = since(0, default=None)


@cache
def _codec() -> Codec:
    return Codec(ConsumerProtocolSubscription, 0, flexible=False)


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Returns the topics of a consumer's subscription; None if it cannot be read."""
    try:
        subscription, _ = _codec().decode(metadata, 2)
    except DecodeError:
        return None
    return set(subscription.topics)

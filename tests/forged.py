"""Requests that a stranger forges: frames packed by hand from Kafka's protocol guide, no product code."""

from __future__ import annotations

import struct
from typing import NamedTuple

_MOST_BYTES = 1 << 20
NO_TAGS = b"\0"


class Forged(NamedTuple):
    """A request with its length, and where its answer, without length and id, has the error code."""

    frame: bytes
    code_at: int

    def code_in(self, answer: bytes) -> int:
        """The error code in an answer."""
        return int(struct.unpack_from(">h", answer, self.code_at)[0])


def sender_tags(broker: int, epoch: int, proof: bytes) -> bytes:
    """The tags of a broker's request, with a proof that is guessed or was made for something else."""
    return b"\1\xec\xe8\1\x1c" + struct.pack(">iq16s", broker, epoch, proof)


def fetch(replica: int, epoch: int, topic_id: bytes, at: tuple[int, int], tags: bytes) -> Forged:
    """A Fetch (v17) of a partition from an offset, for a broker in a session of this epoch."""
    index, offset = at
    limits = struct.pack(">iiibii", 0, 1, _MOST_BYTES, 0, 0, -1)
    partition = struct.pack(">iiqiqi", index, -1, offset, -1, 0, _MOST_BYTES) + NO_TAGS
    claim = b"\1\1\x0d" + struct.pack(">iq", replica, epoch) + NO_TAGS
    body = limits + b"\2" + topic_id + b"\2" + partition + NO_TAGS + b"\1\1" + claim
    return Forged(_frame(1, 17, body, tags), 5)  # behind the tags and the throttle time


def old_fetch(replica: int, topic: str, at: tuple[int, int]) -> Forged:
    """The same in v11, which has no broker epochs."""
    index, offset = at
    limits = struct.pack(">iiiibii", replica, 0, 1, _MOST_BYTES, 0, 0, -1)
    named = struct.pack(">ih", 1, len(topic)) + topic.encode()
    partition = struct.pack(">iiiqqi", 1, index, -1, offset, 0, _MOST_BYTES)
    return Forged(_frame(1, 11, limits + named + partition + struct.pack(">ih", 0, 0), b""), 4)


def marker(
    producer: tuple[int, int],
    place: tuple[str, int],
    coordinator_epoch: int,
    *,
    is_commit: bool,
    tags: bytes = NO_TAGS,
) -> Forged:
    """A WriteTxnMarkers (v1) of one marker for one partition."""
    topic, index = place
    named = bytes((len(topic) + 1,)) + topic.encode() + b"\2" + struct.pack(">i", index)
    ended = struct.pack(">qh?", *producer, is_commit) + b"\2" + named + NO_TAGS
    body = b"\2" + ended + struct.pack(">i", coordinator_epoch) + NO_TAGS + NO_TAGS
    # Behind the tags, a count, the producer id, a count, the name, a count and the number.
    return Forged(_frame(27, 1, body, tags), 1 + 1 + 8 + 1 + 1 + len(topic) + 1 + 4)


def _frame(key: int, version: int, body: bytes, tags: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 7, 4) + b"evil" + tags
    return struct.pack(">i", len(head) + len(body)) + head + body

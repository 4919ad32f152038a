"""Offsets of groups through librdkafka, asked again while the group's coordinator moves.

librdkafka looks for the coordinator again, but leaves the second attempt to its caller.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)
WITHIN_S = 120
ASK_AGAIN_S = 0.1


def commit(settings: Mapping[str, Any], topic: str, offsets: Mapping[int, int]) -> None:
    """Commits offsets for the group of `settings`, by partition.

    Raises KafkaException for every other error, and for these after two minutes.
    """
    asked = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
    with closing(Consumer(dict(settings))) as client:
        done = _while_the_coordinator_moves(
            lambda: client.commit(offsets=asked, asynchronous=False)
        )
    assert [part.error for part in done] == [None] * len(asked)


def committed(settings: Mapping[str, Any], topic: str, partitions: int) -> list[int]:
    """Returns what the group of `settings` has committed for each partition; negative if nothing.

    Raises KafkaException as `commit` does.
    """
    asked = [TopicPartition(topic, index) for index in range(partitions)]
    with closing(Consumer(dict(settings))) as client:
        found = _while_the_coordinator_moves(lambda: client.committed(asked, WITHIN_S))
    assert [part.error for part in found] == [None] * partitions
    return [part.offset for part in found]


def _while_the_coordinator_moves(
    call: Callable[[], list[TopicPartition]],
) -> list[TopicPartition]:
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
        time.sleep(ASK_AGAIN_S)

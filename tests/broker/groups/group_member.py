"""A member of a group as a program of its own, to be killed and paused: it consumes and commits.

    python group_member.py BOOTSTRAP GROUP TOPIC

One JSON line for each assignment (generation, partitions) and each commit that was acknowledged. One that
failed is tried again, whether or not anything more is read: a partition that a member keeps through a
rebalance is read on from where it was, not from what was committed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError


class Telling(ConsumerRebalanceListener):
    """Says what it is given."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing: what was read and not committed is read again."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Say the generation and its part."""
        generation = self.consumer._coordinator._generation.generation_id
        if generation < 0:  # turned out meanwhile: it owns nothing in any
            return
        say(generation=generation, partitions=sorted(part.partition for part in assigned))


def say(**what: Any) -> None:
    """One line."""
    print(json.dumps(what), flush=True)


def main(bootstrap: str, group: str, topic: str) -> None:
    """Consume for ever."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=2_000,
        heartbeat_interval_ms=300,
        max_poll_records=20,
        retry_backoff_ms=50,
        reconnect_backoff_ms=50,
        request_timeout_ms=5_000,
        bootstrap_timeout_ms=600_000,  # it may be paused meanwhile
    )
    consumer.subscribe([topic], listener=Telling(consumer))
    is_behind = False  # with what it has committed
    while True:
        try:
            is_behind = bool(consumer.poll(timeout_ms=200)) or is_behind
            read = consumer._subscription.all_consumed_offsets()
            if not is_behind or not read:
                continue
            consumer.commit(read)
        except KafkaError as error:
            say(failed=type(error).__name__)
            continue
        is_behind = False
        say(committed={part.partition: place.offset for part, place in read.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])

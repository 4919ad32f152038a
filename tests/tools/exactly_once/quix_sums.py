"""Sums up the numbers of each key with Quix Streams, exactly once.

Arguments: the broker, the topic read, the topic written, a directory for state. A record that is written says
NUMBER SUM. It runs in an environment of its own, without the packages of this repository.
"""

from __future__ import annotations

import sys
import time

from quixstreams import Application

BROKER, TOPIC, TO, DIRECTORY = sys.argv[1:5]


def add(number, state):
    time.sleep(0.005)  # so that records come in several transactions
    total = state.get("total", 0) + int(number)
    state.set("total", total)
    return f"{number} {total}"


app = Application(
    broker_address=BROKER,
    consumer_group=TO,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    commit_interval=0.3,
    state_dir=DIRECTORY,
    consumer_extra_config={"session.timeout.ms": 10_000, "isolation.level": "read_committed"},
)
text = {"key_deserializer": "str", "value_deserializer": "str"}
written = {"key_serializer": "str", "value_serializer": "str"}
numbers = app.dataframe(app.topic(TOPIC, **text))
numbers.apply(add, stateful=True).to_topic(app.topic(TO, **written))
app.run()

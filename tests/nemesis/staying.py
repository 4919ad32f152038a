"""Clients that stay with the broker they know: each asks one broker to append with acks=1, again and again.

What is acknowledged so may be on a fork, so it is in a topic of its own, and no record of it is promised.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.broker.asking import produce, records_for
from tests.nemesis.history import Led, Place
from tests.oracle import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.nemesis.history import History
    from tidelog.cluster import BrokerCluster

ASKED = Place("asked", 0)
_PRODUCE = 9
_PAUSE_S = 0.05
_ANSWER_S = 5.0


@contextmanager
def staying(cluster: BrokerCluster, history: History) -> Iterator[None]:
    """Lets a client stay with each broker while the `with` lasts."""
    is_over = threading.Event()

    def stay(broker: int) -> None:
        with wire.Connection(cluster[broker].bootstrap, timeout_s=_ANSWER_S) as connection:
            while not is_over.wait(_PAUSE_S):
                began_s = time.monotonic()
                try:
                    answer = produce(connection, ASKED.topic, records_for(_PRODUCE, "fork"), acks=1)
                except (OSError, wire.WireError):
                    connection.close()
                    continue
                if answer is not None and answer["error_code"] == 0:
                    history.add(Led(broker, ASKED, began_s))

    with ExitStack() as stack:
        for broker in range(1, len(cluster) + 1):
            thread = threading.Thread(target=stay, args=[broker], daemon=True)
            thread.start()
            stack.callback(thread.join)
        stack.callback(is_over.set)
        yield

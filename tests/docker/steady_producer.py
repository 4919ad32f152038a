"""Produces numbered records with kafka-python until SIGTERM, and says which of them were acknowledged.

Run as a program, in a container too: `steady_producer.py BOOTSTRAP TOPIC PREFIX RECORDS_PER_SECOND`. It
needs kafka-python alone. Each line it prints is `acked PREFIX-N` or `failed PREFIX-N: error`; `began` is
printed with the first acknowledgement, `end` when all records have been answered.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from kafka import KafkaProducer


def main(bootstrap: str, topic: str, prefix: str, per_second: str) -> None:
    """Produces until SIGTERM."""
    stopped, writing = threading.Event(), threading.Lock()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def tell(line: str) -> None:
        with writing:
            print(line, flush=True)

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        request_timeout_ms=10_000,  # nothing says that a peer is cut off
    )
    producer.send(topic, f"{prefix}-0".encode()).get(60)
    tell(f"began\nacked {prefix}-0")
    number = 0
    while not stopped.is_set():
        number += 1
        name = f"{prefix}-{number}"
        try:
            sent = producer.send(topic, name.encode())
        except Exception as error:
            tell(f"failed {name}: {error!r}")
            continue
        sent.add_callback(lambda _, name=name: tell(f"acked {name}"))
        sent.add_errback(lambda error, name=name: tell(f"failed {name}: {error!r}"))
        time.sleep(1 / float(per_second))
    producer.flush(timeout=120)
    producer.close()
    tell("end")


if __name__ == "__main__":
    main(*sys.argv[1:])

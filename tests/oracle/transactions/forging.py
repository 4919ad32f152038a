"""Transactional ids whose epochs are used up, or nearly: written into the log of a stopped broker.

To reach them by requests takes 32,766 of them for each id.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.broker.coordinators.transactions.requests import Given
from tests.oracle import recordset, wire
from tests.oracle.recordset import Rec

if TYPE_CHECKING:
    from pathlib import Path

LAST = 32_766
"""The last epoch that a producer can have; markers can have one more."""
EPOCHS = (LAST - 1, LAST)
COUNT = 1_500
"""How many ids there are of each epoch."""
FIRST_PRODUCER_ID = 7_000_000
TIMEOUT_MS = 600_000
DEADLINE_S = 60
EMPTY = 0


class Forged(NamedTuple):
    """An id as it is in the log, in the state Empty."""

    transactional_id: str
    given: Given


def all_forged() -> dict[int, list[Forged]]:
    """The ids by their epoch."""
    return {
        epoch: [
            Forged(
                f"epoch-{epoch}-{number}", Given(FIRST_PRODUCER_ID + 10_000 * at + number, epoch)
            )
            for number in range(COUNT)
        ]
        for at, epoch in enumerate(EPOCHS)
    }


def initialise(bootstrap: str, transactional_id: str) -> None:
    """Lets a broker write the first record of the topic."""
    deadline = time.monotonic() + DEADLINE_S
    with wire.Connection(bootstrap) as connection:
        while connection.ask(
            "InitProducerId",
            4,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )["error_code"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # a foreign process can only be polled


def write(directory: Path) -> None:
    """Appends the records to the only segment of a partition whose broker has been stopped in order."""
    (log,) = directory.glob("*.log")
    batches, left = recordset.parse(log.read_bytes())
    assert not left
    last = batches[-1]
    at = last["offset"] + last["last_offset_delta"] + 1
    now_ms = time.time_ns() // 1_000_000
    with log.open("ab") as file:
        for ids in all_forged().values():
            records = [Rec(now_ms, _value(each.given, now_ms), _key(each)) for each in ids]
            data = recordset.batch(records, base_offset=at, leader_epoch=last["leader_epoch"])
            file.write(data)
            at += len(records)


def _key(forged: Forged) -> bytes:
    name = forged.transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def _value(given: Given, now_ms: int) -> bytes:
    """The value's version 0, without partitions and without a start."""
    fields = (0, given.producer_id, given.epoch, TIMEOUT_MS, EMPTY, -1, now_ms, -1)
    return struct.pack(">hqhibiqq", *fields)

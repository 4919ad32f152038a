"""The row about log compaction: how fast a dirty log is cleaned, and its cost.

Nothing is cleaned while a log is written (min.cleanable.dirty.ratio is 1); then the ratio is
lowered. The measurement lasts from then until cleaner-offset-checkpoint has the new offset; it
includes a wait of up to BACKOFF_MS until the broker looks for work. CPU is that of the broker and
of its child processes that have ended: tidelog cleans in a process of its own.
"""

from __future__ import annotations

import os
import random
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import loads
import prepared
import raw
from brokers import Broker, bootstrap, cpu_s
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rows import Figure, Place, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKOFF_MS = 500
_RECORDS = 1_000_000
_BATCH = 500
_KEYS = 20_000
_DISTINCT_BATCHES = 200
_SEGMENT_BYTES = 16 << 20
_TIMEOUT_S = 120
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@cache
def _batches() -> Sequence[bytes]:
    """Returns record sets with random keys, always the same ones."""
    chance = random.Random(_KEYS)
    values = loads.values_of(100)
    now_ms = int(time.time() * 1000)
    found = []
    for _ in range(_DISTINCT_BATCHES):
        keys = [b"key-%07d" % chance.randrange(_KEYS) for _ in range(_BATCH)]
        found.append(prepared.batch_v2(chance.sample(values, _BATCH), now_ms, keys))
    return found


def _cpu_with_children_s(broker: Broker) -> float:
    """Returns the CPU seconds of the broker and of child processes that have ended."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return cpu_s(broker) + (int(fields[13]) + int(fields[14])) * _TICK_S


def _fill(place: Place, topic: str) -> int:
    """Writes the log; the last batch goes into a segment of its own. Returns its offset."""
    at = prepared.produce_v9_error_at(topic)
    batches = _batches()
    count = place.scaled(_RECORDS) // _BATCH
    filler = prepared.batch_v2(
        [random.Random(0).randbytes(1_000_000)], int(time.time() * 1000), [b"filler"]
    )
    sets = [batches[number % len(batches)] for number in range(count)]
    sets += [filler] * (_SEGMENT_BYTES // len(filler) + 1)
    with raw.connect(place.broker.port) as connection:
        for records in sets:
            answer = raw.exchange(connection, prepared.produce_v9(topic, 0, records))
            if answer[at : at + 2] != b"\0\0":
                raise raw.RawError(f"Produce answered {answer.hex()}")
    logs = sorted((place.broker.data / f"{topic}-0").glob("*.log"))
    return int(logs[-1].stem)


def _allow(broker: Broker, topic: str) -> None:
    change = ConfigEntry(
        "min.cleanable.dirty.ratio", "0", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": bootstrap(broker), "log_level": 4})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(_TIMEOUT_S)


def _cleaned_offset(broker: Broker, topic: str) -> int:
    try:
        lines = (broker.data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return -1
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), -1)


def _measure(place: Place) -> dict[str, float]:
    broker = place.broker
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1",
        "segment.bytes": str(_SEGMENT_BYTES),
        "file.delete.delay.ms": "0",
    }
    topic = loads.make_topic(broker, "compacted", 1, settings)
    end = _fill(place, topic)
    directory = broker.data / f"{topic}-0"
    sealed = [path.stat().st_size for path in directory.glob("*.log") if int(path.stem) < end]
    before, began = _cpu_with_children_s(broker), time.perf_counter()
    _allow(broker, topic)
    while _cleaned_offset(broker, topic) < end:
        if time.perf_counter() - began > _TIMEOUT_S:
            raise loads.LoadError(f"{broker.name}: not cleaned in {_TIMEOUT_S} s")
        time.sleep(0.005)  # another process can only be polled
    took, used = time.perf_counter() - began, _cpu_with_children_s(broker) - before
    left = sum(path.stat().st_size for path in directory.glob("*.log") if int(path.stem) < end)
    loads.drop_topic(broker, topic)
    if left > sum(sealed) / 2:
        raise loads.LoadError(f"{broker.name}: {left} of {sum(sealed)} bytes are left")
    return {"rate": sum(sealed) / 1e6 / took, "cpu": used / sum(sealed) * 1e9}


COMPACTION_ROWS: tuple[Row, ...] = (
    Row(
        "compaction",
        (
            Figure("rate", "compaction, 100 B, 20,000 keys", "MB/s", 1),
            Figure("cpu", "CPU of compaction", "s/GB", 2),
        ),
        lambda _place: None,
        _measure,
    ),
)

"""Record sets for tests: the records of the captured vectors, and plans to append them with."""

from __future__ import annotations

import random
from pathlib import Path

from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN
from tidelog.protocol.records.prepare import AppendPlan, inspect, prepare

VECTORS = Path(__file__).parents[2] / "vectors"
NOW = 1_700_000_000_000
BASE_TIME = 1_500_000_000_000


def vector_record(i, timestamp=None):
    """Record i of the captured logs, see tests/vectors/README.md."""
    value = b"value-%d-" % i + b"abcdefghij" * (i % 30)
    return Record(i, BASE_TIME + 1000 * i if timestamp is None else timestamp, b"k%d" % i, value)


def plan(**changes):
    fields = {
        "first_offset": 0,
        "magic": 2,
        "compression": None,
        "append_time_ms": NOW,
        "log_append_time": False,
        "min_timestamp": INT64_MIN,
        "max_timestamp": INT64_MAX,
        "leader_epoch": 0,
        "compacted": False,
        "max_message_bytes": 1 << 20,
    }
    return AppendPlan(**{**fields, **changes})


def append(data, *, produce_version=None, max_message_bytes=1 << 20, **changes):
    """Inspect and prepare as a leader does; returns (Prepared, the bytes to write)."""
    if produce_version is None:
        produce_version = 9 if len(data) > 16 and data[16] == 2 else 2
    produced = inspect(data, produce_version=produce_version, max_message_bytes=max_message_bytes)
    prepared = prepare(data, produced, plan(max_message_bytes=max_message_bytes, **changes))
    written = b"".join(bytes(buffer) for buffer in prepared.buffers)
    assert len(written) == prepared.size
    return prepared, written


def random_records(rng, count, *, times="mixed", headers=False, nulls=True):
    """Records at offsets 0 .. count-1 with times of the given kind."""
    draw = {
        "none": lambda: -1,
        "rising": lambda: BASE_TIME,
        "mixed": lambda: rng.choice([-1, BASE_TIME + rng.randrange(-5000, 5000), -5, 0]),
        "wild": lambda: rng.choice([INT64_MIN, INT64_MAX, -1, -2, 0, rng.getrandbits(63)]),
    }[times]
    records = []
    for i in range(count):
        key = None if nulls and rng.random() < 0.3 else rng.randbytes(rng.randrange(12))
        value = None if nulls and rng.random() < 0.1 else b"v%d" % i * rng.randrange(40)
        named = ()
        if headers:
            named = tuple(
                (b"h%d" % j, rng.choice([None, b"", b"content"])) for j in range(rng.randrange(3))
            )
        time = draw() + (i if times == "rising" else 0)
        records.append(Record(i, time, key, value, named))
    return records


def corpus(seed=0):
    """One batch (or set) of every format and codec, with (magic, bytes)."""
    rng = random.Random(seed)
    sets = []
    for magic, codecs in ((0, range(4)), (1, range(4)), (2, range(5))):
        for codec in codecs:
            for count in (1, 3, 40):
                records = random_records(rng, count, headers=magic == 2)
                sets.append((magic, build(records, magic=magic, compression=codec)))
    sets.append(
        (2, build(random_records(rng, 3), producer_id=7, producer_epoch=1, base_sequence=5))
    )
    stamped = {"timestamp_type": 1, "log_append_time": NOW}
    sets += [
        (magic, build(random_records(rng, 5), magic=magic, compression=codec, **stamped))
        for magic, codec in ((1, 0), (1, 1), (2, 0), (2, 3))
    ]
    return sets

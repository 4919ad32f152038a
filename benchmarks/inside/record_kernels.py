"""Microseconds per produced batch for the record kernels, compiled beside their Python twin.

Each row is `inspect` + `prepare` of one record set as a leader runs them, and its parts. Run it
with `python benchmarks/inside/record_kernels.py`. Only the ratios are meaningful; absolute times depend on
the machine and on its other load.
"""

from __future__ import annotations

import random
import sys
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import Record, build, find_time, scan, summarize
from tidelog.protocol.records.convert import down_convert
from tidelog.protocol.records.kernels import kernels_py
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN
from tidelog.protocol.records.prepare import AppendPlan, inspect, prepare

try:
    from tidelog.protocol.records import _kernels
except ImportError:
    _kernels = None

NOW = 1_700_000_000_000
NAMES = [
    "checksum_ok",
    "describe_messages",
    "examine",
    "find",
    "find_offset",
    "first_damaged",
    "offenders",
    "rewrite",
    "scan",
    "stamp_messages",
]


def records(count, size):
    rng = random.Random(1)
    letters = b"abcdefghijklmnop"
    return [Record(i, NOW + i, None, bytes(rng.choices(letters, k=size))) for i in range(count)]


def use(module):
    for name in NAMES:
        setattr(kernels, name, getattr(module, name))
    kernels.keep_v2 = getattr(module, "keep_v2", None)


def microseconds(function):
    timer = timeit.Timer(function)
    number, _ = timer.autorange()
    number = max(1, number // 8)
    return min(timer.repeat(7, number)) / number * 1e6


def cases():
    plan = AppendPlan(12345, 2, None, NOW, False, INT64_MIN, INT64_MAX, 0, False, 1 << 20)
    for label, count, size, magic, codec in (
        ("v2 1 x 100 B", 1, 100, 2, 0),
        ("v2 160 x 100 B", 160, 100, 2, 0),
        ("v2 16 x 1000 B", 16, 1000, 2, 0),
        ("v2 160 x 100 B lz4", 160, 100, 2, 3),
        ("v2 160 x 100 B gzip", 160, 100, 2, 1),
        ("v2 160 x 100 B snappy", 160, 100, 2, 2),
        ("v2 160 x 100 B zstd", 160, 100, 2, 4),
        ("v1 160 x 100 B", 160, 100, 1, 0),
        ("v1 160 x 100 B lz4", 160, 100, 1, 3),
    ):
        data = memoryview(build(records(count, size), magic=magic, compression=codec))
        same = plan._replace(magic=magic)
        yield label, data, same
        if label == "v2 160 x 100 B":
            yield label + ", LogAppendTime", data, same._replace(log_append_time=True)
            yield label + " onto format 1", data, same._replace(magic=1)


def measure(data, plan):
    version = 9 if data[16] == 2 else 2
    produced = inspect(data, produce_version=version, max_message_bytes=1 << 20)
    yield microseconds(lambda: inspect(data, produce_version=version, max_message_bytes=1 << 20))
    yield microseconds(lambda: prepare(data, produced, plan))
    batch = scan(data)[0]
    yield microseconds(lambda: summarize(data, batch))
    yield microseconds(lambda: find_time(data, batch, NOW + 10**6))
    yield microseconds(lambda: down_convert([data], target_magic=0, fetch_offset=0))


def main():
    modules = [module for module in (_kernels, kernels_py) if module is not None]
    columns = ("inspect", "prepare", "summarize", "find_time", "to format 0")
    print(f"{'us':32} {'':9}" + "".join(f"{column:>13}" for column in columns))
    for label, data, plan in cases():
        for module in modules:
            use(module)
            row = "".join(f"{value:13.2f}" for value in measure(data, plan))
            print(f"{label:32} {module.IMPLEMENTATION:9}{row}")


if __name__ == "__main__":
    main()

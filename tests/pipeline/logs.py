"""Logs for the tests of the source: made by storage, and read back without it, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

from tests.oracle.record_rows import rows_of
from tests.storage.conftest import TOPIC_ID
from tidelog.config.topic import TopicConfig
from tidelog.pipeline.source.access import plan, read
from tidelog.pipeline.source.append_times import UNKNOWN
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.pipeline.source.splits import LOG_END, Selection
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}
SMALL = {"segment_bytes": 2000, "index_interval_bytes": 200, "segment_index_bytes": 4096}
NEVER = -(2**63)
ABORT = 0  # the type of a marker that ends a transaction (KIP-98); 1 commits it


class Seen(NamedTuple):
    """A record as columns or the oracle have it; an append time of None: unknown."""

    offset: int
    timestamp: int
    time_type: int
    append_time: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple


class Writer:
    """Log directories as the broker writes them, without a broker."""

    def __init__(self, path, boot_id="", **settings):
        self.path = path
        self.config = TopicConfig(**{"retention_ms": -1, **SMALL, **settings})
        self.store = LogStore([path], default_config=self.config, boot_id=boot_id)
        self.store.open(0)
        self.last_append = 0
        self.partitions = {}

    def partition(self, topic="t", number=0):
        key = topic, number
        if key not in self.partitions:
            self.partitions[key] = self.store.create_partition(
                topic, TOPIC_ID, number, self.config, 0
            )
        return self.partitions[key]

    def configure(self, **settings):
        """Change the settings of the topic."""
        self.config = replace(self.config, **settings)
        for partition in self.partitions.values():
            partition.config = self.config

    def append(self, records, *, now=0, topic="t", number=0, **batch):
        """Append records (times, or whole ones); returns the offset of the first."""
        made = [
            one if isinstance(one, Record) else Record(i, one, b"k%d" % i, b"v%d" % i * 5)
            for i, one in enumerate(records)
        ]
        made = [one._replace(offset=i) for i, one in enumerate(made)]
        partition = self.partition(topic, number)
        first = partition.log_end_offset
        version = 9 if batch.get("magic", 2) == 2 else 2
        partition.append(build(made, **batch), now_ms=now, produce_version=version)
        return first

    def close(self):
        self.store.close()

    def crash(self):
        """Stop as kill -9 stops."""
        self.store._release()


def segments(directory):
    return sorted(directory.glob("*.log"))


def append_times(log, offset):
    """When an offset of a segment was appended, by a walk over the bytes of its `.appendtimes`."""
    path = log.with_suffix(".appendtimes")
    if not path.exists():
        return None
    data, found = path.read_bytes(), None
    entry = {b"tide": ">qi", b"TIDE": ">qi4x"}[data[:4]]  # version 2 has a CRC behind each
    size = struct.calcsize(entry)
    for time, relative in struct.iter_unpack(entry, data[8 : len(data) - (len(data) - 8) % size]):
        if time == NEVER + 1:
            break
        if relative + int(log.stem) <= offset:
            found = None if time == NEVER else time
    return found


def truth(directory):
    """Every data record of a partition's directory, by the independent parser."""
    seen = []
    for log in segments(directory):
        for row in rows_of(log.read_bytes()):
            if row.is_control:
                continue
            known = append_times(log, row.offset)
            if row.time_type == 1 and row.timestamp != -1:
                known = row.timestamp
            seen.append(Seen(*row[:3], known, *row[3:6]))
    return seen


def committed(directory):
    """What `truth` has, without the records of transactions that were aborted or never ended."""
    lost = set()  # offsets of records in transactions that were aborted
    open_offsets = {}  # offsets of records in open transactions, by producer
    for log in segments(directory):
        for row in rows_of(log.read_bytes()):
            if row.is_control:
                ended = open_offsets.pop(row.producer_id, ())
                if int.from_bytes(row.key[2:4], "big") == ABORT:
                    lost.update(ended)
            elif row.is_transactional:
                open_offsets.setdefault(row.producer_id, []).append(row.offset)
    lost.update(*open_offsets.values())
    return [one for one in truth(directory) if one.offset not in lost]


def seen_in(columns):
    """What columns hold."""
    headers = columns.headers.to_pylist()
    return [
        Seen(
            offset,
            time,
            kind,
            None if appended == UNKNOWN else appended,
            key,
            value,
            tuple((one["key"].encode(), one["value"]) for one in listed or ()),
        )
        for offset, time, kind, appended, key, value, listed in zip(
            columns.offset.tolist(),
            columns.timestamp_ms.tolist(),
            columns.timestamp_type.tolist(),
            columns.append_time_ms.tolist(),
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            headers,
            strict=True,
        )
    ]


def read_all(root, selection=None, **options):
    """Plan and read a log directory: {(topic, partition): records}."""
    selection = selection or Selection(upto=LOG_END)
    found = {}
    for split in plan(selection, logs=[str(root)]):
        for columns in read(split, ReadOptions.of(selection, **options)):
            found.setdefault((split.topic, split.partition), []).extend(seen_in(columns))
    return found

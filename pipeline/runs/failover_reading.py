"""What a failover reads: records of both clusters, to compare them, and the report of an audit."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.source import access, reading
from tidelog.pipeline.source import splits as source
from tidelog.protocol.records import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tidelog.pipeline.source.columns import Columns
    from tidelog.pipeline.source.splits import OffsetRange
    from tidelog.protocol.topic_partition import TopicPartition


def read(
    brokers: str, key: TopicPartition, offsets: OffsetRange, depth: int, isolation: Any
) -> Iterator[Columns]:
    """Yields the records of a partition from the first offset up to the second, at some depth."""
    if offsets[0] >= offsets[1]:
        return
    selection = source.Selection(
        topics=(key[0],), offsets={key: offsets}, allow_gone=True, isolation=isolation
    )
    for split in access.plan(selection, brokers=brokers):
        yield from access.read(split, reading.ReadOptions.of(selection, depth))


def digests(found: Iterator[Columns], with_time: bool) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the digest of each record, by which two clusters are compared."""
    for columns in found:
        offsets = columns.offset.tolist()
        for number, offset in enumerate(offsets):
            data, _, timestamp, _ = kernels.encode_rows(columns.buffers, number, number + 1, 1)
            digest = blake2b(data, digest_size=16)
            if with_time:
                digest.update(timestamp.to_bytes(8, "big", signed=True))
            yield offset, digest.digest()


def audited_delays(directory: Path) -> Mapping[str, tuple[int, int, int]]:
    """Returns longest and shortest delay and record count of each topic from an audit's report.

    Raises UsageError.
    """
    path = directory / "report.json"
    try:
        topics = json.loads(path.read_text(encoding="utf-8"))["topics"]
        delays = {one["topic"]: one["summary"]["delay_ms"] for one in topics}
        return {
            name: (one["max"], one["min"], one["count"])
            for name, one in delays.items()
            if one["max"] is not None
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--audit: {path} is no report of an audit: {error}") from error

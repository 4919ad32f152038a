"""What goes wrong or is rare in Produce: malformed sets, lies in headers, limits, sequences.

Every case is one idea on a partition of its own. Where a set may be accepted, the partition is read
back raw (Fetch v4, v12) and searched, so that what was made of a lie is compared too.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.oracle import codecs
from tests.oracle.cases.matrix import DAY_MS, record_set, records
from tests.oracle.recordset import (
    CONTROL_BIT,
    LAT_BIT,
    TRANSACTIONAL_BIT,
    Rec,
    batch,
    message,
    plain_set,
    record,
    wrapper,
)
from tests.oracle.scenario import Append, Case, Step, ask, fetch, lookup, produce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GARBAGE = b"\x01\x02\x03not what it says"
INT32_MAX = 2**31 - 1


def _case(title: str, topic: str, sets: Sequence[tuple[int, bytes | None]], **tags: Any) -> Case:
    """Produce each (version, set), then read everything back."""
    steps: list[Step] = [produce(version, data) for version, data in sets]
    steps += [fetch(4), fetch(12), fetch(2), lookup(1, -1), lookup(7, -3)]
    return Case(title, topic, tuple(steps), {"edge": title, **tags})


def sizes_and_checksums(base_ms: int) -> Iterator[Case]:
    recs = records((base_ms, base_ms + 1))
    for version, magic in ((0, 0), (2, 0), (2, 1)):
        bad = plain_set(magic, recs, bad_crc=True)
        yield _case(f"bad crc, format {magic} v{version}", "create", [(version, bad)])
        good_then_bad = plain_set(magic, recs) + message(magic, recs[0], offset=2, bad_crc=True)
        yield _case(
            f"bad crc at the end, format {magic} v{version}", "create", [(version, good_then_bad)]
        )
    for magic in (0, 1):
        bad = wrapper(magic, recs, codecs.GZIP, inner_bad_crc=True)
        yield _case(f"bad inner crc, format {magic}", "create", [(2, bad)])
        bad = wrapper(magic, recs, codecs.GZIP, bad_crc=True)
        yield _case(f"bad wrapper crc, format {magic}", "create", [(2, bad)])
    for version in (3, 8, 11):
        bad = batch(recs, bad_crc=True)
        yield _case(f"bad crc, format 2 v{version}", "create", [(version, bad)])
    cut = plain_set(1, recs)
    yield _case("cut second message v2", "create", [(2, cut[:-3])])
    yield _case("cut first message v2", "create", [(2, cut[:20])])
    yield _case("trailing zero bytes v2", "create", [(2, cut + bytes(30))])
    yield _case("message size 5 v2", "create", [(2, plain_set(1, recs, size=5))])
    yield _case("message size -1 v2", "create", [(2, plain_set(1, recs, size=-1))])
    whole = batch(recs)
    yield _case("cut batch v3", "create", [(3, whole[:-3])])
    yield _case("cut batch v9", "create", [(9, whole[:30])])
    yield _case("trailing bytes after a batch v9", "create", [(9, whole + bytes(7))])
    yield _case("trailing zero bytes after a batch v9", "create", [(9, whole + bytes(70))])
    for magic, version in ((3, 2), (3, 9), (7, 0), (-1, 2)):
        data = batch(recs, said_magic=magic)
        yield _case(f"format {magic} v{version}", "create", [(version, data)])


def what_a_version_may_carry(base_ms: int) -> Iterator[Case]:
    recs = records((base_ms, base_ms + 1))
    for version in (0, 2, 3, 9):
        yield _case(f"empty set v{version}", "create", [(version, b"")])
        yield _case(f"empty set on append v{version}", "append", [(version, b"")])
    yield _case("null records", "create", [(9, None)])
    for version in (3, 8, 11):
        yield _case(f"two batches v{version}", "create", [(version, batch(recs) + batch(recs))])
        yield _case(f"format 1 in v{version}", "create", [(version, plain_set(1, recs))])
        yield _case(f"format 0 in v{version}", "create", [(version, plain_set(0, recs))])
        yield _case(
            f"format 2 then 1 in v{version}",
            "create",
            [(version, batch(recs) + plain_set(1, recs))],
        )
    for version in (0, 2):
        yield _case(f"format 2 in v{version}", "create", [(version, batch(recs))])
        yield _case(f"two format 2 batches in v{version}", "create", [(version, batch(recs) * 2)])
        yield _case(f"format 2 lz4 in v{version}", "create", [(version, batch(recs, codecs.LZ4))])
        both = plain_set(0, recs) + plain_set(1, recs)
        yield _case(f"formats 0 and 1 in one set v{version}", "create", [(version, both)])
        both = plain_set(1, recs) + batch(recs)
        yield _case(f"formats 1 and 2 in one set v{version}", "create", [(version, both)])
        pair = wrapper(1, recs, codecs.GZIP) * 2
        yield _case(f"two wrappers in one set v{version}", "create", [(version, pair)])
        pair = wrapper(1, recs, codecs.GZIP) + plain_set(1, recs)
        yield _case(f"wrapper then plain v{version}", "create", [(version, pair)])
        pair = plain_set(1, recs) + wrapper(1, recs, codecs.SNAPPY)
        yield _case(f"plain then wrapper v{version}", "create", [(version, pair)])
    for version in (3, 6, 7):
        yield _case(f"zstd in v{version}", "create", [(version, batch(recs, codecs.ZSTD))])
    yield _case("zstd format 2 in v2", "create", [(2, batch(recs, codecs.ZSTD))])
    yield _case("zstd wrapper format 1", "create", [(2, wrapper(1, recs, codecs.ZSTD))])
    yield _case("zstd wrapper format 0", "create", [(1, wrapper(0, recs, codecs.ZSTD))])
    for codec in (5, 7):
        data = batch(recs, attributes=codec)
        yield _case(f"codec {codec} format 2", "create", [(9, data)])
        yield _case(
            f"codec {codec} format 1", "create", [(2, message(1, recs[0], attributes=codec))]
        )


def limits(base_ms: int) -> Iterator[Case]:
    large = [Rec(base_ms, b"x" * 2500)]
    two = [Rec(base_ms, b"x" * 1200), Rec(base_ms, b"y" * 1200)]
    for version, magic in ((0, 0), (2, 1), (3, 2), (9, 2), (11, 2)):
        yield _case(
            f"too large, format {magic} v{version}",
            "create-small",
            [(version, record_set(magic, 0, large))],
        )
        small = record_set(magic, codecs.GZIP, large)
        yield _case(
            f"large but compressed, format {magic} v{version}", "create-small", [(version, small)]
        )
        sets = [(version, record_set(magic, 0, two))]
        yield _case(f"large as a set, format {magic} v{version}", "create-small", sets)
    incompressible = [Rec(base_ms, bytes((i * i * 31 + i // 7) % 251 for i in range(1990)))]
    yield _case("too large once converted", "create-small", [(2, plain_set(0, incompressible))])
    for size in (1925, 1930, 1931, 1932, 1933):  # 2000 bytes are reached in here
        yield _case(
            f"exactly at the limit {size}",
            "create-small",
            [(9, batch([Rec(base_ms, b"x" * size)]))],
        )


def acks(base_ms: int) -> Iterator[Case]:
    recs = records((base_ms,))
    for version, magic in ((0, 1), (2, 1), (3, 2), (9, 2)):
        data = record_set(magic, 0, recs)
        for value in (-1, 0, 1, 2, 5, -2):
            steps = (produce(version, data, acks=value), fetch(4), lookup(1, -1))
            yield Case(f"acks {value} v{version}", "create", steps, {"edge": "acks"})
        bad = batch(recs, bad_crc=True) if magic == 2 else plain_set(1, recs, bad_crc=True)
        steps = (produce(version, bad, acks=0), fetch(4))
        yield Case(f"acks 0 and a bad crc v{version}", "create", steps, {"edge": "acks"})
        for topic, partition in (
            ("no-such-topic", 0),
            ("bad topic name!", 0),
            ("create", 999_999),
            ("create", -1),
        ):
            steps = (produce(version, data, topic=topic, partition=partition),)
            yield Case(
                f"produce to {topic} {partition} v{version}", "create", steps, {"edge": "unknown"}
            )


def lies_in_format_1(base_ms: int) -> Iterator[Case]:
    recs = records((base_ms, base_ms + 7, base_ms + 3))
    for topic in ("create", "append"):
        for codec in (codecs.GZIP, codecs.LZ4):
            name = f"{codecs.NAMES[codec]} on {topic}"
            lies: dict[str, dict[str, Any]] = {
                "wrapper time 0": {"timestamp": 0},
                "wrapper time -1": {"timestamp": -1},
                "wrapper time too old": {"timestamp": base_ms - DAY_MS},
                "wrapper offset 0": {"offset": 0},
                "wrapper offset 1": {"offset": 1},
                "wrapper offset 1000": {"offset": 1000},
                "inner offsets with gaps": {"inner_offsets": (0, 2, 5), "offset": 5},
                "inner offsets all 0": {"inner_offsets": (0, 0, 0)},
                "inner offsets absolute": {"inner_offsets": (100, 101, 102), "offset": 102},
                "inner offsets backwards": {"inner_offsets": (2, 1, 0)},
                "wrapper with LogAppendTime bit": {"attributes": LAT_BIT},
                "inner LogAppendTime bits": {"inner_attributes": LAT_BIT},
                "wrapper with a key": {"key": b"key"},
                "wrapper with unused bits": {"attributes": 0xE0},
                "inner magic 0": {"inner_set": plain_set(0, recs)},
                "inner is a batch": {"inner_set": batch(recs)},
                "no inner messages": {"inner_set": b""},
                "inner cut": {"inner_set": plain_set(1, recs)[:-3]},
            }
            for title, lie in lies.items():
                data = wrapper(1, recs, codec, **lie)
                yield _case(f"{title}, {name}", topic, [(2, data)], lie=title)
            nested = wrapper(1, recs, codec, inner_set=wrapper(1, recs, codecs.GZIP))
            yield _case(f"nested compression, {name}", topic, [(2, nested)])
            garbage = message(1, Rec(base_ms, GARBAGE), attributes=codec)
            yield _case(f"garbage payload, {name}", topic, [(2, garbage)])
            nothing = message(1, Rec(base_ms, None), attributes=codec)
            yield _case(f"null payload, {name}", topic, [(2, nothing)])
        data = plain_set(1, recs, attributes=LAT_BIT)
        yield _case(f"plain LogAppendTime bits on {topic}", topic, [(2, data)], lie="LAT bit")
        none = plain_set(1, [Rec(-1)], attributes=LAT_BIT)
        yield _case(
            f"plain LogAppendTime bit without a time on {topic}", topic, [(2, none)], lie="LAT bit"
        )
        data = b"".join(message(1, rec, offset=50 - i) for i, rec in enumerate(recs))
        yield _case(f"plain offsets backwards on {topic}", topic, [(2, data)])
        both = wrapper(0, recs, codecs.GZIP, inner_offsets=(100, 101, 102), offset=102)
        yield _case(f"format 0 absolute inner offsets on {topic}", topic, [(1, both)])


def _lies_of_format_2(recs: list[Rec], base_ms: int) -> dict[str, dict[str, Any]]:
    """Returns what a batch may say of itself that is wrong, by name."""
    bodies = b"".join(record(rec, base_ms, i) for i, rec in enumerate(recs))
    return {
        "max timestamp 123": {"max_timestamp": 123},
        "max timestamp -1": {"max_timestamp": -1},
        "max timestamp too new": {"max_timestamp": base_ms + DAY_MS},
        "LogAppendTime bit": {"attributes": LAT_BIT},
        "base offset 7": {"base_offset": 7},
        "base offset -1": {"base_offset": -1},
        "leader epoch 9": {"leader_epoch": 9},
        "base timestamp elsewhere": {"base_timestamp": base_ms - 10 * DAY_MS},
        "count 5": {"count": 5},
        "count 2": {"count": 2},
        "count 0": {"count": 0},
        "count -1": {"count": -1},
        "count huge": {"count": INT32_MAX, "last_offset_delta": INT32_MAX - 1},
        "count and delta 5": {"count": 5, "last_offset_delta": 4},
        "count and delta 2": {"count": 2, "last_offset_delta": 1},
        "last offset delta 9": {"last_offset_delta": 9},
        "last offset delta -1": {"last_offset_delta": -1},
        "offset deltas backwards": {"offset_deltas": (2, 1, 0)},
        "offset deltas with gaps": {"offset_deltas": (0, 2, 5), "last_offset_delta": 5},
        "offset deltas all 0": {"offset_deltas": (0, 0, 0)},
        "control batch": {"attributes": CONTROL_BIT},
        "transactional without producer id": {"attributes": TRANSACTIONAL_BIT},
        "unused bits": {"attributes": 0x7F80 & ~0x40},
        "delete horizon bit": {"attributes": 0x40},
        "producer id without sequence": {"producer_id": 77, "producer_epoch": 0},
        "producer id without epoch": {"producer_id": 77, "base_sequence": 0},
        "sequence without producer id": {"base_sequence": 3},
        "empty payload": {"payload": b""},
        "payload cut": {"payload": bodies[:-2]},
        "payload with more": {"payload": bodies + b"\0\0\0"},
        "record size lies": {"payload": b"\x7e" + bodies[1:]},
        "record size negative": {"payload": b"\x01" + bodies[1:]},
    }


def lies_in_format_2(base_ms: int) -> Iterator[Case]:
    recs = records((base_ms, base_ms + 7, base_ms + 3))
    for title, lie in _lies_of_format_2(recs, base_ms).items():
        for topic in ("create", "append"):
            for codec in (0, codecs.GZIP, codecs.LZ4):
                fields = dict(lie)
                if codec and "payload" in fields:
                    fields["payload"] = codecs.compress(codec, fields["payload"], 2)
                data = batch(recs, codec, **fields)
                name = f"{title}, format 2 {codecs.NAMES[codec]} on {topic}"
                yield _case(name, topic, [(9, data)], lie=title)
    for codec in (1, 2, 3, 4):
        data = batch(recs, codec, payload=GARBAGE)
        yield _case(f"garbage payload, format 2 {codecs.NAMES[codec]}", "create", [(9, data)])
    none = batch([Rec(-1), Rec(-1)], attributes=LAT_BIT)
    yield _case("LogAppendTime bit without times", "create", [(9, none)], lie="LogAppendTime bit")
    yield _case("no records", "create", [(9, batch([]))])
    yield _case(
        "null key on a compacted topic", "create-compact", [(9, batch(records((base_ms, base_ms))))]
    )
    yield _case(
        "null key in format 1 on a compacted topic",
        "create-compact",
        [(2, plain_set(1, records((1, 2))))],
    )
    keyed = [Rec(base_ms, b"v", b"k"), Rec(base_ms, None, b"k")]
    yield _case(
        "keys on a compacted topic", "create-compact", [(9, batch(keyed)), (9, batch(keyed, 1))]
    )


def snappy_blocks(base_ms: int) -> Iterator[Case]:
    import cramjam

    recs = records((base_ms, base_ms + 1))
    payload = b"".join(record(rec, base_ms, i) for i, rec in enumerate(recs))
    raw = bytes(cramjam.snappy.compress_raw(payload))
    yield _case("snappy as one raw block, format 2", "create", [(9, batch(recs, 2, payload=raw))])
    inner = bytes(cramjam.snappy.compress_raw(plain_set(1, recs)))
    yield _case(
        "snappy as one raw block, format 1",
        "create",
        [(2, message(1, Rec(base_ms, inner), offset=1, attributes=2))],
    )
    right = codecs.compress(codecs.LZ4, plain_set(0, recs), 1)
    wrong = codecs.compress(codecs.LZ4, plain_set(1, recs), 0)
    yield _case(
        "lz4 with a right checksum in format 0",
        "create",
        [(1, message(0, Rec(0, right), offset=1, attributes=3))],
    )
    yield _case(
        "lz4 with a broken checksum in format 1",
        "create",
        [(2, message(1, Rec(base_ms, wrong), offset=1, attributes=3))],
    )
    halves = [codecs.compress(codecs.GZIP, part, 2) for part in (payload[:20], payload[20:])]
    yield _case("gzip in two members", "create", [(9, batch(recs, 1, payload=b"".join(halves)))])


def sequences(base_ms: int) -> Iterator[Case]:
    """Idempotent producers: duplicates, gaps, epochs."""

    def send(sequence: int, count: int = 3, epoch: int = 0, pid: int = 77, codec: int = 0) -> bytes:
        recs = records([base_ms + sequence % 1000] * count)
        return batch(recs, codec, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)

    stories: dict[str, list[bytes]] = {
        "in order": [send(0), send(3), send(6)],
        "duplicate of the last": [send(0), send(3), send(3)],
        "duplicate of an older one": [send(0), send(3), send(6), send(0), send(3), send(9)],
        "duplicate of the fifth last": [*(send(i * 3) for i in range(5)), send(0)],
        "duplicate of the sixth last": [*(send(i * 3) for i in range(6)), send(0)],
        "overlapping": [send(0), send(1), send(3, 2), send(0, 2)],
        "gap": [send(0), send(4), send(3)],
        "unknown producer at 5": [send(5), send(8)],
        "new epoch at 0": [send(0), send(0, epoch=1), send(3, epoch=1)],
        "new epoch at 3": [send(0), send(3, epoch=1), send(0, epoch=1)],
        "old epoch": [send(0, epoch=3), send(3, epoch=2), send(0, epoch=2), send(3, epoch=3)],
        "two producers": [send(0), send(0, pid=78), send(3), send(3, pid=78), send(0, pid=78)],
        "wraps": [send(INT32_MAX - 1, 2), send(0, 2), send(INT32_MAX - 1, 2)],
        "wraps inside": [send(INT32_MAX - 1, 4), send(2, 2), send(INT32_MAX - 1, 4)],
        "compressed": [send(0, codec=3), send(3, codec=1), send(3, codec=1), send(0, codec=3)],
        "duplicate with another count": [send(0, 3), send(0, 2), send(0, 4)],
    }
    for title, sets in stories.items():
        for topic in ("create", "append"):
            steps: list[Step] = [produce(9, data, name=f"#{i}") for i, data in enumerate(sets)]
            steps += [fetch(4), fetch(12), fetch(2), lookup(1, -1)]
            yield Case(f"sequences {title} on {topic}", topic, tuple(steps), {"edge": "sequences"})
    old = [produce(2, send(0)), produce(2, send(0)), produce(2, send(0) + send(3)), fetch(4)]
    yield Case("sequences in produce v2", "create", tuple(old), {"edge": "sequences"})
    transactional = batch(
        records((base_ms,)),
        attributes=TRANSACTIONAL_BIT,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
    )
    steps = (produce(9, transactional), produce(9, transactional, transactional_id="tx"), fetch(4))
    yield Case("transactional without a transaction", "create", steps, {"edge": "transaction"})


def several_partitions(base_ms: int) -> Iterator[Case]:
    """One request for several partitions of which some are bad: the others go through."""

    def fields(sets: Sequence[tuple[str, int, bytes | None]]) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, index, data in sets:
            topics.setdefault(topic, []).append({"index": index, "records": data})
        return {
            "transactional_id": None,
            "acks": 1,
            "timeout_ms": 5000,
            "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
        }

    recs = records((base_ms,))
    for version, magic in ((2, 1), (3, 2), (9, 2)):
        good = record_set(magic, 0, recs)
        bad = batch(recs, bad_crc=True) if magic == 2 else plain_set(1, recs, bad_crc=True)

        def send(context: Any, good: bytes = good, bad: bytes = bad) -> dict[str, Any]:
            here = context.partition
            return fields(
                [
                    (context.topic, here, good),
                    ("no-such-topic", 0, good),
                    (context.topic, 999_999, bad),
                ]
            )

        steps = (
            ask(f"produce several v{version}", "Produce", version, send),
            fetch(4),
            lookup(1, -1),
        )
        yield Case(f"several partitions v{version}", "create", steps, {"edge": "several"})
    old = record_set(2, 0, records((base_ms, base_ms - DAY_MS, base_ms + DAY_MS)))
    steps = tuple(produce(version, old) for version in (3, 7, 8, 9, 10, 11))
    yield Case("record errors by version", "create", steps, {"edge": "record errors"})


def times_and_lookups(base_ms: int) -> Iterator[Case]:
    """Corners of ListOffsets on logs made for them."""
    for topic in ("create-any", "create-segments"):
        early = [Rec(base_ms + i, b"v" * 50) for i in range(8)]
        late = [Rec(base_ms - 100 + i, b"v" * 50) for i in range(8)]
        sets = [
            batch(early),
            batch(late),
            batch([Rec(-1, b"v" * 400)] * 2),
            batch(early, 1),
            *[batch([rec]) for rec in late],
        ]
        steps: list[Step] = [produce(9, data, name=f"#{i}") for i, data in enumerate(sets)]
        for version in (1, 2, 4, 7):
            steps += [lookup(version, base_ms + d) for d in (-200, -100, -93, -92, -1, 0, 4, 7, 8)]
        steps += [lookup(0, target, max_offsets=n) for target in (-1, -2) for n in (1, 2, 100)]
        steps += [lookup(0, target) for target in (0, base_ms, 2**62)]
        steps += [lookup(version, -3) for version in (7, 9)]
        yield Case(
            f"lookups on {topic}",
            topic,
            tuple(steps),
            {"edge": "lookups", "segments": "segments" in topic},
        )
    no_times = [
        batch([Rec(-1, b"v" * 300)] * 3),
        plain_set(0, [Rec(-1, b"v" * 300)] * 3),
        batch([Rec(base_ms, b"v" * 900)]),
    ]
    steps = [produce(9 if i != 1 else 1, data, name=f"#{i}") for i, data in enumerate(no_times)]
    steps += [
        lookup(version, target) for version in (1, 7) for target in (0, 1, base_ms, base_ms + 1)
    ]
    steps += [lookup(7, -3)]
    yield Case(
        "segments without times before one with",
        "create-segments",
        tuple(steps),
        {"edge": "no times", "segments": True},
    )


def sentinels(base_ms: int) -> Iterator[Case]:
    data = batch(records((base_ms, base_ms + 5)))
    steps: list[Step] = [produce(9, data)]
    for version in range(10):
        steps += [
            lookup(version, target) for target in (-1, -2, -3, -4, -5, -6, -7, -1000, -(2**63))
        ]
    for version in (2, 4, 9):
        steps += [lookup(version, target, isolation=1) for target in (-1, base_ms + 1, base_ms + 6)]
    for version in (4, 7):
        steps += [lookup(version, -1, epoch=epoch) for epoch in (0, 1, 5)]
    for version in (0, 1, 4, 7):
        steps += [
            lookup(version, -1, topic="no-such-topic", partitions=[0]),
            lookup(version, 5, partitions=[999_999]),
        ]
        steps.append(lookup(version, -1, partitions=[0, 0]))
    steps += [lookup(0, -1, max_offsets=n) for n in (0, 1, -1)]
    yield Case("sentinels of ListOffsets", "create", tuple(steps), {"edge": "sentinels"})
    steps = [lookup(version, target) for version in (0, 1, 7) for target in (-1, -2, 0, base_ms)]
    steps += [lookup(7, -3), *(fetch(version) for version in (0, 2, 4, 12))]
    yield Case("an empty partition", "append", tuple(steps), {"edge": "empty"})
    steps = [
        produce(9, data),
        produce(2, plain_set(1, records((base_ms,)))),
        lookup(1, Append(1, 1)),
        lookup(7, -3),
    ]
    steps += [lookup(7, Append(0, -1)), lookup(7, Append(1, 0)), lookup(7, Append(0, 1))]
    yield Case("lookups by append time", "append", tuple(steps), {"edge": "append lookups"})


def fetches(base_ms: int) -> Iterator[Case]:
    """Offsets out of range, limits, sessions, leader epochs."""
    sets = [batch(records((base_ms, base_ms + 1)), codec) for codec in (0, 1, 3, 0)]
    writes = [produce(9, data, name=f"#{i}") for i, data in enumerate(sets)]
    versions = tuple(range(17))
    steps = [fetch(version, offset) for version in versions for offset in (-1, 8, 9, 100)]
    yield Case("fetch offsets at the rim", "create", (*writes, *steps), {"edge": "fetch offsets"})
    for size in (0, 1, 16, 40, 75, 100, 200, 300):
        steps = [
            fetch(version, offset, max_bytes=size)
            for version in versions
            for offset in (0, 1, 3, 6)
        ]
        yield Case(
            f"fetch max {size}", "create", (*writes, *steps), {"edge": "fetch max", "max": size}
        )
    steps = [
        fetch(version, 0, request_max_bytes=size)
        for version in versions[3:]
        for size in (0, 1, 100, 200)
    ]
    yield Case("fetch request max", "create", (*writes, *steps), {"edge": "request max"})
    steps = [
        fetch(version, current_leader_epoch=epoch) for version in (9, 12, 13) for epoch in (0, 1, 7)
    ]
    steps += [fetch(version, isolation=1) for version in (4, 11, 13)]
    steps += [fetch(version, topic="no-such-topic", partition=0) for version in range(13)]
    steps += [fetch(version, partition=999_999) for version in versions]
    steps += [fetch(13, topic_id="11111111-2222-3333-4444-555555555555")]
    steps += [fetch(version, session_id=12345, session_epoch=1) for version in (7, 11, 13)]
    steps += [fetch(7, 8, min_bytes=1, max_wait_ms=30), fetch(2, 8, min_bytes=1, max_wait_ms=30)]
    yield Case("fetch rarities", "create", (*writes, *steps), {"edge": "fetch rarities"})
    steps = [fetch(version, session_id=0, session_epoch=0) for version in (7, 12)]
    yield Case("fetch sessions", "create", (*writes, *steps), {"edge": "fetch sessions"})
    fields = [
        lambda context, epoch=epoch, current=current: {
            "replica_id": -1,
            "topics": [
                {
                    "topic": context.topic,
                    "partitions": [
                        {
                            "partition": context.partition,
                            "current_leader_epoch": current,
                            "leader_epoch": epoch,
                        }
                    ],
                }
            ],
        }
        for epoch, current in ((0, -1), (0, 0), (1, -1), (5, -1), (-1, -1), (0, 7))
    ]
    steps = [
        ask(f"offset for leader epoch v{version} #{i}", "OffsetForLeaderEpoch", version, one)
        for version in range(5)
        for i, one in enumerate(fields)
    ]
    yield Case("offset for leader epoch", "create", (*writes, *steps), {"edge": "leader epoch"})
    yield Case("leader epoch of an empty log", "create", tuple(steps), {"edge": "leader epoch"})


def fetches_of_several_partitions(base_ms: int) -> Iterator[Case]:
    """Two partitions in one request: who gets the bytes when there are not enough for both."""
    data = batch(records((base_ms, base_ms + 1)))

    def write(context: Any) -> dict[str, Any]:
        places = [{"index": context.partition + i, "records": data} for i in (0, 1)]
        topics = [{"name": context.topic, "partition_data": places}]
        return {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": topics}

    def read(order: Sequence[int], request_max: int, partition_max: int, offset: int) -> Any:
        def fields(context: Any) -> dict[str, Any]:
            wanted = [
                {
                    "partition": context.partition + i,
                    "fetch_offset": offset,
                    "partition_max_bytes": partition_max,
                }
                for i in order
            ]
            identity = {"topic": context.topic, "topic_id": context.topic_ids.get(context.topic)}
            return {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": request_max,
                "isolation_level": 0,
                "session_epoch": -1,
                "topics": [identity | {"partitions": wanted}],
            }

        return fields

    steps = [ask(f"produce v9 #{i}", "Produce", 9, write) for i in range(3)]
    for version in (0, 2, 3, 4, 7, 11, 12, 13):
        for order in ((0, 1), (1, 0)):
            for limits_asked in (
                (1000, 1000),
                (150, 1000),
                (1, 1000),
                (1000, 1),
                (1000, 150),
                (0, 0),
            ):
                name = f"fetch v{version} {order} max {limits_asked}"
                steps.append(ask(name, "Fetch", version, read(order, *limits_asked, offset=2)))
        steps.append(
            ask(f"fetch v{version} at the end", "Fetch", version, read((0, 1), 100, 100, offset=6))
        )
        steps.append(
            ask(f"fetch v{version} beyond", "Fetch", version, read((0, 1), 100, 100, offset=7))
        )
    yield Case("fetch of two partitions", "create", tuple(steps), {"edge": "pair"}, partitions=2)


def settings_changed_live(base_ms: int) -> Iterator[Case]:
    """KIP-32 on a live topic: each change holds from the next append on."""

    def alter(topic: str, **changes: str) -> Step:
        configs = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value}
            for name, value in changes.items()
        ]
        resources = [{"resource_type": 2, "resource_name": topic, "configs": configs}]
        fields = {"resources": resources, "validate_only": False}
        return ask(f"alter {changes}"[:50], "IncrementalAlterConfigs", 0, fields)

    old, now = records((base_ms - DAY_MS,)), records((base_ms, base_ms + 5))
    for first in ("CreateTime", "LogAppendTime"):
        topic = f"live-{first}"
        other = "LogAppendTime" if first == "CreateTime" else "CreateTime"
        configs = [{"name": "message.timestamp.type", "value": first}]
        made = {
            "name": topic,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": configs,
        }
        steps: list[Step] = [
            ask("create", "CreateTopics", 4, {"topics": [made], "timeout_ms": 60_000})
        ]

        def write(number: int, topic: str = topic) -> list[Step]:
            sets = [
                (2, plain_set(1, now)),
                (2, wrapper(1, now, 1)),
                (9, batch(now)),
                (9, batch(old, 3)),
            ]
            return [
                produce(version, data, name=f"#{number}.{i}", topic=topic, partition=0)
                for i, (version, data) in enumerate(sets)
            ]

        changes = (
            {"message_timestamp_type": other},
            {"message_timestamp_before_max_ms": "3600000"},
            {"message_timestamp_type": first},
            {"compression_type": "gzip"},
            {"message_timestamp_before_max_ms": str(2**63 - 1)},
            {"max_message_bytes": "60"},
        )
        steps += write(0)
        for number, change in enumerate(changes, 1):
            steps += [alter(topic, **change), *write(number)]
        steps += [fetch(version, 0, topic=topic, partition=0) for version in (1, 2, 4, 12)]
        steps += [
            lookup(1, target, topic=topic, partitions=[0]) for target in (-1, base_ms, base_ms + 5)
        ]
        steps += [lookup(7, target, topic=topic, partitions=[0]) for target in (-3, 0)]
        yield Case(f"settings changed live from {first}", "append", tuple(steps), {"edge": "live"})


def zstd_for_old_clients(base_ms: int) -> Iterator[Case]:
    sets = [batch(records((base_ms, base_ms + 1)), codec) for codec in (4, 0, 4, 1)]
    writes = [produce(9, data, name=f"#{i}") for i, data in enumerate(sets)]
    steps = [
        fetch(version, offset) for version in (0, 1, 2, 3, 4, 9, 10, 12) for offset in (0, 2, 4)
    ]
    yield Case("zstd read by old clients", "create", (*writes, *steps), {"edge": "zstd"})
    yield Case("zstd topic read by old clients", "create-zstd", (*writes, *steps), {"edge": "zstd"})


def offsets_of_old_clients(base_ms: int) -> Iterator[Case]:
    recs = records((base_ms, base_ms + 7, base_ms + 3))
    for topic in ("create", "append"):
        data = wrapper(1, recs, codecs.GZIP, offset=-1)
        yield _case(f"wrapper offset -1 on {topic}", topic, [(2, data)])


def edge_cases(base_ms: int) -> list[Case]:
    """All of the above."""
    makers = (
        sizes_and_checksums,
        what_a_version_may_carry,
        limits,
        acks,
        lies_in_format_1,
        lies_in_format_2,
        snappy_blocks,
        sequences,
        several_partitions,
        times_and_lookups,
        sentinels,
        fetches,
        fetches_of_several_partitions,
        settings_changed_live,
        zstd_for_old_clients,
        offsets_of_old_clients,
    )
    return [case for maker in makers for case in maker(base_ms)]


def frame(text: str) -> bytes:
    """A Kafka string."""
    return struct.pack(">h", len(text)) + text.encode()

"""The matrix: every format, codec, timestamp type and kind of time, written and read every way.

Each case writes one kind of record set once per Produce version that may carry it, reads the
partition back with every Fetch version, from its start and from its middle, and asks ListOffsets
for every interesting time. `TOPICS` gives the settings of each kind of topic; times are relative
to one moment of the session, so both brokers get the same bytes.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from tests.oracle import codecs
from tests.oracle.recordset import Rec, batch, plain_set, wrapper
from tests.oracle.scenario import Append, Case, Step, fetch, lookup, produce, read_log_file

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FOREVER = 2**63 - 1

WINDOW = {
    "message.timestamp.before.max.ms": str(HOUR_MS),
    "message.timestamp.after.max.ms": str(HOUR_MS),
}
UNLIMITED = {
    "message.timestamp.before.max.ms": str(FOREVER),
    "message.timestamp.after.max.ms": str(FOREVER),
}
STAY = {"retention.ms": "-1", "segment.ms": str(FOREVER), "segment.index.bytes": "65536"}
CREATE = {**STAY, "message.timestamp.type": "CreateTime"}
APPEND = {**STAY, "message.timestamp.type": "LogAppendTime"}

TOPICS: dict[str, dict[str, str]] = {
    "create": {**CREATE, **WINDOW},
    "append": {**APPEND, **WINDOW},
    "create-any": {**CREATE, **UNLIMITED},
    "append-any": {**APPEND, **UNLIMITED},
    "create-difference": {**CREATE, "message.timestamp.difference.max.ms": str(HOUR_MS)},
    "create-past": {**CREATE, "message.timestamp.before.max.ms": str(HOUR_MS)},
    "create-future": {**CREATE, "message.timestamp.after.max.ms": str(HOUR_MS)},
    "create-segments": {**CREATE, **UNLIMITED, "segment.bytes": "1000"},
    "create-indexed": {
        **CREATE,
        **UNLIMITED,
        "segment.bytes": "3000",
        "index.interval.bytes": "100",
    },
    "append-indexed": {
        **APPEND,
        **UNLIMITED,
        "segment.bytes": "3000",
        "index.interval.bytes": "100",
    },
    "create-small": {**CREATE, **UNLIMITED, "max.message.bytes": "2000"},
    "create-compact": {**CREATE, **UNLIMITED, "cleanup.policy": "compact"},
    "create-uncompressed": {**CREATE, **UNLIMITED, "compression.type": "uncompressed"},
    "create-gzip": {**CREATE, **UNLIMITED, "compression.type": "gzip"},
    "create-lz4": {**CREATE, **UNLIMITED, "compression.type": "lz4"},
    "create-zstd": {**CREATE, **UNLIMITED, "compression.type": "zstd"},
    "append-snappy": {**APPEND, **UNLIMITED, "compression.type": "snappy"},
}

FETCH_VERSIONS = (0, 1, 2, 3, 4, 10, 11, 12, 13)
PRODUCE_VERSIONS = {0: (0, 1, 2), 1: (0, 1, 2), 2: (3, 7, 8, 9, 11)}
CODECS = {0: (0, 1, 2, 3), 1: (0, 1, 2, 3), 2: (0, 1, 2, 3, 4)}


def times(base_ms: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Kinds of times: whether they need a topic with a window (""), or one without ("-any")."""
    return {
        "in range": ("", (base_ms, base_ms + 9, base_ms + 3, base_ms + 9)),
        "too old": ("", (base_ms - DAY_MS, base_ms - DAY_MS + 1)),
        "too new": ("", (base_ms + DAY_MS, base_ms + DAY_MS + 1)),
        "none": ("", (-1, -1, -1)),
        "some none": ("", (-1, base_ms, -1, base_ms - 2)),
        "mixed": ("", (base_ms, base_ms - DAY_MS, -1, base_ms + 1, base_ms + DAY_MS)),
        "extremes": ("-any", (0, base_ms, base_ms + 100 * 365 * DAY_MS, 1)),
        "negative": ("-any", (-5, -7, -5)),
        "around zero": ("-any", (-2, 0, -1, -(10**12), 5)),
    }


def records(stamps: Sequence[int], tag: str = "") -> list[Rec]:
    """Records with these times; every third has a null value or key, to see them kept."""
    return [
        Rec(
            stamp,
            None if i % 3 == 2 else f"value-{tag}{i}".encode() * (1 + i % 2 * 3),
            None if i % 3 == 1 else f"key-{i}".encode(),
        )
        for i, stamp in enumerate(stamps)
    ]


def record_set(magic: int, codec: int, recs: Sequence[Rec]) -> bytes:
    """An honest record set."""
    if magic == 2:
        return batch(recs, codec)
    return wrapper(magic, recs, codec) if codec else plain_set(magic, recs)


def read_back(stamps: Sequence[int], middle: int, appends: int, *, stamped: bool) -> list[Step]:
    """Every way to read what was written: all Fetch versions, all lookups."""
    steps = [fetch(version, offset) for offset in (0, middle) for version in FETCH_VERSIONS]
    targets: list[int | Append] = [-1, -2]
    if stamped:
        targets += [Append(i, plus) for i in range(appends) for plus in (-1, 0, 1)]
    positive = {stamp + plus for stamp in stamps for plus in (-1, 0, 1) if stamp + plus >= 0}
    targets += [0, *sorted(positive), FOREVER]
    steps += [lookup(version, target) for version in (1, 4) for target in targets]
    steps += [lookup(7, target) for target in (-1, -2, -3)]
    steps += [lookup(0, target) for target in (-1, -2)]
    steps += [lookup(0, -1, max_offsets=1), lookup(2, -1, isolation=1), read_log_file()]
    return steps


def matrix(base_ms: int) -> list[Case]:
    """Formats x codecs x timestamp types x kinds of times."""
    cases = []
    for magic in (0, 1, 2):
        for codec, kind in itertools.product(CODECS[magic], ("create", "append")):
            for name, (suffix, stamps) in times(base_ms).items():
                if magic == 0 and name != "none":
                    continue
                steps: list[Step] = []
                versions = PRODUCE_VERSIONS[magic]
                for version in versions:
                    recs = records(stamps, f"{version}-")
                    if magic == 2 and version > 7:
                        recs[0] = recs[0]._replace(headers=(("h", b"1"), ("", None)))
                    steps.append(produce(version, record_set(magic, codec, recs)))
                steps += read_back(stamps, len(stamps) + 1, len(versions), stamped=kind == "append")
                title = f"format {magic}, {codecs.NAMES[codec]}, {kind}{suffix}, {name}"
                tags = {"magic": magic, "codec": codec, "type": kind, "times": name}
                cases.append(Case(title, kind + suffix, tuple(steps), tags))
    return cases


def recompression(base_ms: int) -> list[Case]:
    """Topics with a codec of their own, and producers with another or the same."""
    cases = []
    stamps = (base_ms, base_ms + 9, base_ms + 3, base_ms + 9)
    kinds = [
        name for name in TOPICS if name.endswith(("uncompressed", "gzip", "lz4", "zstd", "snappy"))
    ]
    for kind, magic in itertools.product(kinds, (0, 1, 2)):
        for codec in (0, 1, 3) if magic < 2 else (0, 1, 3, 4):
            steps = [
                produce(version, record_set(magic, codec, records(stamps, f"{version}-")))
                for version in ((2,) if magic < 2 else (7, 9))
            ]
            steps += read_back(stamps, 2, len(steps), stamped=kind.startswith("append"))
            title = f"recompress format {magic}, {codecs.NAMES[codec]} to {kind}"
            tags = {"magic": magic, "codec": codec, "topic codec": kind.split("-")[1]}
            cases.append(Case(title, kind, tuple(steps), tags))
    return cases


KINDS = ("create-any", "append-any", "create-segments", "create-indexed", "append-indexed")


def random_logs(base_ms: int, seeds: range = range(15)) -> list[Case]:
    """The same random log in both brokers: every format mixed, then fetched and searched."""
    cases = []
    for seed in seeds:
        chance = random.Random(seed)  # the same log in every run
        kind = KINDS[seed % len(KINDS)]
        appends = 60 if "indexed" in kind else 20
        steps: list[Step] = []
        stamps: list[int] = []
        count = 0
        for i in range(appends):
            magic = chance.choice((0, 1, 2, 2))
            codec = chance.choice(CODECS[magic])
            size = chance.randint(1, 5)
            chosen = [
                chance.choice((-1, base_ms + chance.randint(-50, 50), chance.randint(0, 100)))
                for _ in range(size)
            ]
            version = chance.choice((7, 9, 11) if magic == 2 else (0, 1, 2))
            steps.append(
                produce(version, record_set(magic, codec, records(chosen, f"{i}-")), name=f"#{i}")
            )
            stamps += [-1] * size if magic == 0 else chosen
            count += size
        targets: list[int | Append] = sorted({s + d for s in stamps for d in (0, 1) if s + d >= 0})
        if kind.startswith("append"):
            targets = [Append(i, plus) for i in range(appends) for plus in (0, 1)]
        steps += [lookup(chance.choice((1, 4, 6)), target) for target in (*targets, FOREVER)]
        steps += [lookup(7, -3), lookup(7, -1), lookup(1, -2), lookup(0, -1)]
        for version in FETCH_VERSIONS:
            steps.append(fetch(version, chance.randint(0, count)))
            steps.append(
                fetch(version, chance.randint(0, count - 1), max_bytes=chance.randint(1, 900))
            )
        steps.append(read_log_file())
        tags = {"random": True, "type": kind.split("-")[0], "segments": "any" not in kind}
        cases.append(Case(f"random log {seed} on {kind}", kind, tuple(steps), tags))
    return cases


def random_times_below_zero(base_ms: int, seeds: range = range(100, 106)) -> list[Case]:
    """Random logs of format 2 with negative times among others, for clients that know format 2."""
    cases = []
    for seed in seeds:
        chance = random.Random(seed)
        kind = ("create-any", "append-any", "create-segments")[seed % 3]
        pool = (-1, -2, -1000, -(2**50), 0, 7, base_ms, base_ms + 5)
        steps: list[Step] = []
        for i in range(15):
            chosen = [chance.choice(pool) for _ in range(chance.randint(1, 5))]
            codec = chance.choice(CODECS[2])
            steps.append(produce(9, record_set(2, codec, records(chosen, f"{i}-")), name=f"#{i}"))
        targets = (0, 1, 7, 8, base_ms, base_ms + 5, base_ms + 6)
        steps += [lookup(chance.choice((1, 4, 7)), target) for target in (*targets, -1, -2)]
        steps += [fetch(version, chance.randint(0, 15)) for version in (10, 11, 12, 13)]
        steps.append(read_log_file())
        tags = {"random": True, "times": "negative", "segments": "segments" in kind}
        cases.append(
            Case(f"random log {seed} with negative times on {kind}", kind, tuple(steps), tags)
        )
    return cases


def windows(base_ms: int) -> list[Case]:
    """Each name of the window by itself, and times on both sides of it."""
    cases = []
    stamps = {
        "old": (base_ms, base_ms - DAY_MS),
        "new": (base_ms, base_ms + DAY_MS),
        "right": (base_ms, base_ms + 1),
    }
    for kind in ("create-difference", "create-past", "create-future"):
        for name, times_sent in stamps.items():
            sets = [(2, record_set(1, codec, records(times_sent))) for codec in (0, 1)]
            sets += [(9, record_set(2, codec, records(times_sent))) for codec in (0, 3)]
            steps = [produce(version, data, name=f"#{i}") for i, (version, data) in enumerate(sets)]
            cases.append(
                Case(f"{name} times on {kind}", kind, (*steps, fetch(12), read_log_file()))
            )
    return cases

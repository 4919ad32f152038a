"""What a 0.10.2.2 broker and tidelog are both asked: formats 0 and 1, written and kept.

A topic of either takes format 0 (message.format.version 0.9.0.1) or 1 (0.10.2). Every case ends
with a look at the `.log` files, so the bytes on the disk are compared, not only what is served.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from tests.oracle import codecs
from tests.oracle.cases import edges
from tests.oracle.cases.matrix import DAY_MS, HOUR_MS, record_set, records
from tests.oracle.scenario import (
    Append,
    Case,
    Step,
    fetch,
    lookup,
    produce,
    read_log_file,
    restrict,
)

NEWEST = {"Produce": 2, "Fetch": 3, "ListOffsets": 1}
STAY = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}

TOPICS: dict[str, dict[str, str]] = {
    f"{kind}-{name}": {
        **STAY,
        "message.format.version": version,
        "message.timestamp.type": {"create": "CreateTime", "append": "LogAppendTime"}[kind],
    }
    for kind, (name, version) in itertools.product(
        ("create", "append"), (("format-0", "0.9.0.1"), ("format-1", "0.10.2"))
    )
}
WINDOW = {"message.timestamp.difference.max.ms": str(HOUR_MS)}
TOPICS["create-window"] = TOPICS["create-format-1"] | WINDOW
TOPICS["create-window-0"] = TOPICS["create-format-0"] | WINDOW
TOPICS["create-segments"] = TOPICS["create-format-1"] | {"segment.bytes": "400"}
TOPICS["create-indexed"] = TOPICS["create-format-1"] | {
    "segment.bytes": "3000",
    "index.interval.bytes": "100",
}
TOPICS["append-indexed"] = TOPICS["append-format-1"] | {
    "segment.bytes": "3000",
    "index.interval.bytes": "100",
}
TOPICS["create-gzip"] = TOPICS["create-format-1"] | {"compression.type": "gzip"}
TOPICS["create-uncompressed"] = TOPICS["create-format-0"] | {"compression.type": "uncompressed"}


def times(base_ms: int) -> dict[str, tuple[int, ...]]:
    """Kinds of times to send."""
    return {
        "in range": (base_ms, base_ms + 9, base_ms + 3, base_ms + 9),
        "none": (-1, -1, -1),
        "some none": (-1, base_ms, -1, base_ms - 2),
        "mixed": (base_ms, base_ms - DAY_MS, base_ms + 1, base_ms + DAY_MS),
        "extremes": (0, base_ms, base_ms + 100 * 365 * DAY_MS, 1),
        "negative": (-5, -7, -5),
    }


def written(base_ms: int) -> list[Case]:
    """Formats x codecs x topics x kinds of times."""
    cases = []
    topics = [topic for topic in TOPICS if not topic.endswith("indexed")]
    for topic, magic, codec in itertools.product(topics, (0, 1), (0, 1, 2, 3)):
        for name, stamps in times(base_ms).items():
            if magic == 0 and name != "none":
                continue
            steps: list[Step] = [
                produce(version, record_set(magic, codec, records(stamps, f"{version}-")))
                for version in (0, 1, 2)
            ]
            steps += [
                fetch(version, offset) for offset in (0, len(stamps) + 1) for version in range(4)
            ]
            targets: list[int | Append] = [-1, -2, *sorted({one for one in stamps if one >= 0})]
            if topic == "append-format-1":
                targets += [Append(i, plus) for i in range(3) for plus in (-1, 0, 1)]
            steps += [lookup(1, target) for target in targets]
            steps += [lookup(0, -1), lookup(0, -2), read_log_file()]
            tags = {"magic": magic, "codec": codec, "times": name, "old": True}
            title = f"format {magic}, {codecs.NAMES[codec]}, {name} to {topic}"
            cases.append(Case(title, topic, tuple(steps), tags))
    return cases


def malformed(base_ms: int) -> list[Case]:
    """The edges that an old client can send, on topics of both formats."""
    makers = (edges.sizes_and_checksums, edges.what_a_version_may_carry, edges.lies_in_format_1)
    cases = []
    for case in (each for maker in makers for each in maker(base_ms)):
        old = restrict(case, NEWEST)
        if old is None:
            continue
        kind = "append" if case.topic.startswith("append") else "create"
        for suffix in ("format-0", "format-1"):
            topic = f"{kind}-{suffix}"
            steps = (*old.steps, fetch(0), fetch(1), read_log_file())
            cases.append(replace(old, name=f"{case.name} to {topic}", topic=topic, steps=steps))
    return cases


def random_logs(base_ms: int) -> list[Case]:
    """Random logs of formats 0 and 1, searched through small indexes over several segments."""
    cases = []
    for seed in range(10):
        chance = random.Random(seed)  # the same log in every run
        kind = ("create-indexed", "append-indexed")[seed % 2]
        steps: list[Step] = []
        stamps: list[int] = []
        for i in range(50):
            magic, codec = chance.choice((0, 1, 1)), chance.choice((0, 0, 1, 2, 3))
            chosen = [
                chance.choice((base_ms + chance.randint(-50, 50), chance.randint(0, 100)))
                for _ in range(chance.randint(1, 4))
            ]
            data = record_set(magic, codec, records(chosen, f"{i}-"))
            steps.append(produce(chance.choice((0, 1, 2)), data, name=f"#{i}"))
            stamps += chosen
        targets: list[int | Append] = sorted({one + plus for one in stamps for plus in (0, 1)})
        if kind.startswith("append"):
            targets = [Append(i, plus) for i in range(50) for plus in (0, 1)]
        steps += [lookup(1, target) for target in (*targets, -1, -2, 2**62)]
        for version in range(4):
            for _ in range(4):
                start, size = chance.randint(0, len(stamps)), chance.randint(200, 2000)
                steps.append(fetch(version, start, max_bytes=size))
        steps.append(read_log_file())
        cases.append(Case(f"random log {seed} on {kind}", kind, tuple(steps), {"random": True}))
    return cases


def old_cases(base_ms: int) -> list[Case]:
    """All of the above."""
    return written(base_ms) + malformed(base_ms) + random_logs(base_ms)

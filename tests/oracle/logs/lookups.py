"""Random logs and lookups by time in them, asked for many partitions at once.

A `RandomLog` is a partition's life: record sets of every format and codec with times in order, out of
order, equal, missing, future and negative, trims by DeleteRecords, and lookups. `play_together` plays
many of them in step, one request for all of them at a time, so thousands of lookups take seconds. A
`Model` is the list of a log's record times: it knows every answer without any index or segment.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.oracle import scenario
from tests.oracle.cases.deletions import delete
from tests.oracle.cases.matrix import CODECS, FOREVER, record_set, records
from tests.oracle.scenario import Append, Case, lookup, produce

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.oracle import wire
    from tests.oracle.scenario import Context, Step

DAY_MS = 86_400_000
# The lists of topics in a request, of partitions in them, and both again in the answer.
LISTS = {
    "Produce": ("topic_data", "partition_data", "responses", "partition_responses"),
    "ListOffsets": ("topics", "partitions", "topics", "partitions"),
    "DeleteRecords": ("topics", "partitions", "topics", "partitions"),
}


class Kind(NamedTuple):
    """What happens to the logs of a topic.

    `formats`: the message format on the disk, thirds of the log one after the other.
    """

    settings: Mapping[str, str]
    formats: tuple[int, ...] = (2,)
    magics: tuple[int, ...] = (0, 1, 2, 2, 2)
    styles: tuple[str, ...] = ("ordered", "random", "equal", "missing", "late", "future")

    @property
    def is_stamped(self) -> bool:
        return self.settings["message.timestamp.type"] == "LogAppendTime"


@dataclass
class Model:
    """The times of a log's records by offset; None is none, and a stamp is the number of its append."""

    is_stamped: bool
    times: list[int | None] = field(default_factory=list)
    formats: list[int] = field(default_factory=list)  # of each record, on the disk
    log_start: int = 0
    bases: list[int] = field(default_factory=list)  # where segments of tidelog begin
    kafka_bases: list[int] = field(default_factory=list)
    topic_format: int = 2

    def find(self, target: int | Append) -> int:
        """The smallest offset there is whose time is at or after `target`; -1 without one."""
        bound = self.bound(target)
        for offset in range(self.log_start, len(self.times)):
            at = self.times[offset]
            if at is not None and at >= bound:
                return offset
        return -1

    def bound(self, target: int | Append) -> int:
        """What a time must not be below to be found."""
        if isinstance(target, Append):
            return target.number + (1 if target.plus > 0 else 0)
        if self.is_stamped and target >= 0:
            return 0 if target < DAY_MS else FOREVER
        return target

    def find_largest(self) -> int:
        """The smallest offset that has the largest time; -1 where no record has one."""
        there = [
            (at, -offset)
            for offset, at in enumerate(self.times)
            if at is not None and offset >= self.log_start
        ]
        return -max(there)[1] if there else -1

    def time_of(self, offset: int) -> int | str:
        """A record's time as the answers write it."""
        at = self.times[offset] if offset >= 0 else None
        if at is None:
            return -1
        return f"append#{at}" if self.is_stamped else at

    def answer(self, version: int, target: int | Append, max_offsets: int = 100) -> Any:
        """What a lookup has to find: (offset, time), or the list of offsets that version 0 has."""
        end = len(self.times)
        if version == 0:
            if target == -2:
                return [self.log_start]
            first = end if target == -1 else self.find(target)
            first = end if first == -1 else first
            bases = {max(base, self.log_start) for base in self.bases}
            return [first, *sorted((one for one in bases if one < first), reverse=True)][
                :max_offsets
            ]
        if target == -1:
            return end, -1
        if target in (-2, -4):
            return self.log_start, -1
        if target == -5:
            return -1, -1
        found = self.find_largest() if target == -3 else self.find(target)
        return found, self.time_of(found)

    def segment_of(self, offset: int) -> range:
        """The offsets of Kafka's segment that holds this one."""
        base = max((one for one in self.kafka_bases if one <= offset), default=0)
        return range(base, min((one for one in self.kafka_bases if one > base), default=10**9))

    def read_bases(self, ours: Path, theirs: Path) -> None:
        """Note where segments begin, in both."""
        self.bases, self.kafka_bases = (
            sorted(int(path.stem) for path in directory.glob("*.log"))
            for directory in (ours, theirs)
        )


class Asked(NamedTuple):
    """One lookup of a case, by the number of its step."""

    number: int
    version: int
    target: int | Append


def random_log(
    name: str, kind: Kind, seed: int, base_ms: int, *, newest: int, appends: int, lookups: int
) -> Case:
    """One log and what is asked about it; cases made alike can be played together."""
    chance, versions = random.Random(f"{name} {seed}"), random.Random("the same for all logs")
    model, asked = Model(kind.is_stamped, topic_format=kind.formats[-1]), []
    steps: list[Step] = []
    style = kind.styles[seed % len(kind.styles)]
    for number in range(appends):
        on_disk = kind.formats[number * len(kind.formats) // appends]
        steps.append(_append(chance, kind, style, number, on_disk, base_ms, model))
    trim = (0, 0.3, 0, 0.8, 0.5, 0)[seed % 6] if newest > 1 else 0
    if newest > 1:
        model.log_start = int(len(model.times) * trim)
        steps.append(delete(model.log_start))
    targets = _targets(chance, model, appends, base_ms, newest)
    for _ in range(lookups):
        version = versions.randint(0, newest)
        isolation = versions.randint(0, 1) if version >= 2 else 0
        target = chance.choice(targets)
        if isinstance(target, int) and target < 0:
            known = {-3: 7, -4: 8, -5: 9}.get(target, 0 if target in (-1, -2) else 1)
            target = target if version >= known else -1
        asked.append(Asked(len(steps), version, target))
        steps.append(lookup(version, target, isolation=isolation))
    title = f"log {seed} on {name}, {style}, trimmed by {trim}"
    return Case(title, name, tuple(steps), {"model": model, "asked": asked, "lookups": True})


def _append(
    chance: random.Random,
    kind: Kind,
    style: str,
    number: int,
    on_disk: int,
    base_ms: int,
    model: Model,
) -> Step:
    magic = chance.choice(kind.magics)
    codec = chance.choice([one for one in CODECS[magic] if one < 4 or on_disk == 2])
    if style in ("negative", "below"):
        magic, codec = 2, chance.choice(CODECS[2])
    stamps = [_time(chance, style, number, base_ms) for _ in range(chance.randint(1, 9))]
    for stamp in stamps:
        model.formats.append(on_disk)
        if on_disk == 0:
            model.times.append(None)
        elif kind.is_stamped:
            model.times.append(number)
        else:
            model.times.append(None if magic == 0 or stamp == -1 else stamp)
    recs = [one._replace(headers=()) for one in records(stamps, f"{number}-")]
    return produce(9 if magic == 2 else 2, record_set(magic, codec, recs), name=f"#{number}")


def _time(chance: random.Random, style: str, number: int, base_ms: int) -> int:
    if style == "ordered":
        return base_ms + number * 10 + chance.randint(0, 9)
    if style == "equal":
        return base_ms + number // 12
    if style == "missing":
        return chance.choice((-1, -1, -1, base_ms + number)) if number % 16 < 6 else -1
    if style == "late":
        return base_ms - number * 10 + chance.randint(0, 30)
    if style == "future":
        far = chance.choice((0, 0, 0, 0, DAY_MS, 36_500 * DAY_MS))
        return base_ms + chance.randint(0, number * 5) + far
    if style == "none":
        return -1
    if style == "below":
        return chance.choice((-1, -3, -5, -1000, -(2**40)))
    if style == "negative":
        pool = (-1, -2, -7, -5, -1000, -(2**50), -(2**63), 0, 7, base_ms + number)
        return chance.choice(pool[:7] if number % 20 < 9 else pool)
    return chance.choice((0, 1, 50, base_ms, base_ms + chance.randint(-500, 500), -1))


def _targets(
    chance: random.Random, model: Model, appends: int, base_ms: int, newest: int
) -> list[int | Append]:
    """Times around those that are there, far from them, and what is not a time."""
    found: list[int | Append]
    if model.is_stamped:
        found = [Append(chance.randrange(appends), plus) for _ in range(30) for plus in (-1, 0, 1)]
    else:
        real = [one for one in model.times if one is not None] or [base_ms]
        near = [chance.choice(real) + plus for _ in range(40) for plus in (-1, 0, 1)]
        lowest = -(2**63) if newest > 1 else 0
        found = [one for one in near if one >= 0 or lowest <= one < -6]
        found += [base_ms + chance.randint(-600, 600) for _ in range(10)]
    found += [0, FOREVER, -1, -2, -1, -2]
    if newest > 1:
        found += [-3] * 8 + [-4, -5, -7, -1000, -(2**62), -(2**63)]
    return found


# ------------------------------------------------------------------------------------ playing


def play_together(
    cases: Sequence[Case], connection: wire.Connection, contexts: Sequence[Context], changes: Any
) -> list[list[Any]]:
    """Play all cases in step; canonical answers for each. `changes(n)` is called before step n."""
    answers: list[list[Any]] = [[] for _ in cases]
    for number in range(max(len(case.steps) for case in cases)):
        changes(number)
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        begin_ms = time.time_ns() // 1_000_000
        for at, case in enumerate(cases):
            step = case.steps[number]
            fields = step.fields(contexts[at])
            groups[step.api, step.version, fields.get("isolation_level")].append(at)
        for (api, version, _), members in groups.items():
            _ask(api, version, members, cases, number, connection, contexts, answers)
        if cases[0].steps[number].api == "Produce":
            _keep_apart(contexts, begin_ms)
    return answers


def _ask(
    api: str,
    version: int,
    members: Sequence[int],
    cases: Sequence[Case],
    number: int,
    connection: wire.Connection,
    contexts: Sequence[Context],
    answers: Sequence[list[Any]],
) -> None:
    """Send one request for several cases and hand each of them its part of the answer."""
    topics, partitions, answered_topics, answered_partitions = LISTS[api]
    request: dict[str, Any] = {}
    wanted: dict[str, list[Any]] = defaultdict(list)
    places = {}
    for at in members:
        fields = cases[at].steps[number].fields(contexts[at])
        (topic,) = fields[topics]
        wanted[topic["name"]] += topic[partitions]
        places[topic["name"], contexts[at].partition] = at
        request = fields
    request[topics] = [{"name": name, partitions: parts} for name, parts in wanted.items()]
    answer = connection.ask(api, version, **request)
    for topic in answer[answered_topics]:
        for one in topic[answered_partitions]:
            at = places.pop((topic["name"], one.get("partition_index", one.get("index"))))
            if api == "Produce":
                stamp = one["log_append_time_ms"]
                contexts[at].append_times.append(range(stamp, stamp + 1))
            part = {answered_topics: [{"name": topic["name"], answered_partitions: [one]}]}
            answers[at].append(scenario.canonical(api, part, contexts[at]))
    assert not places, f"no answer for {places}"


def _keep_apart(contexts: Sequence[Context], begin_ms: int) -> None:
    """Wait until the clock is two milliseconds past every stamp, so the next ones differ."""
    last = max([begin_ms, *(one.append_times[-1][-1] for one in contexts)])
    while time.time_ns() // 1_000_000 <= max(last, begin_ms) + 1:
        time.sleep(0.0005)

"""Ten thousand lookups by time in the same random logs of Apache Kafka and of tidelog.

Formats, codecs, kinds of times, segments, index intervals, trims and versions of ListOffsets as in
lookups.py; 3.9.1 as it runs today, 3.9.1 with a ZooKeeper (which still writes formats 0 and 1, and
mixed logs), and 0.10.2.2. tidelog's answers are held against a model of each log too, so Kafka's reasons to
differ are only looked at where tidelog is right. TIDELOG_ORACLE_LOOKUPS multiplies the number.
"""

from __future__ import annotations

import copy
import os
import time
from dataclasses import replace

import pytest

from tests.oracle import comparison, recordset, wire
from tests.oracle.brokers import Player, partition_names, wait_for_changes
from tests.oracle.cases.matrix import CREATE, UNLIMITED
from tests.oracle.logs.lookup_differences import LOOKUP_REASONS, found
from tests.oracle.logs.lookups import Asked, Kind, play_together, random_log
from tests.oracle.scenario import Context

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

TIMES = int(os.environ.get("TIDELOG_ORACLE_LOOKUPS", "1"))
RELEASES = {0: "0.9.0.1", 1: "0.10.2", 2: "2.8"}
OLD = {key: value for key, value in CREATE.items() if key != "segment.index.bytes"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}
SMALL = {"segment.bytes": "1500", "index.interval.bytes": "100"}
MANY_INTERVALS = {"segment.bytes": "12000", "index.interval.bytes": "200"}
BELOW_ZERO = ("negative", "below", "none")


def format_of(settings, magic):
    return {**settings, "message.format.version": RELEASES[magic]}


TODAY = {
    "look-plain": Kind({**CREATE, **UNLIMITED}),
    "look-small": Kind({**CREATE, **UNLIMITED, **SMALL}),
    "look-indexed": Kind({**CREATE, **UNLIMITED, **MANY_INTERVALS}),
    "append-small": Kind({**CREATE, **UNLIMITED, **STAMPED, **SMALL}),
    "look-negative": Kind({**CREATE, **UNLIMITED, **SMALL}, styles=BELOW_ZERO),
}
MIXED = {
    "look-012": Kind(format_of({**CREATE, **UNLIMITED, **MANY_INTERVALS}, 0), (0, 1, 2)),
    "look-012-small": Kind(format_of({**CREATE, **UNLIMITED, **SMALL}, 0), (0, 1, 2)),
    "look-210": Kind(format_of({**CREATE, **UNLIMITED, **SMALL}, 2), (2, 1, 0)),
    "look-1": Kind(format_of({**CREATE, **UNLIMITED, **MANY_INTERVALS}, 1), (1,)),
    "append-121": Kind(format_of({**CREATE, **UNLIMITED, **STAMPED, **SMALL}, 1), (1, 2, 1)),
}
OLDEST = {
    name: Kind(format_of({**OLD, **more}, formats[0]), formats, magics)
    for name, more, formats, magics in (
        ("old-1", MANY_INTERVALS, (1,), (0, 1)),
        ("old-1-small", SMALL, (1,), (0, 1)),
        ("old-0-indexed", MANY_INTERVALS, (0,), (0, 1)),
        ("old-0", SMALL, (0,), (0, 1)),
        ("append-1", {**STAMPED, **SMALL}, (1,), (0, 1)),
    )
}


class Setup:
    """A Kafka, kinds of logs, and how many logs of each."""

    def __init__(self, version, kinds, *, newest, logs, appends, lookups, **properties):
        self.version, self.kinds, self.newest, self.properties = version, kinds, newest, properties
        self.logs, self.appends, self.lookups = logs, appends, lookups * TIMES

    def cases(self, base_ms):
        return [
            random_log(
                name,
                kind,
                seed,
                base_ms,
                newest=self.newest,
                appends=self.appends,
                lookups=self.lookups,
            )
            for name, kind in self.kinds.items()
            for seed in range(self.logs)
        ]


SETUPS = {
    "3.9.1": Setup("3.9.1", TODAY, newest=9, logs=6, appends=60, lookups=200),
    "3.9.1 mixed": Setup(
        "3.9.1",
        MIXED,
        newest=9,
        logs=6,
        appends=60,
        lookups=140,
        **{"inter.broker.protocol.version": "2.8"},
    ),
    "0.10.2.2": Setup(
        "0.10.2.2",
        OLDEST,
        newest=1,
        logs=6,
        appends=60,
        lookups=70,
        **{"log.index.size.max.bytes": 65536},
    ),
}


class Played:
    """The cases of a setup, and both brokers' answers."""

    def __init__(self, setup, kafka, tidelog):
        self.cases = setup.cases(time.time_ns() // 1_000_000 - 60 * 60_000)
        self.kafka, self.tidelog = (self._play(setup, one) for one in (kafka, tidelog))
        for case, name in zip(self.cases, partition_names(self.cases), strict=True):
            case.tags["model"].read_bases(tidelog.log_dir / name, kafka.log_dir / name)
            case.tags["magics"] = {
                one["magic"]
                for path in (kafka.log_dir / name).glob("*.log")
                for one in recordset.parse(path.read_bytes())[0]
            }
        self.verdict = self.judge(self.cases, self.kafka, self.tidelog)

    def _play(self, setup, broker):
        topics = {name: kind.settings for name, kind in setup.kinds.items()}
        ids = Player(broker.bootstrap, old=True).prepare(self.cases, topics)
        contexts = [
            Context(case.topic, int(name.rsplit("-", 1)[1]), ids)
            for case, name in zip(self.cases, partition_names(self.cases), strict=True)
        ]
        with wire.Connection(broker.bootstrap, timeout_s=60) as connection:
            return play_together(
                self.cases, connection, contexts, lambda n: change(setup, connection, n)
            )

    @staticmethod
    def judge(cases, kafka, tidelog):
        return comparison.judge(cases, kafka, tidelog, LOOKUP_REASONS)


def change(setup, connection, number):
    """Before the steps with which a third of the log begins, give the topics its format."""
    alter = []
    for name, kind in setup.kinds.items():
        firsts = {-(-setup.appends * n // len(kind.formats)): f for n, f in enumerate(kind.formats)}
        if number and number in firsts:
            release = RELEASES[firsts[number]]
            configs = [{"name": "message.format.version", "config_operation": 0, "value": release}]
            alter.append({"resource_type": 2, "resource_name": name, "configs": configs})
    if alter:
        answer = connection.ask("IncrementalAlterConfigs", 1, resources=alter, validate_only=False)
        assert not any(one["error_code"] for one in answer["responses"]), answer
        wait_for_changes(connection)


@pytest.fixture(scope="session")
def every(apache_kafka, tidelog, summarize):
    """What every setup gave."""
    found = {}
    for name, setup in SETUPS.items():
        with apache_kafka(setup.version, **setup.properties) as theirs, tidelog() as ours:
            one = found[name] = Played(setup, theirs, ours)
        otherwise = one.verdict.steps - one.verdict.equal_steps
        left = len(one.verdict.unexplained)
        judged = f"{left} WITHOUT A REASON" if left else "all classified"
        text = f"{lookups_of(one.cases):,} lookups, {otherwise:,} differ, {judged}\n"
        text += one.verdict.table()
        summarize(f"lookups in tidelog and Apache Kafka {name}", text)
    return found


@pytest.fixture(params=SETUPS)
def played(request, every):
    return every[request.param]


def lookups_of(cases):
    return sum(len(case.tags["asked"]) for case in cases)


def test_every_append_was_taken_by_both(played):
    for answers in (played.kafka, played.tidelog):
        for case, given in zip(played.cases, answers, strict=True):
            end = 0
            for step, answer in zip(case.steps, given, strict=True):
                if step.api == "Produce":
                    (one,) = answer["responses"][0]["partition_responses"]
                    assert (one["error_code"], one["base_offset"] >= end) == (0, True), case.name
                    end = one["base_offset"]


def test_tidelog_finds_what_the_model_finds(played):
    for case, given in zip(played.cases, played.tidelog, strict=True):
        model = case.tags["model"]
        for number, version, target in case.tags["asked"]:
            told = f"{case.name}: {case.steps[number].name}"
            assert found(given[number]) == model.answer(version, target), told


def test_no_difference_without_a_reason(played):
    assert not played.verdict.unexplained, "\n" + played.verdict.complaint()


def test_every_reason_is_needed(every):
    used = {name for one in every.values() for name in one.verdict.explained}
    unused = [one.name for one in LOOKUP_REASONS if one.name not in used and not one.sometimes]
    assert not unused, f"reasons that explain nothing any more: {unused}"


def test_logs_have_what_lookups_may_stumble_over(played):
    """Many segments, and in Kafka's files the formats that they were to have."""
    several = [len(case.tags["model"].kafka_bases) > 2 for case in played.cases]
    assert sum(several) > len(several) // 3
    assert lookups_of(played.cases) >= 2000 * TIMES
    for case in played.cases:
        assert case.tags["magics"] == set(case.tags["model"].formats), case.name


def test_an_injected_difference_is_caught(played):
    """Move the offset of every seventh lookup, where it was answered equally."""
    injected = 0
    for at, case in enumerate(played.cases):
        for number, version, target in case.tags["asked"][::7]:
            theirs, ours = played.kafka[at][number], played.tidelog[at][number]
            if ours != theirs:
                continue
            wrong = copy.deepcopy(ours)
            (one,) = wrong["topics"][0]["partitions"]
            if version == 0:
                one["old_style_offsets"] = [each + 1 for each in one["old_style_offsets"]]
            else:
                one["offset"] += 1
            tags = {**case.tags, "asked": [Asked(0, version, target)]}
            alone = replace(case, steps=(case.steps[number],), tags=tags)
            verdict = played.judge([alone], [[theirs]], [[wrong]])
            assert verdict.unexplained, (case.name, version, target)
            injected += 1
    assert injected > 100

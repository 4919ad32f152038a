"""Kafka's tools for consumer groups: who reads what, how far, and from where it shall go on.

kafka-consumer-groups ends with status 0 whatever the broker says, so what it prints is what counts.
"""

from __future__ import annotations

import contextlib
import json
import re
import time

import pytest

from tests.broker import members
from tests.broker.asking import new_name, produce
from tests.broker.subject import eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tests.tools import java_tools
from tidelog.protocol.group_records import partition_of

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

HOUR_MS = 3_600_000
# A record of the Moon landing, three around the year 2020 of which one is late, two of today.
MOON_MS = -14_182_940_000
MS_2020 = 1_577_836_800_000
FORMATTERS = "org.apache.kafka.tools.consumer."


@pytest.fixture
def group():
    return new_name("group")


@pytest.fixture
def groups(run, group):
    """kafka-consumer-groups for the group of this test."""

    def ask(*arguments):
        return run("kafka-consumer-groups", "--group", group, *arguments)

    return ask


@pytest.fixture
def now_ms():
    return int(time.time() * 1000)


@pytest.fixture
def filled(broker, topic, now_ms):
    """The topic, with six records in partition 0 and none in partition 1."""
    times = [MOON_MS, MS_2020, MS_2020 + 5_000, MS_2020 + 2_000]
    times += [now_ms - 2 * HOUR_MS, now_ms - HOUR_MS // 2]
    with broker.connect() as connection:
        for at in times:
            answer = produce(connection, topic, recordset.batch([Rec(at, b"x", b"k")]))
            assert answer["error_code"] == 0
    return topic


def rows(done, columns):
    """The table a tool printed last, as dicts; version 3.9 prints some without any line ends."""
    words = done.out.split()
    assert columns[0] in words, done
    words = words[words.index(columns[0]) :]
    assert words[: len(columns)] == columns, done
    values = iter(words[len(columns) :])
    return [
        dict(zip(columns, row, strict=True)) for row in zip(*[values] * len(columns), strict=True)
    ]


def described(groups):
    """Partition -> (committed, end, lag), as --describe has it; None where it has a dash."""
    lines = [line.split() for line in groups("--describe").lines]
    columns = lines[0] if lines else []
    found = [dict(zip(columns, line, strict=True)) for line in lines[1:]]
    names = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    return {
        int(row["PARTITION"]): tuple(None if row[name] == "-" else int(row[name]) for name in names)
        for row in found
    }


def reset(groups, *arguments):
    """Partition -> the new offset, as --reset-offsets has it."""
    table = rows(
        groups("--reset-offsets", *arguments), ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    )
    return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in table}


def commit(broker, group, topic, *offsets):
    """Commit for partitions 0, 1, ..."""
    with broker.connect() as connection:
        for partition, offset in enumerate(offsets):
            assert members.commit(connection, group, topic, offset, partition=partition) == 0


@contextlib.contextmanager
def member(tools, broker, group, topic, directory, *arguments):
    """A Java consumer that stays in the group."""
    process = java_tools.start(
        tools.version,
        "kafka-verifiable-consumer",
        *("--bootstrap-server", broker.bootstrap, "--group-id", group, "--topic", topic),
        *("--reset-policy", "earliest", *arguments),
        directory=directory,
    )
    try:
        eventually(
            lambda: "offsets_committed" in process.out.read_text(),
            120,
            f"a member:\n{process.tail()}",
        )
        yield process
    finally:
        process.stop()
    said = java_tools.json_lines(process.out.read_text())
    assert said[-1]["name"] == "shutdown_complete", said


class TestToSee:
    def test_after_the_console_consumer(self, run, groups, group, topic):
        run("kafka-console-producer", "--topic", topic, stdin="a\nb\nc\n")
        arguments = ("--topic", topic, "--group", group, "--from-beginning")
        done = run("kafka-console-consumer", *arguments, "--max-messages", "3")
        assert sorted(done.lines) == ["a", "b", "c"]
        run("kafka-console-producer", "--topic", topic, stdin="d\ne\n")
        found = described(groups)
        assert set(found) == {0, 1}
        assert [sum(column) for column in zip(*found.values(), strict=True)] == [3, 5, 2]
        done = run("kafka-console-consumer", *arguments, "--max-messages", "2")
        assert sorted(done.lines) == ["d", "e"]
        assert sum(lag for _, _, lag in described(groups).values()) == 0

    def test_listed(self, run, broker, group, topic):
        commit(broker, group, topic, 0)
        assert group in run("kafka-consumer-groups", "--list").lines
        table = [line.split() for line in run("kafka-consumer-groups", "--list", "--state").lines]
        assert [group, "Empty"] in table
        table = [line.split() for line in run("kafka-consumer-groups", "--list", "--type").lines]
        assert [group, "Classic"] in table
        stable = run("kafka-consumer-groups", "--list", "--state", "stable")
        assert group not in stable.out
        classic = run("kafka-consumer-groups", "--list", "--type", "classic")
        assert group in classic.out
        assert group not in run("kafka-consumer-groups", "--list", "--type", "consumer").out

    def test_nobody_there(self, groups, broker, group, filled):
        commit(broker, group, filled, 4, 0)
        state = groups("--describe", "--state")
        assert f"{broker.bootstrap} (1)" in " ".join(state.out.split())
        assert state.lines[1].split()[-2:] == ["Empty", "0"]
        assert f"Consumer group '{group}' has no active members." in state.err
        assert len(groups("--describe", "--members").lines) == 1
        assert described(groups) == {0: (4, 6, 2), 1: (0, 0, 0)}

    def test_unknown(self, groups, group):
        done = groups("--describe")
        assert group in done.out
        assert re.search(r"does not exist|GroupIdNotFoundException", done.out)

    def test_lag_without_a_commit_is_not_made_up(self, groups, broker, group, filled):
        commit(broker, group, filled, 2)
        assert described(groups) == {0: (2, 6, 4)}


class TestWithAMember:
    def test_seen_and_left_alone(self, tools, broker, groups, group, filled, tmp_path):
        instance = ("--group-instance-id", "one")
        with member(tools, broker, group, filled, tmp_path, *instance):
            self.seen(groups, group, filled)
            self.refused(groups, group, filled)
            assert described(groups) == {0: (6, 6, 0), 1: (None, 0, None)}

    @staticmethod
    def seen(groups, group, topic):
        head, line = groups("--describe", "--members", "--verbose").lines
        assert "GROUP-INSTANCE-ID" in head
        assert re.search(rf"{group} +one-\S+ +one +/127\.0\.0\.1 +\S+ +2 ", line)
        assert re.search(rf" \(0,1\)| {topic}:0,1", line)  # 3.9 leaves the topic out
        head, line = groups("--describe", "--state", "--verbose").lines
        assert re.search(r"\(1\) +range +Stable .*1 *$", line)
        for line in groups("--describe", "--offsets").lines[1:]:
            assert re.search(rf"{group} +{topic} .* one-\S+ +/127\.0\.0\.1", line)

    @staticmethod
    def refused(groups, group, topic):
        done = groups("--delete")
        assert f"Group '{group}' could not be deleted due to:" in done.out
        assert "GroupNotEmptyException" in done.out
        done = groups("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
        assert f"'{group}' is inactive, but the current state is Stable" in done.out
        done = groups("--delete-offsets", "--topic", topic)
        assert "GroupSubscribedToTopicException" in done.out

    def test_gone(self, tools, broker, groups, group, filled, tmp_path):
        with member(tools, broker, group, filled, tmp_path):
            assert groups("--describe", "--state").lines[1].split()[-2:] == ["Stable", "1"]
        assert groups("--describe", "--state").lines[1].split()[-2:] == ["Empty", "0"]
        assert reset(groups, "--topic", filled, "--to-earliest", "--execute") == {0: 0, 1: 0}


class TestToReset:
    @pytest.mark.parametrize(
        ("how", "offset"),
        [
            (("--to-earliest",), 0),
            (("--to-latest",), 6),
            (("--to-current",), 3),
            (("--to-offset", "5"), 5),
            (("--to-offset", "99"), 6),
            (("--shift-by", "2"), 5),
            (("--shift-by", "-2"), 1),
            (("--shift-by", "-99"), 0),
            (("--to-datetime", "2020-01-01T00:00:00.000"), 1),
            (("--to-datetime", "2020-01-01T00:00:00.001"), 2),
            (("--to-datetime", "2020-01-01T01:00:04.999+01:00"), 2),
            (("--to-datetime", "2020-01-01T00:00:05.001"), 4),
            (("--to-datetime", "1969-07-20T20:17:40.000"), 0),
            (("--to-datetime", "1969-07-20T20:17:40.001Z"), 1),
            (("--to-datetime", "2100-01-01T00:00:00.000"), 6),
            (("--by-duration", "PT1H"), 5),
            (("--by-duration", "PT3H"), 4),
            (("--by-duration", "PT1S"), 6),
        ],
    )
    def test_every_way(self, groups, broker, group, filled, how, offset):
        commit(broker, group, filled, 3)
        assert reset(groups, "--topic", f"{filled}:0", *how, "--execute") == {0: offset}
        assert described(groups) == {0: (offset, 6, 6 - offset)}

    def test_dry(self, groups, broker, group, filled):
        commit(broker, group, filled, 3)
        where = ("--topic", f"{filled}:0")
        for dry in (("--dry-run",), ()):
            assert reset(groups, *where, "--by-duration", "PT1H", *dry) == {0: 5}
            assert described(groups) == {0: (3, 6, 3)}

    def test_all_topics_out_to_a_file_and_back(self, groups, broker, group, filled, tmp_path):
        commit(broker, group, filled, 3, 0)
        plan = groups("--reset-offsets", "--all-topics", "--to-current", "--export").out
        assert sorted(plan.split()) == [f"{filled},0,3", f"{filled},1,0"]
        assert reset(groups, "--all-topics", "--to-latest", "--execute") == {0: 6, 1: 0}
        path = tmp_path / "plan.csv"
        path.write_text("\n".join(plan.split()) + "\n")
        assert reset(groups, "--from-file", str(path), "--dry-run") == {0: 3, 1: 0}
        assert described(groups)[0] == (6, 6, 0)
        assert reset(groups, "--from-file", str(path), "--execute") == {0: 3, 1: 0}
        assert described(groups) == {0: (3, 6, 3), 1: (0, 0, 0)}

    def test_a_group_that_was_not(self, groups, group, filled):
        assert reset(groups, "--topic", filled, "--to-earliest", "--execute") == {0: 0, 1: 0}
        assert described(groups) == {0: (0, 6, 6), 1: (0, 0, 0)}

    def test_an_unknown_topic(self, groups, broker, group, topic):
        commit(broker, group, topic, 0)
        nowhere = new_name("nowhere")
        done = groups("--reset-offsets", "--topic", nowhere, "--to-earliest", "--execute")
        assert re.search(r"Error: .*(UnknownTopicOrPartition|does not exist|not host)", done.out)
        assert described(groups) == {0: (0, 0, 0)}


class TestToDelete:
    def test_offsets(self, groups, broker, group, filled):
        commit(broker, group, filled, 3, 0)
        done = groups("--delete-offsets", "--topic", f"{filled}:1")
        assert re.search(rf"{filled} +1 +Successful", done.out)
        assert described(groups) == {0: (3, 6, 3)}
        done = groups("--delete-offsets", "--topic", filled)
        assert re.search(rf"{filled} +0 +Successful", done.out)
        assert described(groups) == {}

    def test_a_group(self, run, groups, broker, group, filled):
        commit(broker, group, filled, 3)
        assert f"Deletion of requested consumer groups ('{group}') was successful." in (
            groups("--delete").out
        )
        assert group not in run("kafka-consumer-groups", "--list").lines
        done = groups("--delete")
        assert f"Group '{group}' could not be deleted due to:" in done.out
        assert "GroupIdNotFoundException" in done.out


class TestTheTopicOfOffsets:
    """What lies in __consumer_offsets, read by Kafka's own formatters."""

    @staticmethod
    def read(run, broker, group, formatter):
        """All that lies in the partition of the group."""
        place = java_tools.reading(broker, "__consumer_offsets", partition_of(group, 50))
        return run("kafka-console-consumer", *place, "--formatter", formatter).out

    @staticmethod
    def records(text):
        decoder = json.JSONDecoder()
        at, found = 0, []
        while at < len(text.rstrip()):
            record, at = decoder.raw_decode(text, at)
            found.append((record["key"]["data"], record["value"]))
        return found

    def test_offsets(self, run, tools, groups, broker, group, filled, now_ms):
        commit(broker, group, filled, 3)
        groups("--delete-offsets", "--topic", filled)
        text = self.read(run, broker, group, FORMATTERS + "OffsetsMessageFormatter")
        found = [
            value
            for key, value in self.records(text)
            if key == {"group": group, "topic": filled, "partition": 0}
        ]
        committed, removed = found
        assert removed is None
        assert committed["data"]["offset"] == 3
        assert 0 <= committed["data"]["commitTimestamp"] - now_ms < 60_000
        if tools.version == "3.9.1":
            formatter = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
            old = self.read(run, broker, group, formatter)
            assert f"[{group},{filled},0]::OffsetAndMetadata(offset=3, " in old
            assert f"[{group},{filled},0]::NULL" in old

    def test_members(self, run, tools, broker, groups, group, filled, tmp_path):
        with member(tools, broker, group, filled, tmp_path):
            pass
        groups("--delete")
        text = self.read(run, broker, group, FORMATTERS + "GroupMetadataMessageFormatter")
        found = [value for key, value in self.records(text) if key == {"group": group}]
        generations = [
            (value["data"]["generation"], value["data"]["protocol"], len(value["data"]["members"]))
            for value in found[:-1]
        ]
        assert generations == [(1, "range", 1), (2, None, 0)]
        assert found[-1] is None


def test_groups_of_all_kinds(tools, run, broker, topic, group):
    """kafka-groups came with Kafka 4."""
    commit(broker, group, topic, 0)
    if tools.version == "3.9.1":
        assert "GroupsCommand" in run("kafka-groups", "--list", status=1).err
        return
    table = [line.split() for line in run("kafka-groups", "--list").lines]
    assert table[0] == ["GROUP", "TYPE", "PROTOCOL"]
    assert [group, "Classic"] in [line[:2] for line in table]

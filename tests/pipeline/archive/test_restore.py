"""Restoring to a broker: byte for byte what was archived; predictions and refusals; kills."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from tests.pipeline.archive.archives import (
    DAY_MS,
    action,
    archive,
    contents,
    manifests,
    restore,
    some,
    with_logs,
)
from tests.pipeline.jobs.test_mirror import everything, fill
from tests.pipeline.offset_maps import target_offset_of
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.archive import selecting
from tidelog.pipeline.archive.manifests import Archive
from tidelog.pipeline.archive.reading import ArchiveSource, Bounds, merged
from tidelog.pipeline.archive.store import FileStore
from tidelog.pipeline.engine import prediction
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE, PipelineError
from tidelog.pipeline.replay import offset_map
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import build

DEADLINE_S = 120
FOREVER = ("--set", "retention.ms=-1")
NOW = 1_767_225_600_000


def rows(records):
    """What has to be equal."""
    return [(one.timestamp, one.key, one.value, tuple(one.headers)) for one in records]


def stored(bootstrap, topic, count=1):
    with Client(bootstrap) as client:
        return [rows(everything(client, topic, number)) for number in range(count)]


def settings_of(bootstrap, topic):
    with Client(bootstrap) as client:
        return {name: one.value for name, one in client.topic_settings(topic).items() if one.is_own}


def from_broker(root, bootstrap, topic, *more, run="one"):
    """Archive a topic of a broker."""
    return cli.main(
        [
            *("archive", "--brokers", bootstrap, "--topics", topic, "--to", str(root / "archive")),
            *("--out", str(root / "runs"), "--run", run, "--master", "inline"),
            *more,
        ]
    )


@pytest.fixture
def wanted():
    return [some(400, 1), [], some(150, 2)]


@pytest.fixture
def filled(broker, topic, wanted):
    """A topic with settings of its own, every kind of record in it."""
    own = {"retention.ms": "-1", "segment.bytes": "20000", "max.message.bytes": "500000"}
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 3, own)
        for partition, records in enumerate(wanted):
            fill(client, topic, partition, records)
    return topic


@pytest.fixture(params=["tidelog", pytest.param("kafka", marks=pytest.mark.oracle)])
def target(request, broker):
    """`host:port` of where is restored to."""
    return (
        broker.bootstrap
        if request.param == "tidelog"
        else request.getfixturevalue("kafka").bootstrap
    )


# --- what arrives ---------------------------------------------------------------------------------


def test_what_is_restored_is_what_was_archived(broker, target, filled, wanted, tmp_path):
    assert from_broker(tmp_path, broker.bootstrap, filled, "--file-bytes", "6000") == OK
    known = manifests(tmp_path)["one"]["topics"][filled]
    assert (known["partitions"], known["timestamp_type"]) == (3, "CreateTime")
    assert known["settings"] == settings_of(broker.bootstrap, filled)
    assert known["topic_id"]
    copy = f"{filled}-copy"
    how = ("--rename", f"{filled}={copy}", "--create")
    assert restore(tmp_path, target, *how) == OK
    assert restore(tmp_path, target, *how, "--dry-run") == OK
    assert stored(target, copy, 3) == [rows(each) for each in wanted]
    assert settings_of(target, copy) == {
        **settings_of(broker.bootstrap, filled),
        "message.timestamp.type": "CreateTime",
    }
    assert restore(tmp_path, target, *how) == OK
    assert stored(target, copy, 3) == [rows(each) for each in wanted]
    for one in offset_map.read(tmp_path / "runs" / "back" / "offsets.parquet"):
        count = len(wanted[one.source_partition])
        found = [target_offset_of(one.runs, n) for n in range(count)]
        assert found == sorted(set(found))
        assert None not in found


def test_a_new_run_doubles_nothing_unasked(broker, topic, tmp_path, capsys, without_transactions):
    """Not under another name, nor from another directory: that has no plan of the run."""
    records = some(30, 4)
    with_logs(tmp_path, [(0, records)])
    assert archive(tmp_path) == OK
    how = ("--rename", f"t={topic}", "--create", *FOREVER)
    assert restore(tmp_path, broker.bootstrap, *how) == OK
    assert restore(tmp_path, broker.bootstrap, *how) == OK
    for more in ((), ("--dry-run",)):
        capsys.readouterr()
        assert restore(tmp_path, broker.bootstrap, *how, *more, run="other") == USAGE
        said = capsys.readouterr()
        assert f"topic {topic} of the target already holds records (30 offsets)" in said.err
        assert "say --append" in said.err
        assert not said.out
    assert not (tmp_path / "runs" / "other" / "plan.json").exists()
    assert stored(broker.bootstrap, topic) == [rows(records)]
    assert restore(tmp_path, broker.bootstrap, *how, "--append", run="other") == OK
    said = capsys.readouterr().out
    assert f"t: 30 records, to 1 partition of {topic}" in said
    assert "restore other: 30 records in 1 partition, 0 of them there before" in said
    assert stored(broker.bootstrap, topic) == [rows(records) * 2]


def test_after_more_data_and_compaction(broker, filled, wanted, tmp_path):
    assert from_broker(tmp_path, broker.bootstrap, filled, "--task-offsets", "90") == OK
    more = some(80, 7)
    with Client(broker.bootstrap) as client:
        fill(client, filled, 1, more)
    assert from_broker(tmp_path, broker.bootstrap, filled, run="two") == OK
    assert action("compact", tmp_path, run="c") == OK
    assert action("verify", tmp_path) == OK
    copy = f"{filled}-copy"
    assert restore(tmp_path, broker.bootstrap, "--rename", f"{filled}={copy}", "--create") == OK
    assert stored(broker.bootstrap, copy, 3) == [
        rows(each) for each in (wanted[0], more, wanted[2])
    ]


def test_a_part_by_time_and_by_offset(broker, topic, tmp_path):
    records = some(300, 4)
    with_logs(tmp_path, [(0, records), (1, some(20, 5))])
    assert archive(tmp_path, "--task-offsets", "64") == OK

    def back(name, *more):
        how = ("--rename", f"t={topic}-{name}", "--create", *FOREVER, *more)
        assert restore(tmp_path, broker.bootstrap, *how, run=name) == OK
        return stored(broker.bootstrap, f"{topic}-{name}", 2)

    timed = [one for one in records if -DAY_MS - 1 <= one.timestamp < 1 and one.timestamp != -1]
    assert back("times", "--from", str(-DAY_MS - 1), "--to", "1")[0] == rows(timed)
    assert back("offsets", "--offsets", "t-0=50:131") == [rows(records[50:131]), []]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--offsets", "t-0=0:1000"), "the archive has 0 to 39"),
        (("--offsets", "t-7=0:1"), "the archive has no t-7"),
        (("--topics", "other"), "has no topic other"),
        (("--topics", "x.*y"), "has no such topic"),
        (("--from", "5", "--to", "5"), "is not before"),
        (("--set", "retention.ms=week"), "retention.ms"),
        ((), "the target has no topic"),
    ],
)
def test_what_cannot_be_meant(broker, topic, tmp_path, capsys, more, sentence):
    with_logs(tmp_path, [(0, some(40, 4))])
    assert archive(tmp_path) == OK
    create = ("--create",) if more else ()
    how = ("--rename", f"t={topic}", *create, *more)
    assert restore(tmp_path, broker.bootstrap, *how) == USAGE
    assert sentence in capsys.readouterr().err
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)


def test_an_archive_that_is_not_sound_is_not_restored(broker, topic, tmp_path, capsys):
    with_logs(tmp_path, [(0, some(40, 4))])
    assert archive(tmp_path) == OK
    path = tmp_path / "archive" / "_manifest" / "one.json"
    predicted = json.loads(path.read_text())
    path.write_text(json.dumps({**predicted, "files": predicted["files"][1:]}))
    how = ("--rename", f"t={topic}", "--create", *FOREVER)
    assert restore(tmp_path, broker.bootstrap, *how) == FAILED
    assert "is not sound: t-0: 40 records read" in capsys.readouterr().err
    with pytest.raises(PipelineError, match="is not sound: t-0: 40 records read"):
        selecting.planned(selecting.query_of({"path": str(tmp_path / "archive")}, 0))
    path.write_text(json.dumps(predicted))
    (tmp_path / "archive" / predicted["files"][0]["path"]).unlink()
    assert restore(tmp_path, broker.bootstrap, *how) == FAILED
    assert "is gone, and a manifest names it" in capsys.readouterr().err


# --- times of the broker's own --------------------------------------------------------------------


def test_stamps_are_kept_where_that_is_said(broker, topic, tmp_path, capsys):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, {"message.timestamp.type": "LogAppendTime"})
        fill(client, topic, 0, some(60, 3))
    stamped = stored(broker.bootstrap, topic)
    assert from_broker(tmp_path, broker.bootstrap, topic) == OK
    assert [[one.time_type for one in each] for each in contents(tmp_path).values()] == [[1] * 60]
    how = ("--rename", f"{topic}={topic}-kept", "--create", "--keep-times")
    assert restore(tmp_path, broker.bootstrap, *how, run="kept") == OK
    assert "LogAppendTime" not in capsys.readouterr().out
    assert stored(broker.bootstrap, f"{topic}-kept") == stamped
    how = ("--rename", f"{topic}={topic}-new", "--create")
    assert restore(tmp_path, broker.bootstrap, *how, run="new") == OK
    assert "records get the time of their restoring" in capsys.readouterr().out
    (new,) = stored(broker.bootstrap, f"{topic}-new")
    assert [one[1:] for one in new] == [one[1:] for one in stamped[0]]
    assert min(one[0] for one in new) >= max(one[0] for one in stamped[0])
    assert (
        settings_of(broker.bootstrap, f"{topic}-new")["message.timestamp.type"] == "LogAppendTime"
    )


# --- predictions ----------------------------------------------------------------------------------


def test_what_retention_would_delete_is_told_and_then_deleted(
    topic, tmp_path, capsys, without_transactions
):
    """A marker of a transaction is younger, and its segment would stay."""
    old = some(40, 4, dates=(-DAY_MS, 5, -1_000_000))
    with_logs(tmp_path, [(0, old)])
    assert archive(tmp_path) == OK
    with BrokerProcess(tmp_path / "data", clock="manual") as one:
        how = ("--rename", f"t={topic}", "--create")
        assert restore(tmp_path, one.bootstrap, *how) == FINDINGS
        said = capsys.readouterr().out
        assert "retention would delete 40 of 40 records (100 %)" in said
        assert "retention.time.basis=append or retention.ms=-1 avoids that: refused" in said
        with Client(one.bootstrap) as client:
            assert not client.has_topic(topic)
        kept = ("--rename", f"t={topic}-kept", "--create", "--set", "retention.time.basis=append")
        assert restore(tmp_path, one.bootstrap, *kept, run="kept") == OK
        assert restore(tmp_path, one.bootstrap, *how, "--accept-deletion") == OK
        one.sweep()
        with Client(one.bootstrap) as client:
            starts = [
                client.list_offsets(name, {0: -2})[0].offset for name in (topic, f"{topic}-kept")
            ]
        assert starts == [40, 0]
        assert stored(one.bootstrap, f"{topic}-kept") == [rows(old)]


def test_what_the_window_would_refuse_is_told(broker, topic, tmp_path, capsys):
    old = some(40, 4, dates=(-DAY_MS, -1, 2**62))
    with_logs(tmp_path, [(0, old)])
    assert archive(tmp_path) == OK
    window = ("--set", "message.timestamp.before.max.ms=1000", *FOREVER)
    how = ("--rename", f"t={topic}", "--create")
    assert restore(tmp_path, broker.bootstrap, *how, *window) == FINDINGS
    count = sum(one.timestamp == -DAY_MS for one in old)
    assert f"{count} records outside the window of {topic}: refused" in capsys.readouterr().out
    assert restore(tmp_path, broker.bootstrap, *how, *FOREVER, "--dry-run") == OK
    assert "t-0: offsets 0 to 40 (40)" in capsys.readouterr().out
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)
    assert restore(tmp_path, broker.bootstrap, *how, *FOREVER) == OK


@pytest.mark.parametrize("rules", ["tidelog", "kafka"])
def test_what_avoids_a_deletion(rules):
    own = {"retention.ms": str(7 * DAY_MS), "segment.bytes": "100000"}
    policies = prediction.policies_of(own, rules)

    def predicted(times, own=policies):
        found = prediction.predict(
            [np.array(times, np.int64)],
            own,
            window=(NOW - 30 * DAY_MS, NOW),
            record_bytes=1000,
            batch_bytes=10_000,
            now_ms=NOW,
        )
        return prediction.combined([found, found], own)

    old = predicted([NOW - 40 * DAY_MS, NOW - 20 * DAY_MS, -1, NOW + 1][:2])
    assert (old.records, old.too_old, old.too_new, old.deleted) == (4, 2, 0, 4)
    assert ("retention.ms=-1" in old.remedies, len(old.remedies)) == (True, 2 - (rules == "kafka"))
    soon = predicted([NOW - 7 * DAY_MS + 3_600_000])
    assert soon.deleted == 2
    fresh = predicted([NOW - DAY_MS, -1, NOW + 1])
    assert (fresh.deleted, fresh.remedies, fresh.without_time, fresh.too_new) == (0, (), 2, 2)
    both = prediction.policies_of({**own, "retention.bytes": "50000"}, rules)
    many = predicted([NOW - 40 * DAY_MS] * 300, both)
    assert many.deleted == 600
    assert len(many.remedies) == 1
    assert "retention.bytes=-1" in many.remedies[0]
    assert "retention.ms=-1" in many.remedies[0]


# --- merging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [7, 10_000])
def test_dates_are_merged_in_the_order_of_offsets(tmp_path, monkeypatch, group):
    from tidelog.pipeline.archive import writing

    monkeypatch.setattr(writing, "GROUP_ROWS", group)
    with_logs(tmp_path, [(0, some(250, 4))])
    assert archive(tmp_path, "--task-offsets", "100") == OK
    assert action("compact", tmp_path, run="c") == OK
    store = FileStore(str(tmp_path / "archive"))
    files = tuple(Archive.read(store).files)
    source = ArchiveSource(store, files, Bounds(low=3, high=240))
    offsets = [int(n) for some_rows in source.read() for n in some_rows.offset]
    assert offsets == list(range(3, 240))


def test_many_dates_are_merged_in_few_steps(tmp_path):
    with_logs(tmp_path, [(0, some(900, 4, dates=range(0, 150 * DAY_MS, DAY_MS)))])
    assert archive(tmp_path) == OK
    store = FileStore(str(tmp_path / "archive"))
    files = Archive.read(store).files
    tables = [table.num_rows for table in merged(store, files, ("offset", "timestamp_ms"))]
    assert len(files) > 140
    assert (sum(tables), len(tables) < 40) == (900, True)


# --- kill -9 --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_broker_killed_while_it_is_archived(topic, tmp_path):
    """The archive waits for it, and has each record once."""
    records = some(3000, 12)
    with BrokerProcess(tmp_path / "data") as one:
        with Client(one.bootstrap) as client:
            client.create_topic(topic, 1, {"retention.ms": "-1"})
            for start in range(0, len(records), 500):
                part = [r._replace(offset=n) for n, r in enumerate(records[start : start + 500])]
                client.produce(topic, 0, build(part))
        statuses = []
        one.kill()
        work = threading.Thread(
            target=lambda: statuses.append(from_broker(tmp_path, one.bootstrap, topic))
        )
        work.start()
        one.restart()
        work.join(DEADLINE_S)
        assert statuses == [OK]
    assert [rows(each) for each in contents(tmp_path).values()] == [rows(records)]

"""Archives for the tests: made of log directories, read back without the job that restores them."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from tests.pipeline.logs import Seen, Writer, truth
from tidelog.pipeline import cli
from tidelog.protocol.records.batch import Record
from tidelog.protocol.records.layout import INT64_MAX, Compression

if TYPE_CHECKING:
    from tidelog.protocol.topic_partition import TopicPartition

DAY_MS = 86_400_000
SMALL = ("--task-offsets", "70", "--file-bytes", "8000")
TIMES = (-62135596800000, -(2**63), -DAY_MS - 1, -2, -1, 0, 1, 1_700_000_000_000, INT64_MAX)
DATES = {
    -62135596800000: "0001-01-01",
    -(2**63): "-292275055-05-16",
    -DAY_MS - 1: "1969-12-30",
    -2: "1969-12-31",
    -1: "__HIVE_DEFAULT_PARTITION__",
    0: "1970-01-01",
    1: "1970-01-01",
    1_700_000_000_000: "2023-11-14",
    INT64_MAX: "+292278994-08-17",
}


def some(count, seed, dates=TIMES):
    """Random records with every kind of time, nulls, empty fields and odd headers."""
    choose = random.Random(seed)
    return [
        Record(
            n,
            choose.choice(dates),
            choose.choice([None, b"", b"key-%d" % choose.randrange(50)]),
            choose.choice([None, b"", choose.randbytes(choose.randrange(200))]),
            choose.choice([(), ((b"h", b"x"), (b"h", None), (b"", b"")), ((b"\xff\xfe", b"1"),)]),
        )
        for n in range(count)
    ]


def with_logs(root, parts, now=1_000, segment_bytes=6000):
    """Appends records to partitions of topic t in the log directory below `root`, by all codecs in turn."""
    (root / "logs").mkdir(parents=True, exist_ok=True)
    writer = Writer(root / "logs", segment_bytes=segment_bytes)
    writer.partitions = {key: writer.store.partition(*key) for key in writer.store.names()}
    for number, records in parts:
        for place, start in enumerate(range(0, len(records), 10)):
            codec = list(Compression)[(start // 10) % 5]
            writer.append(
                records[start : start + 10], number=number, now=now + place, compression=codec
            )
    writer.close()


def expected(root, topic="t"):
    """Every record of a topic's logs below `root`, by an independent parser."""
    found = {}
    for directory in sorted((root / "logs").glob(f"{topic}-*")):
        found[topic, int(directory.name.rpartition("-")[2])] = truth(directory)
    return found


def archive(root, *more, to="archive", run="one"):
    """Archive the log directory below `root`; returns the exit status."""
    return cli.main(
        [
            *("archive", "--logs", str(root / "logs"), "--upto", "log-end"),
            *("--to", str(root / to), "--out", str(root / "runs"), "--run", run),
            *("--master", "inline", *more),
        ]
    )


def action(name, root, *more, of="archive", run="check"):
    """Verify or compact."""
    where = (str(root / of), "--out", str(root / "runs"), "--run", run, "--master", "inline")
    return cli.main(["archive", name, *where, *more])


def restore(root, bootstrap, *more, of="archive", run="back"):
    """Restore an archive; returns the exit status."""
    where = ("--out", str(root / "runs"), "--run", run, "--master", "inline")
    return cli.main(["restore", str(root / of), "--to-brokers", bootstrap, *where, *more])


def manifests(root, of="archive"):
    return {
        path.stem: json.loads(path.read_text())
        for path in sorted((root / of / "_manifest").glob("[!.]*.json"))
    }


def in_force(root, of="archive"):
    """The files that manifests name and none replaces."""
    found = manifests(root, of).values()
    replaced = {path for one in found for path in one["replaces"]}
    return [each for one in found for each in one["files"] if each["path"] not in replaced]


def seen_of(row):
    """Returns what a row of an archive says of its record."""
    exact = row["header_names"]
    return Seen(
        row["offset"],
        row["timestamp_ms"],
        row["timestampType"],
        row["append_time_ms"],
        row["key"],
        row["value"],
        tuple(
            (one["key"].encode() if exact is None else exact[n], one["value"])
            for n, one in enumerate(row["headers"] or ())
        ),
    )


def contents(root, of="archive"):
    """Every record of an archive, by topic and partition, in the order of offsets."""
    seen: dict[TopicPartition, list[Seen]] = {}
    for file in in_force(root, of):
        rows = pq.ParquetFile(root / of / file["path"]).read().to_pylist()
        rows = [row for row in rows if row["partition"] == file["partition"]]
        assert len(rows) == file["records"]
        for row in rows:
            assert DATES.get(row["timestamp_ms"], file["event_date"]) in file["path"]
            seen.setdefault((file["topic"], row["partition"]), []).append(seen_of(row))
    return {key: sorted(found) for key, found in sorted(seen.items())}


def tree(root, of="archive"):
    """Every data file and its bytes."""
    base = root / of
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("[!.]*.parquet")}


_DEADLINE_S = 100
STEPS = ("replace", "unlink", "fsync", "rename")


def killed_at(step, do):
    """Do something in a process that is killed before its file-system step of this number.

    Returns whether it was killed; else it has ended with status 0.
    """
    child = os.fork()
    if not child:
        try:
            signal.alarm(
                _DEADLINE_S
            )  # a child that hangs dies of another signal than one that is killed
            _die_at(step)
            os._exit(do())
        finally:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _die_at(step):
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    taken = iter(range(1 << 30))

    def stopping(real):
        def do(*given, **named):
            if next(taken) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return do

    for name in STEPS:
        setattr(os, name, stopping(getattr(os, name)))


def leftovers(root, of="archive"):
    """What was written aside."""
    return [path for path in Path(root / of).rglob(".partial-*") if path.is_file()]

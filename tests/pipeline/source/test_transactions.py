"""Aborted records are left out whatever `.txnindex` files are there: the markers in the log decide."""

from __future__ import annotations

import random

import pytest

from tests.pipeline.archive.archives import archive, contents
from tests.pipeline.logs import Writer, committed, read_all
from tidelog.pipeline.errors import OK
from tidelog.pipeline.source.reading import RECORDS
from tidelog.pipeline.source.splits import LOG_END, READ_COMMITTED, Selection
from tidelog.protocol.records.batch import Record, build


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of many segments: transactions of three producers across them, and records of none."""
    writer, rng = Writer(tmp_path_factory.mktemp("aborts")), random.Random(7)
    partition = writer.partition()
    sequences, is_open = {}, set()

    def end(pid, *, is_commit):
        partition.append_marker(pid, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=0)
        is_open.discard(pid)

    for number in range(400):
        pid = rng.choice([-1, 1, 2, 3])
        if pid < 0:
            writer.append([number] * rng.randint(1, 3))
        elif pid in is_open and not rng.randint(0, 5):
            end(pid, is_commit=rng.random() < 0.5)
        else:
            count, sequence = rng.randint(1, 3), sequences.get(pid, 0)
            sequences[pid] = sequence + count
            data = build(
                [Record(i, number, b"k", b"%d" % number) for i in range(count)],
                producer_id=pid,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            guard = partition.verification(pid, 0, sequence)
            partition.append(data, now_ms=0, produce_version=9, guard=guard)
            is_open.add(pid)
    for pid in sorted(is_open):
        end(pid, is_commit=False)
    writer.close()
    return writer.path


def damaged(data, how):
    if how == "zeros":
        return bytes(len(data))
    if how == "without its last entry":
        return data[:-34]
    if how == "other producers":
        return b"".join(
            data[at : at + 2] + bytes(8) + data[at + 10 : at + 34] for at in range(0, len(data), 34)
        )
    return data[: len(data) // 2] + b"\x55" * 20


def copied(log, root, how):
    """Copy the log with damaged indexes."""
    directory = root / "t-0"
    directory.mkdir(parents=True)
    indexes = 0
    for path in (log / "t-0").iterdir():
        data = path.read_bytes()
        if path.suffix == ".txnindex" and data and how != "whole":
            indexes += 1
            if how == "missing":
                continue
            data = damaged(data, how)
        (directory / path.name).write_bytes(data)
    assert how == "whole" or indexes > 3
    return directory


@pytest.mark.parametrize(
    "how", ["whole", "missing", "zeros", "without its last entry", "other producers", "garbage"]
)
@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
def test_aborted_records_are_left_out(log, tmp_path, how, split_bytes):
    directory = copied(log, tmp_path, how)
    expected = [one.offset for one in committed(directory)]
    selection = Selection(upto=LOG_END, isolation=READ_COMMITTED, split_bytes=split_bytes)
    found = read_all(tmp_path, selection, depth=RECORDS)
    assert [one.offset for one in found["t", 0]] == expected
    everything = read_all(tmp_path, Selection(upto=LOG_END))["t", 0]
    assert len(everything) > len(expected) > 100


def test_an_archive_has_no_aborted_records(log, tmp_path):
    directory = copied(log, tmp_path / "logs", "missing")
    assert archive(tmp_path, "--isolation", "read_committed") == OK
    found = contents(tmp_path)["t", 0]
    assert [one.offset for one in found] == [one.offset for one in committed(directory)]

"""A hundred segments of ours under Apache Kafka's DumpLogSegments: no complaint, and what we wrote.

Every format, codec, kind of time and kind of producer, mixed formats, rolls, trims, restarts and
kills, all in one run of the tool: every record of each `.log`, and each index against its log. That
the tool would complain is seen on an index of each kind with one number changed.
"""

import itertools
import random
import re
import struct
from pathlib import Path

import pytest

from tests.storage.segment.dump_log_segments import dump
from tests.storage.segment.dump_log_segments import pytestmark as pytestmark  # noqa: PLC0414 - the same needs

RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
CODECS = {0: (0, 1, 2, 3), 1: (0, 1, 2, 3), 2: (0, 1, 2, 3, 4)}
COMPLAINTS = (
    "Mismatches",
    "mismatch",
    "out of order",
    "not found",
    "Non-consecutive",
    "invalid bytes",
    "isvalid: false",
    "could not",
    "Exception",
    "corrupt",
)
APPENDS = 36
HEADING = re.compile(r"^Dumping (.*)$", re.MULTILINE)
RECORD = re.compile(
    r"^\| offset: (\d+) (CreateTime|LogAppendTime|NoTimestampType): (-?\d+)", re.MULTILINE
)
ENTRY = re.compile(r"^(offset|timestamp): -?\d+ ", re.MULTILINE)


class Told:
    """A log, and what a reader of it has to be told: (kind, time) of each record by offset."""

    def __init__(self, log):
        self.log, self.records = log, []

    def expected(self, first, last):
        return [(offset, *self.records[offset]) for offset in range(first, last)]


def life(make_log, name, chance, *, formats, kind, times, has_producer, policy="delete"):
    """A log that grows, changes its format, stops, dies, comes back, and is trimmed."""
    settings = {
        "segment_bytes": 1500,
        "index_interval_bytes": chance.choice((60, 200)),
        "message_timestamp_type": kind,
        "cleanup_policy": policy,
    }
    log = make_log(name, message_format_version=RELEASES[formats[0]], **settings).create()
    told, sequence = Told(log), 0
    for number in range(APPENDS):
        magic = formats[number * len(formats) // APPENDS]
        release = RELEASES[magic]
        if log.config.message_format_version != release:
            log.config = type(log.config)(message_format_version=release, **settings)
            log.store.set_config("t", log.config)
        stamps = [times(chance, number) for _ in range(chance.randint(1, 6))]
        sent = magic if has_producer else chance.choice((0, 1, 2))
        batch = {"magic": sent, "compression": chance.choice(CODECS[min(sent, magic)])}
        if has_producer:
            batch |= {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        sequence += len(stamps)
        log.append(stamps, now=1_000_000 + number, **batch)
        told.records += [_said(magic, sent, kind, one, 1_000_000 + number) for one in stamps]
        if number % 12 == 7:
            log.crash() if number % 24 == 7 else log.close()
            log.open(1_000_000 + number)
    if chance.random() < 0.4:
        log.partition.retainer.delete_records_before(len(told.records) // 3)
    log.partition.flush()
    return told


def _said(magic, sent, kind, stamp, now):
    if magic == 0:
        return ("NoTimestampType", -1)
    if kind == "LogAppendTime":
        return (kind, now)
    return (kind, -1 if sent == 0 else stamp)


TIMES = {
    "in order": lambda chance, number: 5000 + number * 10 + chance.randint(0, 9),
    "any": lambda chance, _: chance.choice((-1, 0, 7, 5000, chance.randint(0, 2**40))),
    "late": lambda chance, number: 90_000 - number * 100 + chance.randint(0, 300),
    "missing": lambda _chance, _number: -1,
}
FORMATS = ((2,), (1,), (0,), (0, 1, 2), (2, 1, 2))


@pytest.fixture
def lives(make_log):
    """Logs of every combination, in all more than a hundred segments."""
    chance, found = random.Random(33), []
    for formats, kind in itertools.product(FORMATS, ("CreateTime", "LogAppendTime")):
        for number, times in enumerate(TIMES.values()):
            name = f"log {len(found)}".replace(" ", "-")
            made = {"formats": formats, "kind": kind, "times": times}
            made["has_producer"] = formats == (2,) and number % 2 == 0
            made["policy"] = ("delete", "compact,delete")[number % 2]
            found.append(life(make_log, name, chance, **made))
    return found


def below_zero(chance, _number):
    return chance.choice((-1, -2, -7, -1000, -(2**40), 0, 5000))


def parts(shown):
    """What the tool said of each file, by path."""
    found = HEADING.split(shown)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def files_of(lives, suffix):
    return [path for one in lives for path in sorted(one.log.directory.glob(f"*{suffix}"))]


def check_logs(lives, said):
    """Every record of every segment, as it was appended; how many segments and records."""
    segments = records = 0
    for one in lives:
        logs = sorted(one.log.directory.glob("*.log"))
        ends = [int(path.stem) for path in logs[1:]] + [len(one.records)]
        for path, end in zip(logs, ends, strict=True):
            found = [
                (int(at), kind, int(time)) for at, kind, time in RECORD.findall(said[str(path)])
            ]
            assert found == one.expected(int(path.stem), end), path
            segments, records = segments + 1, records + len(found)
    return segments, records


def test_a_hundred_segments(lives, capsys):
    paths = [
        path for suffix in (".log", ".index", ".timeindex") for path in files_of(lives, suffix)
    ]
    shown = dump(paths, "--deep-iteration")
    complaints = [line for line in shown.splitlines() if any(word in line for word in COMPLAINTS)]
    assert not complaints
    said = parts(shown)
    segments, records = check_logs(lives, said)
    assert segments >= 100
    entries = sum(len(ENTRY.findall(said[str(path)])) for path in paths if path.suffix != ".log")
    assert entries > 500
    indexes = [path for path in paths if path.suffix != ".log"]
    sane = dump(indexes, "--index-sanity-check")
    for path, text in parts(sane).items():
        assert "passed sanity check" in text or (not Path(path).stat().st_size and "empty" in text)
    assert len(parts(sane)) == len(indexes)
    with capsys.disabled():
        print(f"\nDumpLogSegments: {segments} segments, {records} records, {entries} entries, ok")


def test_times_below_zero(make_log):
    log = life(
        make_log,
        "below",
        random.Random(5),
        formats=(2,),
        kind="CreateTime",
        times=below_zero,
        has_producer=True,
    )
    shown = dump(
        [p for s in (".log", ".index", ".timeindex") for p in files_of([log], s)],
        "--deep-iteration",
    )
    complaints = [line for line in shown.splitlines() if any(word in line for word in COMPLAINTS)]
    assert check_logs([log], parts(shown))[0] > 2
    assert not complaints


def test_damage_is_reported(make_log):
    """One number changed in each kind of file: the tool says so of that file, and of no other."""
    told = life(
        make_log,
        "damaged",
        random.Random(3),
        formats=(2,),
        kind="CreateTime",
        times=TIMES["in order"],
        has_producer=True,
    )
    log = told.log
    log.close()
    index, other = sorted(log.directory.glob("*.index"))[:2]
    timeindex = index.with_suffix(".timeindex")
    add(index, 0, ">i", 1)  # the offset of the first entry
    add(timeindex, 0, ">q", 1)  # the time of the first
    add(other.with_suffix(".log"), 61, ">b", 1)  # a byte of the first batch's records
    for path, complaint in (
        (index, f"Mismatches in :{index}"),
        (timeindex, f"Found timestamp mismatch in :{timeindex}"),
        (other.with_suffix(".log"), "isvalid: false"),
    ):
        shown = dump([path])
        assert complaint in shown
    log.open()


def add(path, position, layout, plus):
    """Change one number of a file."""
    data = bytearray(path.read_bytes())
    (number,) = struct.unpack_from(layout, data, position)
    struct.pack_into(layout, data, position, number + plus)
    path.write_bytes(data)

"""What the tests of `tidelog dump` use: its output as objects and as text, and bytes changed on disk."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from crc32c import crc32c

from tidelog.cli.parser import main

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
BASE = "00000000000000000000"
META = "#Sat Nov 21\n#\nversion={}\n{}={}\ncluster.id=dGlkZWxvZy1vcmFjbGU9PQ\n"
KINDS = {
    "segment",
    "offset index",
    "time index",
    "append times",
    "producer snapshot",
    "partition times",
    "partition metadata",
    "leader epochs",
    "checkpoint",
}


def dump(capsys, *arguments):
    """Exit status and the objects that --json writes."""
    status = main(["dump", "--json", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert err == ""
    return status, [json.loads(line) for line in out.splitlines()]


def of(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def findings(rows):
    return [(Path(row["file"]).name, row["where"], row["what"]) for row in of(rows, "finding")]


def whole(path):
    """Every file of a log directory that dump knows."""
    names = ("*checkpoint", "t-0/*")
    return sorted(file for name in names for file in path.glob(name) if file.is_file())


def batches_of(path):
    """(position, size) of every batch."""
    data, found, position = path.read_bytes(), [], 0
    while position < len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        found.append((position, size))
        position += size
    return found


def patch(path, position, data):
    held = bytearray(path.read_bytes())
    held[position : position + len(data)] = data
    path.write_bytes(held)


def patch_sealed(path, batch, position, data):
    """Change a field of a batch and make its checksum right again."""
    start, size = batch
    patch(path, start + position, data)
    held = path.read_bytes()[start : start + size]
    patch(path, start + 17, struct.pack(">I", crc32c(held[21:])))


def judge(capsys, *files):
    status, rows = dump(capsys, *files)
    assert status == 1
    by_file = {Path(row["file"]).name: row for row in of(rows, "verdict")}
    for name, row in by_file.items():
        found = sum(each[0] == name for each in findings(rows))
        assert (row["is_ok"], row["findings"]) == (not found, found)
    return [(where, what) for _, where, what in findings(rows)]


def text(capsys, *arguments):
    status = main(["dump", *map(str, arguments)])
    return status, capsys.readouterr().out.splitlines()

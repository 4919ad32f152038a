"""A small file that unpacks to very much takes little memory, and is a finding."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys

import zstandard
from crc32c import crc32c

from tests.tidelog.dump.dumping import BASE, dump, findings, of
from tidelog.cli import main

UNPACKED = 400 << 20
MIB = 1 << 20
RUN = (
    "import sys; from tidelog.cli.parser import main; status = main(sys.argv[1:]);"
    "print(open('/proc/self/status').read(), file=sys.stderr); sys.exit(status)"
)


def varint(number):
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def bomb(size):
    """A batch of one record whose value is `size` zeros, in zstd."""
    head = b"\0\0\0\1" + varint(size)  # attributes, time, offset, no key
    packer = zstandard.ZstdCompressor().compressobj()
    parts = [packer.compress(varint(len(head) + size + 1) + head)]
    parts += [packer.compress(bytes(MIB)) for _ in range(size // MIB)]
    parts += [packer.compress(b"\0"), packer.flush()]
    rest = struct.pack(">hiqqqhii", 4, 0, 5_000, 5_000, -1, -1, -1, 1) + b"".join(parts)
    return (
        struct.pack(">qiibI", 0, len(rest) + 9, 0, 2, crc32c(rest)) + rest
    )  # offset, length, leader epoch, magic, checksum


def test_what_a_batch_unpacks_to_is_bounded(tmp_path):
    log = tmp_path / f"{BASE}.log"
    log.write_bytes(bomb(UNPACKED))
    assert log.stat().st_size < 64 << 10
    arguments = [sys.executable, "-c", RUN, "dump", "--json", "--records", str(log)]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    sentence = "a compressed batch unpacks to more than 67108864 bytes"
    assert findings(rows) == [
        (log.name, "byte 0", f"{sentence}: it was not examined (--unpack-limit)")
    ]
    assert ran.returncode == 1
    # Not ru_maxrss: that counts what the parent process had.
    assert int(re.search(r"VmHWM:\s+(\d+) kB", ran.stderr)[1]) < 250 << 10


def test_a_limit_below_zero_is_refused(tmp_path, capsys):
    assert main(["dump", "--unpack-limit", "-5", str(tmp_path)]) == 2
    assert "--unpack-limit: '-5' is not a size: write 64MiB, or bytes" in capsys.readouterr().err


def test_a_larger_limit_examines_it(tmp_path, capsys):
    log = tmp_path / f"{BASE}.log"
    log.write_bytes(bomb(65 * MIB))
    assert dump(capsys, log)[0] == 1
    status, rows = dump(capsys, log, "--unpack-limit", 66 * MIB)
    assert status == 0
    assert [row["count"] for row in of(rows, "batch")] == [1]

"""CRC-32C: the values are those of the standard, and loading it takes no more than its extension module."""

from __future__ import annotations

import subprocess
import sys

import pytest
from crc32c import crc32c as of_the_package

from tidelog.protocol import checksum

# RFC 3720, B.4; the last is the check value of the catalogue of CRC algorithms.
KNOWN = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (b"123456789", 0xE3069283),
]
LOADED = """
import sys
from tidelog.protocol.checksum import crc32c
print(*sorted({"crc32c", "argparse", "importlib.metadata", "email", "zipfile"} & set(sys.modules)))
"""


@pytest.mark.parametrize(("data", "value"), KNOWN)
def test_the_values_of_the_standard(data, value):
    assert checksum.crc32c(data) == of_the_package(data) == value
    assert checksum.crc32c(memoryview(data)[5:], checksum.crc32c(data[:5])) == value


def test_only_the_extension_is_loaded():
    ran = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, timeout=60, capture_output=True, text=True
    )
    assert ran.stdout.split() == []


@pytest.mark.parametrize("name", ["_EXTENSION", "_PACKAGE"])
def test_the_package_serves_where_its_extension_is_not_found(monkeypatch, name):
    monkeypatch.setattr(checksum, name, "crc32c_of_another_name")
    assert checksum._loaded().crc32c is of_the_package  # what the module does once, at import

"""Flink's exactly-once sink: numbers are summed up in its mini cluster, while it and the broker are killed.

A transaction of the sink is committed with the checkpoint it belongs to. The program that is started after a
kill goes on from the last checkpoint: it commits what belongs to that, and aborts what came later.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.oracle import apache_kafka
from tests.tools.exactly_once.counting import Numbers, Reader, create, through_kills

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

VERSION = "flink-2.2.1"
SOURCE = Path(__file__).with_name("FlinkSums.java")
COMPILE_TIMEOUT_S = 300
# What Flink reaches into.
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.time", "java.base/java.net")


@pytest.fixture
def classes(tmp_path):
    """The class path of the compiled program."""
    usable = apache_kafka.available(VERSION)
    if not usable or shutil.which("javac") is None:
        pytest.skip(usable.reason or "javac is not installed")
    path = f"{tmp_path / 'classes'}:{apache_kafka.fetch(VERSION)}/*"
    command = ["javac", "-nowarn", "-cp", path, "-d", str(tmp_path / "classes"), str(SOURCE)]
    subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
    return path


def last_checkpoint(directory):
    """The newest checkpoint that is whole, for the command line; nothing where there is none."""
    whole = sorted(directory.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    return [whole[-1].parent.as_uri()] if whole else []


def test_sums_are_exact(broker, tmp_path, classes):
    numbers = Numbers(broker.bootstrap)
    sums, checkpoints = f"sums-of-{numbers.topic}", tmp_path / "checkpoints"
    create(broker.bootstrap, sums)
    java = apache_kafka.find_java()
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]

    def start():
        words = [broker.bootstrap, numbers.topic, sums, str(checkpoints)]
        command = [
            java,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            *opened,
            "-cp",
            classes,
            "FlinkSums",
            *words,
        ]
        return apache_kafka.Process("flink", [*command, *last_checkpoint(checkpoints)], tmp_path)

    reader = Reader(broker.bootstrap, sums)
    through_kills(numbers.write, reader, start, broker, ["program", "broker", "both", "program"])
    numbers.check(sums)

"""Runs Apache Kafka's own DumpLogSegments."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

JARS = Path(os.environ.get("TIDELOG_CACHE", Path(__file__).parents[3] / ".cache")) / "kafka-3.9.1"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        not list(JARS.glob("kafka_2*.jar")) or not shutil.which("java"),
        reason="needs the jars of Kafka 3.9.1 (`apache_kafka.py fetch 3.9.1`) and java",
    ),
]


def dump(paths, *options):
    """What the tool prints; its complaints go to standard error."""
    run = subprocess.run(
        [
            *("java", "-Xmx256m", "-cp", f"{JARS}/*", "kafka.tools.DumpLogSegments"),
            *options,
            *("--files", ",".join(map(str, paths))),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=240,
    )
    return run.stdout

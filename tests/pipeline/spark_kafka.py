"""Spark's own Kafka connector: its jars, fetched once with Maven into the cache of the oracle tests.

Spark has to be given them when it starts, and PySpark does not bring them. Mirrors lag behind: of each jar
the newest of a few versions that go together is taken. As a program it fetches them, before any test waits.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.oracle.apache_kafka import (
    DEPENDENCY_PLUGIN,
    FETCH_TIMEOUT_S,
    Availability,
    cache_root,
    maven_available,
)
from tidelog.pipeline.spark_versions import FITTING

_RELEASES = [one.kafka for one in reversed(FITTING) if one.kafka is not None]
CLIENT = ("org.apache.commons:commons-pool2:2.12.1", "org.apache.kafka:kafka-clients:3.9.1")
ARTIFACTS = (
    *(
        [f"org.apache.spark:{name}-kafka-0-10_2.13:{release}" for release in _RELEASES]
        for name in ("spark-sql", "spark-token-provider")
    ),
    *([one] for one in CLIENT),
)


def directory() -> Path:
    """Where the jars are, once fetched."""
    return cache_root() / "spark-kafka"


@cache
def fetch() -> Availability:
    """Make sure that the jars are in the cache."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "spark-kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        if directory().is_dir():
            return Availability(ok=True, reason="")
        maven = maven_available()
        if not maven:
            return maven
        with tempfile.TemporaryDirectory(prefix="spark-kafka.", dir=root) as work:
            jars = Path(work) / "jars"
            for versions in ARTIFACTS:
                if not any(copy(artifact, jars) for artifact in versions):
                    reason = f"Maven could not fetch Spark's Kafka connector: {versions[-1]}"
                    return Availability(ok=False, reason=reason)
            shutil.move(jars, directory())
    return Availability(ok=True, reason="")


def copy(artifact: str, jars: Path) -> bool:
    """Copy an artifact of Maven into a directory; returns whether it could be had."""
    command = ["mvn", "--batch-mode", "--quiet", f"{DEPENDENCY_PLUGIN}:copy"]
    try:
        done = subprocess.run(
            [*command, f"-Dartifact={artifact}", f"-DoutputDirectory={jars}"],
            capture_output=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def jars() -> list[Path]:
    """The jars, where they are."""
    return sorted(directory().glob("*.jar"))


if __name__ == "__main__":
    print(fetch().reason or directory())

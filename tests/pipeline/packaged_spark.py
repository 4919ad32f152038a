"""A Spark with all packages: the newest PySpark for which they exist, in an environment of its own.

Iceberg publishes its runtime for a new version of Spark months after that. The newest version that has one is
therefore installed apart, once, into the cache of the oracle tests, and the packages that are declared for it
(pipeline/spark_versions.py). As a program it does so before any test waits.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle.apache_kafka import Availability, cache_root, maven_available
from tests.pipeline import spark_kafka
from tidelog.pipeline.spark_versions import FITTING

if TYPE_CHECKING:
    from pathlib import Path

_ROW = next(one for one in reversed(FITTING) if len(one.packages) == 3)
_PYSPARK = f"pyspark=={_ROW.spark}.*"
# What Spark would fetch with the packages: Maven's mirrors are no place where it looks.
_ARTIFACTS = (
    *_ROW.packages.values(),
    f"io.delta:delta-storage:{_ROW.delta}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{_ROW.kafka}",
    *spark_kafka.CLIENT,
)
_INSTALL_TIMEOUT_S = 900  # PySpark is built from its sources


class PackagedSpark(NamedTuple):
    """A Python that has PySpark, and the jars that go with it."""

    python: Path
    jars: list[Path]


def installed() -> PackagedSpark:
    """Where they are, once fetched."""
    directory = cache_root() / "iceberg"
    names = (artifact.split(":") for artifact in _ARTIFACTS)
    jars = [directory / f"{name}-{release}.jar" for _, name, release in names]
    return PackagedSpark(directory / "env" / "bin" / "python", jars)


@cache
def fetch() -> Availability:
    """Make sure that they are in the cache."""
    python, jars = installed()
    directory = python.parents[2]
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        for artifact, jar in zip(_ARTIFACTS, jars, strict=True):
            if jar.exists():
                continue
            maven = maven_available()
            if not maven:
                return maven
            if not spark_kafka.copy(artifact, directory):
                return Availability(ok=False, reason=f"Maven could not fetch {artifact}")
        if not python.exists():
            environment = python.parents[1]
            if not _has_been_made(environment):
                shutil.rmtree(environment, ignore_errors=True)
                return Availability(ok=False, reason=f"pip could not install {_PYSPARK}")
    return Availability(ok=True, reason="")


def _has_been_made(environment: Path) -> bool:
    """Make an environment with PySpark; returns whether it was possible."""
    new = environment.with_name("env.new")
    shutil.rmtree(new, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--python", str(new / "bin" / "python")]
    pip += ["install", "--quiet", "--disable-pip-version-check", _PYSPARK]
    try:
        for command in ([sys.executable, "-m", "venv", "--without-pip", str(new)], pip):
            subprocess.run(command, check=True, timeout=_INSTALL_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    new.rename(environment)  # its Python finds its packages wherever it is
    return True


if __name__ == "__main__":
    print(fetch().reason or installed().python.parents[2])

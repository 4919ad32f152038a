"""A Spark that reads Iceberg tables: PySpark 4.1 in an environment of its own, and Iceberg's runtime for it.

Iceberg publishes its runtime for a new version of Spark months after that. The newest version that has one is
therefore installed apart, once, into the cache of the oracle tests. As a program it does so before any test
waits.
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

if TYPE_CHECKING:
    from pathlib import Path

_PYSPARK = "pyspark==4.1.*"
_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
_INSTALL_TIMEOUT_S = 900  # PySpark is built from its sources


class IcebergSpark(NamedTuple):
    """A Python that has PySpark, and the jar that goes with it."""

    python: Path
    jar: Path


def installed() -> IcebergSpark:
    """Where they are, once fetched."""
    directory = cache_root() / "iceberg"
    _, name, release = _RUNTIME.split(":")
    return IcebergSpark(directory / "env" / "bin" / "python", directory / f"{name}-{release}.jar")


@cache
def fetch() -> Availability:
    """Make sure that both are in the cache."""
    python, jar = installed()
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (jar.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        if not jar.exists():
            maven = maven_available()
            if not maven:
                return maven
            if not spark_kafka.copy(_RUNTIME, jar.parent):
                return Availability(ok=False, reason=f"Maven could not fetch {_RUNTIME}")
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
    print(fetch().reason or installed().jar.parent)

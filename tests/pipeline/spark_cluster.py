"""A standalone Spark cluster on loopback, of the classes that PySpark brings: one master, one worker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.broker.subject import eventually

DEADLINE_S = 120
ROOT = Path(__file__).parents[2]


def home():
    """Spark's directory in PySpark."""
    import pyspark

    return Path(pyspark.__file__).parent


def submit():
    """The program that gives Spark a job."""
    return home() / "bin" / "spark-submit"


def environ():
    """The environment of programs that start Spark: this Python, and loopback."""
    return {
        **os.environ,
        "SPARK_HOME": str(home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


class Cluster(NamedTuple):
    """Where the master is, and its page about the cluster."""

    master: str
    page: str

    def completed(self):
        """The applications that were registered there and have ended: names and states."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=30) as answer:
            known = json.load(answer)
        return [(one["name"], one["state"]) for one in known["completedapps"]]


@contextlib.contextmanager
def standalone(directory):
    """A cluster with two cores; it ends with the block."""
    with contextlib.ExitStack() as stack:
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = _started(stack, directory, "master.Master", *where)
        master = _said(log, r"Starting Spark master at (spark://\S+)")
        page = _said(log, r"MasterWebUI .*(http://\S+)")
        size = ("--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work"))
        log = _started(stack, directory, "worker.Worker", *where, *size, master)
        _said(log, r"(Successfully registered with master)")
        yield Cluster(master, page)


def _started(stack, directory, name, *arguments):
    path = directory / f"{name}.log"
    command = [home() / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with path.open("w") as file:
        process = stack.enter_context(
            subprocess.Popen(command, env=environ(), stdout=file, stderr=subprocess.STDOUT)
        )
    stack.callback(process.kill)
    return path


def _said(log, pattern):
    """What a log says, which may take a while."""
    found = []

    def look():
        found.extend(re.findall(pattern, log.read_text()))
        return bool(found)

    eventually(look, DEADLINE_S, f"{pattern} in {log}")
    return found[0]

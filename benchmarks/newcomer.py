"""What a newcomer waits for: `tidelog consume` beside kcat, and twenty tests that share a broker.

The commands print a million records of 100 bytes of one partition, in turn. Each test makes a topic, writes a
record and reads it. Another broker for the tests is a program that prints its `host:port`, and stops when its
standard input ends.

    python benchmarks/newcomer.py                     needs kcat
    python benchmarks/newcomer.py --beside ./kfake    the tests also with this broker
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (0, 1)]

from brokers import REPOSITORY, Tidelog, bootstrap, cpu_s
from confluent_kafka import Producer
from printing import add_json, print_each

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOPIC = "records"
_COMMANDS = {
    "kcat, '%o %T %s'": "kcat -q -b {at} -C -t {topic} -o beginning -e -f '%o %T %s\\n'",
    "tidelog consume, the same": "{tidelog} consume {topic} -b {at} --no-append-times --format '%o %T %s\\n'",
    "tidelog consume, append times too": "{tidelog} consume {topic} -b {at} --format '%o %T %A %s\\n'",
    "kcat -J": "kcat -q -b {at} -C -t {topic} -o beginning -e -J",
    "tidelog consume --json, append times too": "{tidelog} consume {topic} -b {at} --json",
}
_TESTS = """
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


@pytest.mark.parametrize("topic", ["topic-%d" % number for number in range(20)])
def test_trivial(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(60).value() == b"value"
    consumer.close()
"""
_OURS = """
import pytest


@pytest.fixture
def bootstrap(tidelog_broker):
    return tidelog_broker.bootstrap
"""
_BESIDE = """
import subprocess

import pytest


@pytest.fixture(scope="session")
def bootstrap():
    pipe = subprocess.PIPE
    with subprocess.Popen(PROGRAM, stdin=pipe, stdout=pipe, text=True) as broker:
        yield broker.stdout.readline().strip()
        broker.stdin.close()
"""


class Waited(NamedTuple):
    """Medians of some runs; the CPU of tests includes that of their broker."""

    what: str
    clock_s: float
    client_cpu_s: float
    broker_cpu_s: float  # -1: the broker is started by what is measured
    runs: int


def _fill(broker: Tidelog, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(broker), "linger.ms": 5})
    for number in range(count):
        value = f"{number:07d} {os.urandom(46).hex()}"
        while True:
            try:
                producer.produce(_TOPIC, value, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def _run(command: list[str], out: IO[bytes]) -> tuple[float, float]:
    """Runs a command; returns its seconds by the clock, and of CPU, its children's included."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=REPOSITORY, stdout=out, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began_s, used_s


def reading(directory: Path, count: int, runs: int) -> Iterator[Waited]:
    """Yields how long each command takes to print the records into a file."""
    broker = Tidelog(directory / "broker", 0)
    broker.start()
    try:
        _fill(broker, count)
        seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in _COMMANDS}
        for _ in range(runs):
            for name, command in _COMMANDS.items():
                tidelog = f"{shlex.quote(sys.executable)} -m tidelog"
                line = command.format(at=bootstrap(broker), topic=_TOPIC, tidelog=tidelog)
                used_s = cpu_s(broker)
                with (directory / "out").open("wb") as out:
                    clock_s, client_s = _run(shlex.split(line), out)
                seen[name].append((clock_s, client_s, cpu_s(broker) - used_s))
                with (directory / "out").open("rb") as lines:
                    assert sum(1 for _ in lines) == count, name
        for name, found in seen.items():
            clock_s, client_s, used_s = map(statistics.median, zip(*found, strict=True))
            yield Waited(name, clock_s, client_s, used_s, runs)
    finally:
        broker.stop()


def testing(directory: Path, beside: str | None, runs: int) -> Iterator[Waited]:
    """Yields how long pytest takes for twenty tests, its own start and the broker's included."""
    fixtures = {"twenty tests, tidelog": _OURS}
    if beside is not None:
        name = f"twenty tests, {Path(beside).name}"
        fixtures[name] = _BESIDE.replace("PROGRAM", repr([str(Path(beside).resolve())]))
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in fixtures}
    for run in range(runs):
        for number, (name, fixture) in enumerate(fixtures.items()):
            place = directory / f"tests-{run}-{number}"
            place.mkdir()
            (place / "conftest.py").write_text(fixture)
            (place / "test_twenty.py").write_text(_TESTS)
            pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            with (place / "out").open("wb") as out:
                seen[name].append(_run([*pytest, f"--rootdir={place}", str(place)], out))
    for name, found in seen.items():
        clock_s, client_s = map(statistics.median, zip(*found, strict=True))
        yield Waited(name, clock_s, client_s, -1.0, runs)


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="how many are read")
    parser.add_argument("--runs", type=int, default=5, help="of each; medians are printed")
    parser.add_argument("--beside", metavar="PROGRAM", help="another broker for the tests")
    add_json(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-newcomer-") as name:
        for found in (
            reading(Path(name), options.records, options.runs),
            testing(Path(name), options.beside, options.runs),
        ):
            head = f"{'what':44} {'clock':>7} {'CPU':>7} {'CPU of the broker':>18}"
            print_each(found, head, _line, as_json=options.json)


def _line(each: Waited) -> str:
    used = f"{each.broker_cpu_s:16.2f} s" if each.broker_cpu_s >= 0 else ""
    return f"{each.what:44} {each.clock_s:5.2f} s {each.client_cpu_s:5.2f} s {used}"


if __name__ == "__main__":
    main()

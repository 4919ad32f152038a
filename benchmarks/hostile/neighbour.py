"""What one client, or twenty, can do to all others: each row is something that a broker must bear.

While the hostile clients of a row are at work, a neighbour, a process of its own, asks ApiVersions a hundred
times a second, each time when the answer before has come. The table has its median, its 99th percentile
and its longest wait in ms; the longest lag of the event loop as the broker itself saw it (/metrics); the
most memory that the broker took; how much time other machines on the same hardware took from the broker's
CPU, in ms (`stolen`), which no program can prevent; and what became of the hostile requests. Every row
starts a broker of its own on loopback, and is bounded in time and in count.

With `--brokers 3` each row starts a cluster. The hostile clients and the neighbour ask its first broker. Lag
and memory are those of the broker that has most, and `stolen` is of all CPUs.

    python benchmarks/hostile/neighbour.py                     every row
    python benchmarks/hostile/neighbour.py tags flood-20       some of them
    python benchmarks/hostile/neighbour.py --brokers 3 wide    the same, asked of a cluster

Times mean little on a machine that does other work: the row `quiet` has no hostile client, and shows
what the machine itself does to the neighbour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import partition_requests
import replicated_requests
from brokers import Tidelog
from cluster.clusters import TidelogCluster
from prepared import frame_of, request_head, uvarint
from printing import add_json, print_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DEADLINE_S = 60.0  # of one hostile answer
_FLOOD_S = 5.0
_PING_S = 0.01
_PAUSE_S = 0.3
_NEIGHBOUR = """
import json, socket, struct, sys, time
ask = struct.pack(">ihhih", 13, 18, 0, 7, 3) + b"you"
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
stream, waits, rest = peer.makefile("rb"), [], float(sys.argv[2])
import select
print("ready", flush=True)
while not select.select([sys.stdin], [], [], rest)[0]:
    began = time.perf_counter()
    peer.sendall(ask)
    stream.read(struct.unpack(">i", stream.read(4))[0])
    waits.append((time.perf_counter() - began) * 1000)
print(json.dumps(sorted(waits)))
"""


class Hostile:
    """A connection that a hostile client has opened to a broker."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> str:
        """Sends a request; returns how long the answer is, or that there was none."""
        try:
            self._socket.sendall(frame_of(request))
            return f"{self.receive():,} B"
        except (ConnectionError, BrokenPipeError, EOFError):
            return "closed"
        except TimeoutError:
            return "no answer"

    def receive(self) -> int:
        """Reads an answer; returns its size. Raises EOFError if the broker has closed."""
        left = size = struct.unpack(">i", self._exactly(4))[0]
        while left:
            left -= len(self._exactly(min(left, 1 << 16)))
        return int(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


# -- rows -----------------------------------------------------------------------------------------


def _nothing(_port: int) -> str:
    time.sleep(_FLOOD_S)
    return ""


def _tags(port: int) -> str:
    """ApiVersions v3, the tag section of whose header has 99 MB."""
    count = 49_500_000
    tags = uvarint(count) + b"\x64\x00" * count
    with Hostile(port) as hostile:
        return hostile.ask(request_head(18, 3) + tags)


def _elements(port: int) -> str:
    """Requests with 990,000 elements: Metadata v0, DescribeGroups v0, DeleteTopics v0, ListOffsets v1."""
    count, heard = 990_000, []
    names = struct.pack(">i", count) + b"\0\1a" * count
    offsets = struct.pack(">iih1si", -1, 1, 1, b"t", count) + bytes(12) * count
    bodies = ((3, 0, names), (15, 0, names), (20, 0, names + bytes(4)), (2, 1, offsets))
    for key, version, body in bodies:
        with Hostile(port) as hostile:
            heard.append(hostile.ask(request_head(key, version) + body))
    return ", ".join(heard)


def _allowed(port: int) -> str:
    """As many elements as are allowed: Metadata v4, DescribeGroups v0, ListOffsets v1, OffsetFetch v1."""
    count, heard = 45_000, []
    names = struct.pack(">i", count) + b"".join(b"\0\6%06d" % number for number in range(count))
    indexes = b"".join(struct.pack(">iq", number, -1) for number in range(count))
    offsets = struct.pack(">iih1si", -1, 1, 1, b"t", count) + indexes
    asked = struct.pack(">h1sih1si", 1, b"g", 1, 1, b"t", count)
    asked += b"".join(struct.pack(">i", number) for number in range(count))
    for key, version, body in (
        (3, 4, names + b"\0"),
        (15, 0, names),
        (2, 1, offsets),
        (9, 1, asked),
    ):
        with Hostile(port) as hostile:
            heard.append(hostile.ask(request_head(key, version) + body))
    return ", ".join(heard)


def _describe(port: int) -> str:
    """DescribeConfigs v1 that names the broker 45,000 times, which is nearly as often as is allowed."""
    count = 45_000
    body = struct.pack(">i", count) + struct.pack(">bh1si", 4, 1, b"0", -1) * count + b"\1"
    with Hostile(port) as hostile:
        return hostile.ask(request_head(32, 1) + body)


def _flood_of(count: int) -> Callable[[int], str]:
    def flood(port: int) -> str:
        """ApiVersions v0, thousands in a piece, from many connections that read little."""
        requests = frame_of(request_head(18, 0)) * 2_000
        until = time.monotonic() + _FLOOD_S
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(Hostile(port)) for _ in range(count)]
            got = _spread(peers, requests, until)
        return f"{got / _FLOOD_S / 1e6:.0f} MB/s of answers"

    return flood


def _spread(peers: list[Hostile], requests: bytes, until: float) -> int:
    """Lets every peer send as much as it can, in one thread."""
    got = 0
    for peer in peers:
        peer._socket.setblocking(False)
    while time.monotonic() < until:
        for peer in peers:
            with contextlib.suppress(BlockingIOError):
                peer._socket.send(requests)
            with contextlib.suppress(BlockingIOError):
                got += len(peer._socket.recv(1 << 18))
    return got


def _metadata(port: int) -> str:
    """Metadata v1 of 20,000 partitions, asked six times by 20 clients."""
    with Hostile(port) as maker:
        for number in range(10):
            topic = struct.pack(">ih4sihii", 1, 4, b"t%03d" % number, 2_000, 1, 0, 0)
            maker.ask(request_head(19, 0) + topic + struct.pack(">i", _DEADLINE_MS))
    return _together(20, port, request_head(3, 1) + struct.pack(">i", -1), times=6)


def _creation(port: int) -> str:
    """One Metadata v1 that asks for 5,000 topics that do not exist."""
    names = b"".join(b"\0\5%05d" % number for number in range(5_000))
    with Hostile(port) as hostile:
        heard = hostile.ask(request_head(3, 1) + struct.pack(">i", 5_000) + names)
        all_topics = hostile.ask(request_head(3, 1) + struct.pack(">i", -1))
    return f"{heard}; all topics then: {all_topics}"


_DEADLINE_MS = int(_DEADLINE_S * 1000)


def _together(clients: int, port: int, request: bytes, *, times: int) -> str:
    """Many clients ask the same at once; returns what the first one heard last."""

    def ask(port: int) -> str:
        with Hostile(port) as hostile:
            return [hostile.ask(request) for _ in range(times)][-1]

    return attack_with(ask, port, clients)


ROWS: dict[str, Callable[[int], str]] = {
    "quiet": _nothing,
    "tags": _tags,
    "elements": _elements,
    "allowed": _allowed,
    "describe": _describe,
    "flood-20": _flood_of(20),
    "flood-100": _flood_of(100),
    "flood-500": _flood_of(500),
    "metadata": _metadata,
    "creation": _creation,
    **partition_requests.ROWS,
    **replicated_requests.ROWS,
}
_TWENTY = ("elements", "allowed", "describe")  # also from 20 clients at once


# -- measuring ------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What one row has shown."""

    row: str
    p50_ms: float
    p99_ms: float
    longest_ms: float
    lag_ms: float
    peak_mb: float
    stolen_ms: int
    heard: str


@contextlib.contextmanager
def neighbour(port: int) -> Iterator[list[float]]:
    """Runs the neighbour; the list has its waits in ms, in ascending order, afterwards."""
    command = [sys.executable, "-c", _NEIGHBOUR, str(port), str(_PING_S)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    waits: list[float] = []
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield waits
    finally:
        out, _ = process.communicate("stop\n", timeout=2 * _DEADLINE_S)
        waits += json.loads(out or "[]")


class Subject(NamedTuple):
    """What is asked: one broker, or the first of several."""

    port: int
    http: list[str]  # host:port of the HTTP of each broker
    pids: list[int]
    cpu: str  # as /proc/stat names it


@contextlib.contextmanager
def started(brokers: int) -> Iterator[Subject]:
    """Starts a broker on one CPU, or several on all; stops them in the end."""
    settings = {"max.connections": "2000"}
    with tempfile.TemporaryDirectory() as directory:
        if brokers == 1:
            broker = Tidelog(Path(directory), cpu=0, settings=settings)
            broker.start()
            try:
                yield Subject(broker.port, [broker.http], [broker.pid], f"cpu{broker.cpu}")
            finally:
                broker.stop()
            return
        cluster = TidelogCluster(Path(directory), brokers, settings)
        cluster.start()
        try:
            port = int(cluster.bootstrap.partition(",")[0].rpartition(":")[2])
            yield Subject(port, cluster.http, cluster.brokers, "cpu")
        finally:
            cluster.stop()


def measure(row: str, attack: Callable[[int], str], clients: int, brokers: int) -> Seen:
    """Starts brokers, lets the hostile clients loose on the first, and stops them."""
    with started(brokers) as subject:
        stolen_ms = _stolen_ms(subject.cpu)
        with neighbour(subject.port) as waits:
            time.sleep(_PAUSE_S)  # some waits before it, and some after it
            heard = attack_with(attack, subject.port, clients)
            time.sleep(_PAUSE_S)
        lags_s = (metric(http, "tidelog_loop_lag_longest_seconds") for http in subject.http)
        return Seen(
            row if clients == 1 else f"{row} x {clients}",
            waits[len(waits) // 2],
            waits[len(waits) * 99 // 100],
            waits[-1],
            1000 * max(lags_s),
            max(map(peak_mb, subject.pids)),
            _stolen_ms(subject.cpu) - stolen_ms,
            heard,
        )


def attack_with(attack: Callable[[int], str], port: int, clients: int) -> str:
    """Lets clients do the same at once, and returns what the first of them has heard."""
    heard = [""] * clients

    def work(number: int) -> None:
        heard[number] = attack(port)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard[0]


def metric(http: str, name: str) -> float:
    """Returns a metric without labels; -1 where the broker has none of that name."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=_DEADLINE_S) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    return -0.001


def peak_mb(pid: int) -> float:
    """Returns the peak resident memory of a process in MB; see VmHWM in proc(5)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _stolen_ms(cpu: str) -> int:
    """Returns the time that was taken from a CPU, or from all (`cpu`), since boot; see proc(5)."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"{cpu} "):
            return int(line.split()[8]) * 1000 // os.sysconf("SC_CLK_TCK")
    return 0


def main() -> None:
    """Measures the rows that are asked for, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--brokers", type=int, default=1, help="how many each row starts (1)")
    add_json(parser)
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    found = (
        measure(row, ROWS[row], clients, options.brokers)
        for row in options.rows or ROWS
        for clients in ((1, 20) if row in _TWENTY else (1,))
    )
    head = (
        f"{'row':16} {'p50':>8} {'p99':>8} {'longest':>8} {'lag':>8} {'MB':>6} {'stolen':>6}  "
        "heard (times in ms)"
    )
    print_each(found, head, _line, as_json=options.json)


def _line(each: Seen) -> str:
    return (
        f"{each.row:16} {each.p50_ms:8.1f} {each.p99_ms:8.1f} {each.longest_ms:8.1f} "
        f"{each.lag_ms:8.1f} {each.peak_mb:6.0f} {each.stolen_ms:6d}  {each.heard}"
    )


if __name__ == "__main__":
    main()

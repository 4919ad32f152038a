"""What clients can make a broker hold, measured from outside: memory, and what a neighbour feels.

Each row is one kind of client that takes much memory: half requests, answers that nobody reads, records
that unpack to a thousand times their size. It prints the most memory that the broker had over what it had
before, and the answer times of a neighbour, a process of its own, that produces and fetches meanwhile. A
row fails if the memory exceeds `memory.limit.bytes`, or if the neighbour is not served.

    .venv/bin/python benchmarks/hostile/memory.py [name of a row ...]

The broker has an address space of `_ADDRESS_BYTES` at most, so a broker without limits dies of it and takes
nothing else with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import zstandard

from tests.broker import asking
from tests.broker.raw import Pipe, frame, request
from tests.broker.subject import Subject
from tests.oracle import wire
from tidelog.protocol.records.batch import Record, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

MIB = 1 << 20
LIMIT_BYTES = 512 * MIB  # the default of memory.limit.bytes
_ADDRESS_BYTES = 12 << 30
_ROW_S = 120.0  # nothing is waited for longer
ZSTD, LZ4, GZIP = 4, 3, 1


class Felt(NamedTuple):
    """What a row did to the broker and to its neighbour."""

    grown_mib: float
    requests: int
    median_ms: float
    slowest_ms: float
    told: str


def bomb(size: int, codec: int) -> bytes:
    """A batch of one record of zeros."""
    return build([Record(0, 1_000, None, bytes(size))], compression=codec)


def deep_bomb(size: int) -> bytes:
    """A batch that zstd packs as small as it can, with a stated size."""
    packed = build([Record(0, 1_000, None, bytes(size))], compression=ZSTD)
    assert zstandard.frame_content_size(packed[61:]) >= size
    return packed


# --- the rows: each returns what the clients were told ------------------------------------------------


def half_frames(broker: Subject) -> str:
    """30 clients that each claim a request of 99 MB, and send all of it but the end."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(broker.connect()) for _ in range(30)]

        def send(client: wire.Connection) -> None:
            with contextlib.suppress(OSError):
                fields = asking.produce_fields("neighbour", b"")
                client.send(struct.pack(">i", 99 * MIB) + request("Produce", 7, **fields))
                client._socket.settimeout(20)
                for _ in range(98):
                    client._socket.sendall(bytes(MIB))

        senders = [threading.Thread(target=send, args=(each,)) for each in clients]
        for each in senders:
            each.start()
        for each in senders:
            each.join(_ROW_S)
    refused = broker.metric("tidelog_memory_refused_total")
    return f"{refused:.0f} cut off"


def unread_answers(broker: Subject) -> str:
    """60 clients that fetch a batch of 50 MB and do not read the answer."""
    with broker.connect() as connection:
        asking.create(connection, "large", max_message_bytes=str(64 * MIB))
        told = asking.produce(connection, "large", asking.batch_of("x" * (50 * MIB)))
        assert told["error_code"] == 0, told
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            pipe = stack.enter_context(Pipe(broker))
            pipe.push("Fetch", 11, **asking.fetch_fields("large", partition_max_bytes=64 * MIB))
            pipe.push("Fetch", 11, **asking.fetch_fields("large", partition_max_bytes=64 * MIB))
        time.sleep(5)
    return "nobody is refused"


def produced_bombs(size: int, codec: int, **configs: str) -> Callable[[Subject], str]:
    """20 clients that produce a batch which unpacks to `size` bytes."""

    def row(broker: Subject) -> str:
        records = bomb(size, codec)
        with broker.connect() as connection:
            asking.create(connection, "bombs", **configs)
        body = frame(request("Produce", 7, **asking.produce_fields("bombs", records)))
        codes: dict[int, int] = {}
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Pipe(broker)) for _ in range(20)]
            for client in clients:
                client.asked.append(("Produce", 7))
                client.send(body)
            for client in clients:
                got = client.receive()
                code = -1
                if got is not None:
                    answer = wire.decode_answer("Produce", 7, got[4:])
                    code = answer["responses"][0]["partition_responses"][0]["error_code"]
                codes[code] = codes.get(code, 0) + 1
        return f"{len(records)} bytes: codes {codes}"

    return row


def old_fetches(size: int, **configs: str) -> Callable[[Subject], str]:
    """20 fetches of version 2 of a batch, stored before, that unpacks to `size` bytes."""

    def row(broker: Subject) -> str:
        broker.restart({"memory.limit.bytes": 16 << 30})
        with broker.connect() as connection:
            asking.create(connection, "stored", **configs)
            told = asking.produce(connection, "stored", deep_bomb(size))
            assert told["error_code"] == 0, told
        broker.restart({"memory.limit.bytes": LIMIT_BYTES})
        bound(broker)
        with broker.connect() as connection:
            asking.fetch(connection, "stored", 1)
        measured.set()
        felt_by_neighbour.wait(_ROW_S)
        codes: dict[int, int] = {}
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Pipe(broker)) for _ in range(20)]
            for client in clients:
                client.push("Fetch", 2, **asking.fetch_fields("stored", max_wait_ms=100))
            for client in clients:
                got = client.pull()
                code = -1
                if got is not None:
                    code = got[1]["responses"][0]["partitions"][0]["error_code"]
                codes[code] = codes.get(code, 0) + 1
        return f"codes {codes}"

    return row


ROWS: dict[str, Callable[[Subject], str]] = {
    "30 half requests of 99 MB": half_frames,
    "60 that do not read a batch of 50 MB": unread_answers,
    "zstd that unpacks to 900 MB, 20 times": produced_bombs(
        900 * 10**6, ZSTD, max_message_bytes=str(10 * MIB)
    ),
    "lz4 of 500 MB onto a limit of 100 MB, 20 times": produced_bombs(
        500 * 10**6, LZ4, max_message_bytes=str(MIB * 5), max_decompressed_message_bytes="100000000"
    ),
    "a default topic, gzip of 60 MB, 20 times": produced_bombs(60 * 10**6, GZIP),
    "six v2 fetches and more of a stored 900 MB": old_fetches(
        900 * 10**6, max_message_bytes=str(10 * MIB)
    ),
    "20 v2 fetches of a stored 99 MB": old_fetches(99 * 10**6),
    "20 v2 fetches of a stored 40 MB": old_fetches(40 * 10**6),
}
measured = threading.Event()  # set when a row begins that prepares something first
felt_by_neighbour = threading.Event()  # set when the neighbour of such a row is at work


# --- measuring ----------------------------------------------------------------------------------------


def bound(broker: Subject) -> None:
    """Limits the broker's address space."""
    resource.prlimit(broker.pid, resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))


@contextlib.contextmanager
def neighbour(broker: Subject) -> Iterator[list[float]]:
    """Runs a client, a process of its own. After the block, the list holds its answer times in seconds."""
    times: list[float] = []
    spawning = multiprocessing.get_context("spawn")
    ended = spawning.Event()
    receiving, sending = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_ask, args=(broker.bootstrap, ended, sending), daemon=True)
    process.start()
    sending.close()  # so that the end of the process is seen
    try:
        _received(receiving)  # it has had its first answer
        yield times
    finally:
        ended.set()
        times += _received(receiving)
        process.join(_ROW_S)
        if process.is_alive():
            process.kill()


def _received(receiving: Connection) -> list[float]:
    """Returns what the client sends next; nothing if it has ended, or takes too long."""
    with contextlib.suppress(EOFError):
        if receiving.poll(_ROW_S):
            times: list[float] = receiving.recv()
            return times
    return []


def _ask(bootstrap: str, ended: Event, sending: Connection) -> None:
    """Produces and fetches until it is told to end, or gets no answer; sends its answer times then.

    It sends an empty list first, when it has had one answer.
    """
    times: list[float] = []
    try:
        with wire.Connection(bootstrap, timeout_s=_ROW_S) as connection:
            asking.produce(connection, "neighbour", asking.batch_of("x" * 100))
            sending.send([])
            while not ended.is_set():
                began = time.monotonic()
                told = asking.produce(connection, "neighbour", asking.batch_of("x" * 100))
                asking.fetch(connection, "neighbour", told["base_offset"], max_wait_ms=0)
                times.append(time.monotonic() - began)
                ended.wait(0.005)
    finally:
        sending.send(times)


def felt(name: str) -> Felt:
    """Runs one row against a broker of its own."""
    row = ROWS[name]
    with tempfile.TemporaryDirectory() as directory:
        settings = {"memory.limit.bytes": LIMIT_BYTES}
        with Subject(Path(directory) / "data", settings) as broker:
            bound(broker)
            with broker.connect() as connection:
                asking.create(connection, "neighbour")
            broker.metric("tidelog_memory_reserved_bytes")  # HTTP is loaded
            if name.endswith(("MB", "times")) and "stored" in name:
                return _felt_after_restart(broker, row)
            idle = broker.forget_peak()
            with neighbour(broker) as times:
                told = row(broker)
            return _summary(broker, idle, times, told)


def _felt_after_restart(broker: Subject, row: Callable[[Subject], str]) -> Felt:
    measured.clear()
    felt_by_neighbour.clear()
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(row(broker)))
    thread.start()
    assert measured.wait(_ROW_S)
    idle = broker.rss_mb()
    with neighbour(broker) as times:
        felt_by_neighbour.set()
        thread.join(_ROW_S)
    return _summary(broker, idle, times, told[0] if told else "no answer")


def _summary(broker: Subject, idle: float, times: list[float], told: str) -> Felt:
    grown = broker.rss_mb(peak=True) - idle
    ordered = sorted(times) or [float("inf")]
    return Felt(grown, len(times), 1_000 * ordered[len(ordered) // 2], 1_000 * ordered[-1], told)


def main(names: list[str]) -> int:
    """Prints a line for each row; returns 1 if one has failed."""
    failed = False
    for name in names or ROWS:
        row = felt(name)
        is_bad = row.grown_mib > LIMIT_BYTES / MIB or not row.requests
        failed |= is_bad
        print(
            f"{'FAILED' if is_bad else 'ok':6} {name}: {row.grown_mib:.0f} MiB; the neighbour: "
            f"{row.requests} requests, median {row.median_ms:.1f} ms, slowest {row.slowest_ms:.0f} ms; "
            f"{row.told}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

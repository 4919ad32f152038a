"""The time of one request by layer, inside one process without a network.

A node as the server creates it, a connection whose transport drops responses, and the same frame
again and again. The layers are called separately, from the outside in. Each line is the time of a
layer including all below it, and its time without them. `--cprofile` prints a profiler's view
instead. `layers.py` measures Produce v9 and Fetch v11; it needs no Apache Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import prepared

from tidelog.broker.api import fetch, produce, produce_single
from tidelog.broker.boot import Services
from tidelog.broker.clock import SystemClock
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.context import Context
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.network.stream import requests as requests_module
from tidelog.config import load
from tidelog.protocol.api.fetch import API as FETCH
from tidelog.protocol.api.produce import API as PRODUCE
from tidelog.protocol.message import codec, read_request_header, response_header
from tidelog.protocol.records.prepare import AppendPlan, inspect, prepare
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ROUNDS = 200  # short rounds: the best is one that was not interrupted
_FAR = 2**63 - 1
_TRIES = 50
_LISTENER = Listener("PLAINTEXT", "127.0.0.1", 0, ("127.0.0.1", 0))


class Sink(asyncio.Transport):
    """A transport that sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.bytes += len(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.bytes += len(data)

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None


def best_us(work: Callable[[], Any], calls: int) -> float:
    """Calls a function in several rounds; returns the time of one call in the fastest, in microseconds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(calls):
            work()
        best = min(best, time.perf_counter_ns() - began)
    return best / calls / 1000


def _print(title: str, layers: list[tuple[str, int, float]]) -> None:
    """Prints layers with their depth; a layer's own time is its time without its children."""
    print(f"\n{title}")
    for number, (name, depth, total) in enumerate(layers):
        below = 0.0
        for _, its_depth, its_total in layers[number + 1 :]:
            if its_depth <= depth:
                break
            if its_depth == depth + 1:
                below += its_total
        print(f"  {'  ' * depth + name:<48} {total:8.2f} us  of its own {total - below:8.2f}")


async def make_node(directory: Path) -> Services:
    """Returns a node as the server creates it, with one topic `bench` of one partition."""
    config = load(None, {}, {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"})
    clock = SystemClock()
    store = LogStore(
        [directory], default_config=config.topic_defaults, producer_id_expiration_ms=86_400_000
    )
    store.open(clock.now_ms())
    metadata = local_metadata(directory / "tidelog.sqlite")
    await metadata.open()
    node = Services(config, clock, store, metadata, Metrics())
    await node.cluster.start([_LISTENER])
    await node.topics.create("bench", partitions=1)
    return node


async def close_node(node: Services) -> None:
    """Closes what `make_node` opened."""
    node.pools.stop()
    node.store.close()
    await node.metadata.close()


def make_connection(node: Services, sink: Sink | None = None) -> Connection:
    """Returns a connection that drops its responses."""
    connection = Connection(node, _LISTENER)
    connection.connection_made(Sink() if sink is None else sink)
    requests_module._TURN_S = float("inf")
    return connection


def deliver(connection: Connection, data: bytes) -> None:
    """Lets bytes arrive on a connection."""
    left = memoryview(data)
    while left:
        place = connection.get_buffer(len(left))
        size = min(len(place), len(left))
        place[:size] = left[:size]
        connection.buffer_updated(size)
        left = left[size:]


def _delivered(node: Services, whole: bytes) -> list[tuple[str, int, Callable[[], Any]]]:
    """Returns the layer above all others; none for a request that waits for a turn of the loop."""
    sink = Sink()
    connection = make_connection(node, sink)
    for _ in range(_TRIES):
        before = sink.bytes
        deliver(connection, whole)
        if sink.bytes == before:
            return []
    return [("connection.buffer_updated", 0, lambda: deliver(connection, whole))]


def _produce(node: Services, connection: Connection, count: int, size: int, calls: int) -> None:
    records = prepared.batch_v2([b"x" * size] * count, int(time.time() * 1000))
    whole = prepared.produce_v9("bench", 0, records)
    frame = whole[4:]
    header = read_request_header(frame)
    decode = codec(PRODUCE.request, 9).decode
    request, _ = decode(frame, header.body_offset)
    body = request.topic_data[0].partition_data[0].records
    partition = node.partitions.get("bench", 0)

    context = Context(header, connection)
    response = produce.handle(node, request, context)
    encode = codec(PRODUCE.response, 9).encode_parts
    limit = partition.config.max_message_bytes
    produced = inspect(body, produce_version=9, max_message_bytes=limit)
    plan = AppendPlan(0, 2, None, 0, False, -(2**63), _FAR, 0, False, limit)
    now = node.clock.now_ms
    append_now = node.appends.append_now
    layers = [
        *_delivered(node, whole),
        ("dispatch", 1, lambda: dispatch(node, connection, frame)),
        ("read_request_header", 2, lambda: read_request_header(frame)),
        (
            "produce_single.shortcut",
            2,
            lambda: produce_single.shortcut(node, connection, header, frame),
        ),
        ("appends.append_now", 3, lambda: append_now(partition, body, 9)),
        (
            "partition.append",
            4,
            lambda: partition.append(body, now_ms=now(), produce_version=9),
        ),
        ("inspect", 5, lambda: inspect(body, produce_version=9, max_message_bytes=limit)),
        ("prepare", 5, lambda: prepare(body, produced, plan)),
        ("metrics", 2, lambda: node.metrics.request_done(0, 9, 0.0001)),
        ("the ordinary way: decode request", 0, lambda: decode(frame, header.body_offset)),
        ("the ordinary way: produce.handle", 0, lambda: produce.handle(node, request, context)),
        ("the ordinary way: encode response", 0, lambda: encode(response)),
        ("the ordinary way: response header", 0, lambda: response_header(0, 9, 1)),
    ]
    timed = [(name, depth, best_us(work, calls)) for name, depth, work in layers]
    _print(f"Produce v9, one batch of {count} records of {size} B, in microseconds", timed)
    number = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
    buffers = prepare(body, produced, plan).buffers
    print(
        f"  (pwritev alone, to memory: {best_us(lambda: os.pwritev(number, buffers, 0), calls):.2f} us)"
    )
    os.close(number)


def _fetch(node: Services, connection: Connection, max_bytes: int, calls: int) -> None:
    name = b"bench"
    whole = prepared.fetch_v11("bench", 1, 0)
    whole = whole.replace((1 << 20).to_bytes(4, "big"), max_bytes.to_bytes(4, "big"))
    assert name in whole
    frame = whole[4:]
    header = read_request_header(frame)
    decode = codec(FETCH.request, 11).decode
    request, _ = decode(frame, header.body_offset)

    context = Context(header, connection)
    response = fetch.handle(node, request, context)
    encode = codec(FETCH.response, 11).encode_parts
    partition = node.partitions.get("bench", 0)
    upper = partition.high_watermark
    layers = [
        *_delivered(node, whole),
        ("dispatch", 1, lambda: dispatch(node, connection, frame)),
        ("read_request_header", 2, lambda: read_request_header(frame)),
        ("decode request", 2, lambda: decode(frame, header.body_offset)),
        ("fetch.handle", 2, lambda: fetch.handle(node, request, context)),
        (
            "partition.read",
            3,
            lambda: partition.read(0, max_bytes, upper_offset=upper, minimum_one=True),
        ),
        ("encode response", 2, lambda: encode(response)),
    ]
    timed = [(title, depth, best_us(work, calls)) for title, depth, work in layers]
    _print(f"Fetch v11, up to {max_bytes} bytes, in microseconds", timed)


async def _main(directory: Path, options: argparse.Namespace) -> None:
    node = await make_node(directory)
    connection = make_connection(node)
    gc.collect()
    gc.freeze()
    if options.cprofile:
        _profile(connection, options)
    else:
        _produce(node, connection, 1, 100, 50)
        _produce(node, connection, 1000, 100, 20)
        _fetch(node, connection, 1 << 20, 10)
        _fetch(node, connection, 100, 50)
    await close_node(node)


def _profile(connection: Connection, options: argparse.Namespace) -> None:
    whole = prepared.produce_v9(
        "bench", 0, prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
    )
    if options.cprofile == "fetch":
        for _ in range(100):
            deliver(connection, whole)
        whole = prepared.fetch_v11("bench", 1, 0)
    deliver(connection, whole)
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(20_000):
        deliver(connection, whole)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def main() -> None:
    """Runs in a directory that is removed afterwards."""
    parser = argparse.ArgumentParser(description="time per layer of one request")
    parser.add_argument("--cprofile", choices=("produce", "fetch"), help="profile instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with runner:
            runner.run(_main(Path(work), options))


if __name__ == "__main__":
    main()

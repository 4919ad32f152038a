"""The files, functions and lines of one warm request, counted by the interpreter.

    .venv/bin/python benchmarks/inside/walks.py          a line for each walk
    .venv/bin/python benchmarks/inside/walks.py --files  and the files of each, in the order they are entered

The node and the connection are those of `layers.py`. A hop is a call of a Python function of this
repository; compiled kernels and libraries are not counted. Of a request's walks the shortest counts: some
begin a millisecond for `.appendtimes`, or an entry of an index.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import layers
import prepared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import FrameType

_ROOT = str(Path(__file__).resolve().parents[2])
_WARM_UP = 50
_WALKS = 20


class _Client(layers.Sink):
    """Notes that an answer has come."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.answered.set()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        super().writelines(list_of_data)
        self.answered.set()


class Walk(NamedTuple):
    """The counts of one request."""

    files: list[str]
    hops: int
    lines: int


async def walk(work: Callable[[], Awaitable[None]]) -> Walk:
    """Does `work` once and counts its files, hops and lines."""
    files: dict[str, None] = {}
    counts = {"call": 0, "line": 0}

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not name.startswith(_ROOT) or "/benchmarks/" in name or "/.venv/" in name:
            return None
        if event in counts:
            counts[event] += 1
            files.setdefault(name.removeprefix(_ROOT + "/"))
        return trace

    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(None)
    return Walk(list(files), counts["call"], counts["line"])


async def _main(directory: Path, options: argparse.Namespace) -> None:
    node = await layers.make_node(directory)
    sink = _Client()
    connection = layers.make_connection(node, sink)

    async def answered(frame: bytes) -> None:
        """Delivers a request, and lets the loop go on until it is answered."""
        sink.answered.clear()
        layers.deliver(connection, frame)
        await sink.answered.wait()

    record = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
    requests = {
        "produce, one partition": prepared.produce_v9("bench", 0, record),
        "fetch": prepared.fetch_v11("bench", 1, 0),
        "list offsets by time": prepared.list_offsets_v7("bench", 0, 1),
    }
    for name, frame in requests.items():
        for _ in range(_WARM_UP):
            await answered(frame)
        walks = [await walk(partial(answered, frame)) for _ in range(_WALKS)]
        passed = min(walks, key=lambda each: each.lines)
        print(
            f"{name}: {len(passed.files)} files, {passed.hops} hops, {passed.lines} lines of Python"
        )
        if options.files:
            print("".join(f"    {file}\n" for file in passed.files), end="")
    await layers.close_node(node)


def main() -> None:
    """Counts in a directory that is removed afterwards."""
    parser = argparse.ArgumentParser(description="files, hops and lines of one request")
    parser.add_argument("--files", action="store_true", help="list the files of each walk")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as work,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_main(Path(work), options))


if __name__ == "__main__":
    main()

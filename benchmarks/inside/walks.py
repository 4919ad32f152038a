"""The files, functions and lines of one warm request, counted by the interpreter.

    .venv/bin/python benchmarks/inside/walks.py          a line for each walk
    .venv/bin/python benchmarks/inside/walks.py --files  and the files of each, in the order they are entered

The node and the connection are those of `layers.py`. A hop is a call of a Python function of this
repository; compiled kernels and libraries are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import layers
import prepared

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_ROOT = str(Path(__file__).resolve().parents[2])
_WARM_UP = 50


class Walk(NamedTuple):
    """The counts of one request."""

    files: list[str]
    hops: int
    lines: int


def walk(work: Callable[[], Any]) -> Walk:
    """Calls `work` once and counts its files, hops and lines."""
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
        work()
    finally:
        sys.settrace(None)
    return Walk(list(files), counts["call"], counts["line"])


async def _main(directory: Path, options: argparse.Namespace) -> None:
    node = await layers.make_node(directory)
    connection = layers.make_connection(node)
    record = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
    requests = {
        "produce, one partition": prepared.produce_v9("bench", 0, record),
        "fetch": prepared.fetch_v11("bench", 1, 0),
        "list offsets by time": prepared.list_offsets_v7("bench", 0, 1),
    }
    for name, frame in requests.items():
        for _ in range(_WARM_UP):
            layers.deliver(connection, frame)
        passed = walk(lambda frame=frame: layers.deliver(connection, frame))
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

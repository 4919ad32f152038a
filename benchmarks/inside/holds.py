"""How long the event loop is held by the largest request of each API: CPU time between two polls.

    .venv/bin/python benchmarks/inside/holds.py                     every row
    .venv/bin/python benchmarks/inside/holds.py EndTxn --where      some rows, and what held the loop

The broker runs in a thread of this process, on the event loop of asyncio, with real sockets and a disk.
What is measured is the CPU time of that thread from one poll of the sockets to the next, so other
processes and threads do not count. The requests are those of `held_requests.py`. The first hold of a row
is that of the very first request of its API, which imports the handler; the second is the worst of the
later ones.
"""

from __future__ import annotations

import argparse
import collections
import gc
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import held_requests

from tests.broker.inside import Inside
from tests.broker.polls import Polls

_SAMPLE_S = 0.001
_TIMES = 3


class Holds:
    """The longest hold of one event loop since `begin`, in seconds of its thread's CPU."""

    def __init__(self, broker: Inside) -> None:
        """Watches the loop of a broker; to be called on it."""
        self.collecting_s = 0.0
        self.stacks: list[str] = []
        self._samples: list[str] = []
        self._collected_s = self._collection_began_s = 0.0
        self._thread = threading.get_ident()
        self._polls = Polls(broker._loop, time.thread_time)
        self._polls.on_longest, self._polls.on_poll = self._longest, self._poll
        gc.callbacks.append(self._collection)

    @property
    def longest_s(self) -> float:
        """The longest hold."""
        return self._polls.longest

    def begin(self) -> None:
        """Forgets what was measured; to be called on the loop."""
        self.collecting_s, self.stacks = 0.0, []
        self._polls.forget()

    def sample(self) -> None:
        """Notes now and then where the thread of the loop is, for `stacks`; for a thread."""
        while True:
            time.sleep(_SAMPLE_S)
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self._samples.append(_shown(traceback.extract_stack(frame)))

    def _longest(self) -> None:
        self.collecting_s, self.stacks = self._collected_s, self._samples

    def _poll(self) -> None:
        self._samples, self._collected_s = [], 0.0

    def _collection(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_began_s = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collection_began_s


def _shown(stack: traceback.StackSummary) -> str:
    return " < ".join(f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in stack[:-9:-1])


def _start(broker: Inside) -> Holds:
    """Starts what a broker does beside its requests; returns what measures."""
    node = broker.node

    def start() -> Holds:
        node.coordinator.start()
        node.transactions.start()
        return Holds(broker)

    started: Holds = broker.call(start)
    return started


def _row(holds: Holds, broker: Inside, row: held_requests.Row, *, where: bool) -> None:
    """Asks a few times, and prints a line for each request of the row."""
    with broker.connect() as connection:
        found: dict[str, list[tuple[float, float, list[str], str]]] = {}
        for number in range(_TIMES if row.is_repeated else 1):
            for request in row.requests(connection, number):
                gc.collect()
                gc.freeze()  # what made the request is of this process, too
                broker.call(holds.begin)
                answer = connection.ask_raw(*request.encoded, flexible=request.flexible)
                time.sleep(0.05)  # what is done after the answer counts as well
                told = "closed" if answer is None else f"{len(answer):,} B"
                seen = (holds.longest_s, holds.collecting_s, holds.stacks, told)
                found.setdefault(request.name, []).append(seen)
        for name, each in found.items():
            first, worst = each[0], max(each[1:] or each, key=lambda one: one[0])
            print(
                f"{name:42} {first[0] * 1000:7.1f} {worst[0] * 1000:7.1f} ms"
                f"  (collections {worst[1] * 1000:.1f})  {worst[3]}",
                flush=True,
            )
            if where:
                for stack, count in collections.Counter(worst[2]).most_common(6):
                    print(f"    {count:3} {stack}")


def main() -> None:
    """Measures in a directory that is removed afterwards."""
    parser = argparse.ArgumentParser(description="CPU time between two polls, by request")
    parser.add_argument("rows", nargs="*", help="the rows to measure; all by default")
    parser.add_argument("--where", action="store_true", help="show what held the loop longest")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005 if options.where else 0.001)
    with (
        tempfile.TemporaryDirectory() as work,
        Inside(Path(work)) as broker,
        broker.node.collector.governing(),
    ):
        holds = _start(broker)
        with broker.connect() as connection:
            held_requests.TOPICS.make(connection, held_requests.TIMEOUT_MS)
        if options.where:
            threading.Thread(target=holds.sample, daemon=True).start()
        for row in held_requests.ROWS:
            if not options.rows or any(name in options.rows for name in row.names):
                _row(holds, broker, row, where=options.where)


if __name__ == "__main__":
    main()

"""The child process that compacts logs, at low priority; it ends with the broker.

The process reads requests as lines of JSON from standard input and answers on standard output:

    {"directory": ..., "job": ...}     read the keys of a log's dirty section
        {"groups": n, "end_offset": o}     the number of new segments; the log is clean before o
    {"group": i}                       write the i-th of them
        {"cleaned": ...}
    either of them is answered {"error": sentence, "corrupt": bool} if it fails
    and until it is answered, again and again
        {"progress": n}                a number that grows while there is progress
    {"bytes_per_second": r}            at any time: read and write no more than that; not answered

It only writes `.cleaned` files, into the directory whose keys it has read, even if that is renamed
meanwhile. When its input ends, the broker has ended: the process stops at once, and the next start
of a broker removes its files.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from tidelog.protocol.errors import BrokerError
from tidelog.storage.compaction.cleaner import Cleaner, Progress
from tidelog.storage.compaction.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

_NICENESS = 10
_PROGRESS_S = 0.5
_LEAST_WAIT_S = 0.05  # shorter ones are saved up
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answers requests until the input ends."""
    _end_with_parent()
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    throttle = Throttle(time.monotonic, time.sleep)
    threading.Thread(target=_read, args=(sys.stdin, requests, throttle), daemon=True).start()
    answers = _Answers(sys.stdout, throttle)
    threading.Thread(target=answers.send_progress, daemon=True).start()
    cleaner: Cleaner | None = None
    groups: list[Any] = []
    answer: dict[str, Any]
    while True:
        asked = requests.get()
        answers.begin()
        try:
            if "job" in asked:
                os.chdir(
                    asked["directory"]
                )  # stays this directory even if a new topic gets its name
                cleaner = Cleaner(Path(), Job.unpacked(asked["job"]), answers.progress)
                groups = cleaner.groups()
                answer = {"groups": len(groups), "end_offset": cleaner.end_offset}
            else:
                assert cleaner is not None, "a group is asked for before its job"
                answer = {"cleaned": cleaner.clean(groups[asked["group"]]).packed()}
        except (BrokerError, OSError) as error:
            text = error.message if isinstance(error, BrokerError) else str(error)
            answer = {"error": text, "corrupt": isinstance(error, BrokerError)}
        answers.end(answer)


class Throttle(Progress):
    """Waits while more has been read and written than the rate permits. Waiting counts as progress."""

    def __init__(self, monotonic_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        """Begins without a limit."""
        self.bytes_per_second = sys.float_info.max
        self._monotonic_s, self._sleep = monotonic_s, sleep
        self._ahead_bytes, self._counted_s = 0.0, monotonic_s()

    def count(self, size: int) -> None:
        """Counts bytes that were read or written, and waits until the rate permits them."""
        super().count(size)
        self._permit()  # before it is counted: time in which nothing was read is not saved up
        self._ahead_bytes += size
        while (wait_s := self._ahead_bytes / self.bytes_per_second) > _LEAST_WAIT_S:
            self._sleep(min(wait_s, _PROGRESS_S))
            self.steps += 1
            self._permit()

    def _permit(self) -> None:
        """Takes off what the rate has permitted since the last call."""
        now_s = self._monotonic_s()
        permitted = (now_s - self._counted_s) * self.bytes_per_second
        # In this order: no time at an infinite rate is NaN, which is not more than 0.
        self._ahead_bytes, self._counted_s = max(0.0, self._ahead_bytes - permitted), now_s


class _Answers:
    """Writes to the broker: progress while a request is served, then its answer."""

    def __init__(self, target: TextIO, progress: Progress) -> None:
        self.progress = progress
        self._target = target
        self._lock = threading.Lock()  # one line at a time
        self._is_busy = threading.Event()

    def begin(self) -> None:
        """Starts the reports of progress."""
        self._is_busy.set()

    def end(self, answer: dict[str, Any]) -> None:
        """Ends the reports of progress, and writes the answer."""
        self._is_busy.clear()
        self._write(answer)

    def send_progress(self) -> NoReturn:
        """Writes the progress at intervals while a request is served; for a thread of its own."""
        while True:
            self._is_busy.wait()
            self._write({"progress": self.progress.steps})
            time.sleep(_PROGRESS_S)

    def _write(self, line: dict[str, Any]) -> None:
        try:
            with self._lock:
                self._target.write(json.dumps(line) + "\n")
                self._target.flush()
        except BrokenPipeError:
            os._exit(0)  # the broker has been killed; nobody waits for the answer


def _read(source: TextIO, requests: queue.SimpleQueue[dict[str, Any]], throttle: Throttle) -> None:
    for line in source:
        asked = json.loads(line)
        if "bytes_per_second" in asked:
            throttle.bytes_per_second = asked["bytes_per_second"]
        else:
            requests.put(asked)
    os._exit(0)


def _end_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends.

    Where the kernel cannot, the process ends at the end of its input.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

"""The process in which logs are compacted: started by the broker, nice to it, gone with it.

It is told what to do by lines of JSON on its standard input, and answers on its standard output:

    {"directory": ..., "job": ...}     read the keys of a log's dirty part
        {"groups": n, "end_offset": o}     how many segments there will be, and before what all is clean
    {"group": i}                       write the i-th of them
        {"cleaned": ...}
    either of them is answered {"error": sentence, "corrupt": bool} where it fails
    and until it is answered there comes, again and again
        {"progress": n}                a number that grows as long as it gets anywhere

It writes `.cleaned` files and nothing else, into the directory it was told of when it read the keys there,
whatever has that one's name since. When its input ends, so has the broker: it stops at once, wherever
it is, and the next start of a broker removes what it left.
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
from typing import Any, NoReturn, TextIO

from protocol.errors import BrokerError
from storage.compaction.cleaner import Cleaner, Job, Progress

_NICENESS = 10
_TELL_S = 0.5
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the input ends."""
    _die_with_the_broker()
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    answers = _Answers(sys.stdout)
    threading.Thread(target=answers.tell_progress, daemon=True).start()
    cleaner: Cleaner | None = None
    groups: list[Any] = []
    answer: dict[str, Any]
    while True:
        asked = json.loads(lines.get())
        answers.begin()
        try:
            if "job" in asked:
                os.chdir(asked["directory"])  # a topic made anew under its name has another
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


class _Answers:
    """What goes to the broker: a number now and then while something is done, then what came of it."""

    def __init__(self, target: TextIO) -> None:
        self.progress = Progress()
        self._target = target
        self._lock = threading.Lock()  # whole lines
        self._is_busy = threading.Event()

    def begin(self) -> None:
        """Something has been asked for."""
        self._is_busy.set()

    def end(self, answer: dict[str, Any]) -> None:
        """It is done."""
        self._is_busy.clear()
        self._write(answer)

    def tell_progress(self) -> NoReturn:
        """Say how far it is while anything is done; for a thread of its own."""
        while True:
            self._is_busy.wait()
            self._write({"progress": self.progress.steps})
            time.sleep(_TELL_S)

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._target.write(json.dumps(line) + "\n")
            self._target.flush()


def _read(source: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in source:
        lines.put(line)
    os._exit(0)


def _die_with_the_broker() -> None:
    """Have the system end this process when its parent ends; where it cannot, the input's end does it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

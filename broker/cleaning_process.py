"""The process in which logs are compacted: started by the broker, nice to it, gone with it.

It is told what to do by lines of JSON on its standard input, and answers on its standard output:

    {"directory": ..., "job": ...}     read the keys of a log's dirty part
        {"groups": n, "end_offset": o}     how many segments there will be, and before what all is clean
    {"group": i}                       write the i-th of them
        {"cleaned": ...}
    either of them is answered {"error": sentence, "corrupt": bool} where it fails

It writes `.cleaned` files and nothing else. When its input ends, so has the broker: it stops at once,
wherever it is, and the next start of a broker removes what it left.
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
from pathlib import Path
from typing import Any, TextIO

from protocol.errors import BrokerError
from storage.cleaner import Cleaner, Job

_NICENESS = 10
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the input ends."""
    _die_with_the_broker()
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    cleaner: Cleaner | None = None
    groups: list[Any] = []
    answer: dict[str, Any]
    while True:
        asked = json.loads(lines.get())
        try:
            if "job" in asked:
                cleaner = Cleaner(Path(asked["directory"]), Job.unpacked(asked["job"]))
                groups = cleaner.groups()
                answer = {"groups": len(groups), "end_offset": cleaner.end_offset}
            else:
                assert cleaner is not None, "a group is asked for before its job"
                answer = {"cleaned": cleaner.clean(groups[asked["group"]]).packed()}
        except (BrokerError, OSError) as error:
            text = error.message if isinstance(error, BrokerError) else str(error)
            answer = {"error": text, "corrupt": isinstance(error, BrokerError)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _read(source: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in source:
        lines.put(line)
    os._exit(0)


def _die_with_the_broker() -> None:
    """Have the system end this process when its parent ends; where it cannot, the input's end does it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

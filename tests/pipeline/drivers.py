"""Jobs in processes of their own that stand still in the middle of their writing.

Whoever watches from outside may be late: a job of some seconds is over by then. So one told of here stops
itself (SIGSTOP) once it has sent so many records, some of them still without an answer, or when for the
first time all that it has sent is answered, and nothing says yet where it stands. Then it waits to be killed,
or stopped and continued.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tests.broker.subject import eventually

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120
_JOB = """
import math, os, signal, sys
from tidelog.cli.parser import main

from tidelog.client.appender import Appender
left, send, flush = float(sys.argv.pop(1)), Appender.send, Appender.flush

def stop():
    global left
    left = math.inf
    os.kill(os.getpid(), signal.SIGSTOP)

def counted(self, batch):
    global left
    answered = send(self, batch)
    left -= batch.end - batch.start
    if left <= 0:
        stop()
    return answered

def answered(self):
    yield from flush(self)
    stop()

if left < math.inf:
    Appender.send = counted
else:
    Appender.flush = answered
sys.exit(main(["pipeline", *sys.argv[1:]]))
"""


@contextlib.contextmanager
def standing_still(arguments, *, after, through=(), **how):
    """A job that has sent `after` records and stands still; `through` is the command that starts it.

    After infinity, it is one whose first round of records is answered.
    It is killed at the end if it is still there.
    """
    command = [*through, sys.executable, "-c", _JOB, str(after), *arguments]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, **{**quiet, **how}) as job:
        try:
            eventually(lambda: _stands(job.pid), DEADLINE_S, "a job in the middle of its writing")
            yield job
        finally:
            job.kill()


def _stands(pid):
    """Whether a process stands still. One that has ended did so too early; Popen is left to be told of it."""
    look = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    seen = os.waitid(os.P_PID, pid, look)
    assert seen is None or seen.si_code == os.CLD_STOPPED, f"it ended: {seen}"
    return seen is not None

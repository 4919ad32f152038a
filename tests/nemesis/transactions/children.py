"""Workers that are processes of librdkafka: started again when they end, killed or paused at a step.

While one is paused another with the same transactional id takes its place; then it goes on, as a zombie does,
and ends.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.nemesis.history import Ended, Failed, Place
from tests.nemesis.transactions.child import EVENTS, STEPS
from tests.nemesis.transactions.raw import OF_PROCESSES, TIMEOUT_MS, How
from tests.nemesis.transactions.workers import ABORTS, PATIENCE_S, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.nemesis.history import History
    from tests.nemesis.transactions.raw import Interruption
    from tests.nemesis.transactions.workers import Copying

_ROOT = Path(__file__).resolve().parents[3]
_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from tests.nemesis.transactions.child import main; sys.exit(main())"
)
_LATEST_S = 0.01
_LOOK_S = 0.05
_STOPPED_S = 3.5  # a session is 2 s


class ChildWorker(Worker):
    """A worker whose incarnations are processes."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        directory: Path,
        *,
        copying: Copying | None = None,
    ) -> None:
        """Appends to `places`, or copies; the directory gets what processes write to standard error."""
        super().__init__(name, history, bootstrap, places, copying)
        self.hung = 0  # how many incarnations were killed because they went on no more
        self._step = ""  # the last one that was told
        self.steps = [each for each in STEPS if copying or each != "offsets"]
        self.hows = OF_PROCESSES
        self._errors = directory / f"{name}.err"
        self._given: dict[str, Any] = {
            "id": name,
            "bootstrap": bootstrap,
            "timeout_ms": TIMEOUT_MS,
            "aborts": ABORTS,
        }
        if copying is None:
            self._given["places"] = list(places)
        else:
            self._given |= {"group": copying.group, "into": copying.into}
            self._given["topic"] = copying.places[0].topic
        self.processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts an incarnation."""
        self.incarnations += 1
        given = {
            **self._given,
            "name": f"{self.name}/{self.incarnations}",
            "seed": self.random.getrandbits(32),
        }
        with self._errors.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(_ROOT), json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.processes.append(process)
        thread = threading.Thread(target=self._follow, args=[process], daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self, *, abandon: bool = False) -> None:
        """Ends after the transaction that is under way, in order unless that is abandoned."""
        self.is_over.set()
        for process in list(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                close(process)
                if abandon:
                    process.kill()
        for thread in list(self._threads):
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.history.add(Failed(self.name, "the process does not end"))
        for process in self.processes:
            process.kill()
            process.wait()
        if "Traceback" in self._errors.read_text(errors="replace"):
            self.history.add(Failed(self.name, self._errors.read_text(errors="replace")[-2000:]))

    @property
    def is_one(self) -> bool:
        """Whether only one incarnation lives."""
        return sum(process.poll() is None for process in self.processes) == 1

    def interrupt(self, due: Interruption) -> None:
        """Interrupts it at the next step of that name; before `init` it ends by itself."""
        super().interrupt(due)
        if due.step == STEPS[0]:
            self.processes[-1].kill()

    def kill_hung(self) -> str:
        """Kills the process, which another one follows; returns what it was about to do last."""
        self.hung += 1
        for process in list(self.processes):
            if process.poll() is None:
                process.kill()
        return self._step

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        """Adds what a process tells to the history, and interrupts it; starts another when it ends."""
        assert process.stdout is not None
        is_replaced = False
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed as it wrote
            kind, *fields = json.loads(line)
            if kind == "step":
                self._step = fields[0]
                due = self.interruption
                if due is not None and due.step == fields[0]:
                    self.interruption = None
                    is_replaced = self._interrupt(process, due)
                if fields[0] == "decide":
                    go_on(process)
            elif kind in EVENTS:
                self._told(kind, fields)
        process.stdout.close()
        process.wait()
        close(process)
        if not (is_replaced or self.is_over.is_set()):
            self.start()

    def _told(self, name: str, fields: list[Any]) -> None:
        kind = EVENTS[name]
        for at, field in enumerate(kind._fields):
            if field == "place":
                fields[at] = Place(*fields[at])
            elif field == "value":
                fields[at] = fields[at].encode()
        event = kind(*fields)
        self.history.add(event)
        if isinstance(event, Ended):
            self.committed += event.is_commit

    def _interrupt(self, process: subprocess.Popen[bytes], due: Interruption) -> bool:
        """Kills or pauses a process a moment after the step; returns whether another was started."""
        if due.step != "decide":  # there it waits
            time.sleep(self.random.random() * _LATEST_S)
        self.struck += 1
        if due.how is How.KILLED_AFTER:
            process.kill()
            return False
        process.send_signal(signal.SIGSTOP)
        if due.how is How.STOPPED:
            self.is_over.wait(_STOPPED_S)
            process.send_signal(signal.SIGCONT)
            return False
        threading.Thread(target=self._go_on, args=[process], daemon=True).start()
        return True

    def _go_on(self, process: subprocess.Popen[bytes]) -> None:
        """Lets a paused process go on when another has committed, and end."""
        committed = self.committed
        self.start()
        deadline_s = time.monotonic() + PATIENCE_S
        while self.committed == committed and time.monotonic() < deadline_s:
            if self.is_over.wait(_LOOK_S):
                break
        process.send_signal(signal.SIGCONT)
        close(process)


def go_on(process: subprocess.Popen[bytes]) -> None:
    """Lets a process decide on the end of its transaction, if it lives."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(b"\n")
        process.stdin.flush()


def close(process: subprocess.Popen[bytes]) -> None:
    """Ends the standard input of a process, which then ends in order."""
    assert process.stdin is not None
    if not process.stdin.closed:
        with contextlib.suppress(OSError):  # it has ended before it read all
            process.stdin.close()

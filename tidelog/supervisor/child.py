"""One broker as a process of the supervisor: its start, its output, and its end.

Each line of its log is passed on with the broker's id before it, `broker=2 ts=... level=...`, so
that it stays a line of `key=value` pairs. Its ready line is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from tidelog.kept_ports import KeptPorts
from tidelog.serving import addresses_of, ready_values, serve_command, with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO

FIRST_S, LONGEST_S = 0.25, 30.0
HEALTHY_S = 60.0
_CHUNK_BYTES = 65_536


class Backoff:
    """How long a broker that has died stays down: twice as long with each death, up to a limit.

    A broker that was up for a minute begins with the shortest delay again.
    """

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def delay_s(self, up_s: float) -> float:
        """Returns the delay after a death; `up_s` says how long the broker had been up."""
        if up_s >= HEALTHY_S:
            self._next_s = FIRST_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_S)
        return delay_s


class Output:
    """One stream of a process, cut into lines."""

    def __init__(self, stream: IO[bytes], on_lines: Callable[[list[bytes]], None]) -> None:
        """`on_lines` is given whole lines, without their ends."""
        self._stream = stream
        self._on_lines = on_lines
        self._rest = b""
        os.set_blocking(stream.fileno(), False)

    def fileno(self) -> int:
        """Returns the descriptor, for a selector."""
        return self._stream.fileno()

    def read(self) -> bool:
        """Passes on what can be read now; returns whether the stream is still open."""
        while True:
            try:
                chunk = os.read(self._stream.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                return True
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if not chunk and self._rest:
                lines, self._rest = [self._rest], b""
            if lines:
                self._on_lines(lines)
            if not chunk:
                return False

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()


class Child:
    """One broker: its process, if it runs, and what is needed to start it again.

    `ready` has the values of the ready line of the running process; it is empty before.
    """

    def __init__(
        self,
        broker: int,
        options: Callable[[], Sequence[str]],
        settings: Mapping[str, str],
        write_log: Callable[[bytes], None],
    ) -> None:
        """`options` returns those that are not settings; `write_log` takes lines of the joined log."""
        self.broker = broker
        self.starts = 0
        self.status: int | None = None  # of the last process that ended
        self.kill_at_s: float | None = None  # it is being restarted, and killed if it does not end
        self.ready: dict[str, str] = {}
        self.backoff = Backoff()
        self.started_s = 0.0
        self.restart_at_s: float | None = None
        self._options = options
        self._settings = dict(settings)
        self._write_log = write_log
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = KeptPorts()

    @property
    def pid(self) -> int | None:
        """The id of the process that runs; None if none does."""
        return None if self._process is None else self._process.pid

    def start(self, now_s: float) -> tuple[Output, Output]:
        """Starts the process; returns its standard output and its log, which are to be read."""
        self._process = process = subprocess.Popen(  # noqa: S603 - our own command
            serve_command(self._options()),
            env=with_settings(os.environ, self._settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the supervisor, which stops them in order
        )
        self.started_s, self.restart_at_s, self.kill_at_s = now_s, None, None
        self.starts += 1
        assert process.stdout is not None
        assert process.stderr is not None
        return Output(process.stdout, self._said), Output(process.stderr, self._logged)

    def ended(self) -> int | None:
        """Returns the exit status of a process that has ended since it was asked; None otherwise.

        The status is minus the number of the signal that ended it. The ports are kept from then on.
        """
        process = self._process
        if process is None or process.poll() is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        if self.ready:
            named = (self.ready.get(name) for name in ("http", "control"))
            self._ports.keep((*addresses_of(self.ready["listeners"]), *filter(None, named)))
        self._process, self.ready, self.status = None, {}, process.returncode
        return process.returncode

    def stop(self) -> None:
        """Asks the process to stop in order, also a paused one."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _said(self, lines: list[bytes]) -> None:
        """Takes the ready line, and fixes the ports for later starts; logs any other line."""
        for line in lines:
            if not line.startswith(b"ready "):
                self._logged([line])
                continue
            self.ready = ready_values(line.decode("utf-8", "replace"))
            self._ports.release()
            self._settings["listeners"] = self.ready["listeners"]
            for said, name in (("http", "http.listener"), ("control", "control.listener")):
                if said in self.ready:
                    self._settings[name] = self.ready[said]

    def _logged(self, lines: list[bytes]) -> None:
        mark = b"broker=%d " % self.broker
        self._write_log(b"".join(mark + line + b"\n" for line in lines))

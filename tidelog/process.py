"""Starts brokers as processes of their own, and stops them.

A BrokerProcess listens on ports that were free at its start, and keeps its logs in a given
directory. It stops when this process ends, in whatever way: it watches a pipe that only this
process holds open. It ignores KAFKA_* environment variables, which belong to the program under
test.

With clock="manual" the broker's clock stands still until the test moves it. With faults=True
(implied by a manual clock) the test can add faults. `.clock`, `.faults` and `.sweep()` are those of
tidelog.control. After a restart the clock continues from its last time; faults are gone.

pytest shows what these calls raise where the test calls them, without the frames of this file.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import textwrap
import time
import warnings
from typing import TYPE_CHECKING, Any

from tidelog.control import Clock, ControlClient, Faults
from tidelog.kept_ports import KeptPorts
from tidelog.serving import addresses_of, ready_values, serve_command, with_settings
from tidelog.topics import AS_THE_BROKER_SAYS, as_text, create_missing, create_topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

__tracebackhide__ = True

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 60.0

_SHOWN_LINES = 20
_LONGEST_END = 65_536
_LONGEST_READY_LINE = 65_536
_PAUSES = 20
_PAUSE_AGAIN_S = 0.02
_LOCKED_S = 0.5  # longer than others that are not frozen hold the lock


class BrokerFailed(RuntimeError):
    """A broker did not start, or did not stop; the text ends with its last log lines."""


class BrokerProcess:
    """One broker process, which runs from the construction on.

    `bootstrap` is the value for bootstrap.servers (host:port), `http` the host:port of metrics and
    health. Both stay the same through restarts. Raises BrokerFailed if it is not ready in time.
    """

    def __init__(
        self,
        log_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        clock: str | None = None,
        faults: bool = False,
        ready_within_s: float = READY_WITHIN_S,
        topics: Mapping[str, int] | None = None,
    ) -> None:
        """Starts the broker; `clock` and `faults` are short for the settings they need.

        Logs are in `log_dir`, unless `log.dirs` is one of the settings. `topics` are created with so
        many partitions each, unless they exist.
        """
        self.log_dir = log_dir
        self.log_file = log_dir.with_name(log_dir.name + ".log")
        self.settings = {name: as_text(value) for name, value in (settings or {}).items()}
        self.ready_within_s = ready_within_s
        self.cluster_id = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = KeptPorts()
        self._log_dirs = self.settings.pop("log.dirs", str(log_dir))
        self._listeners = self.settings.pop("listeners", "PLAINTEXT://127.0.0.1:0")
        self.http = self.settings.pop("http.listener", "127.0.0.1:0")
        if clock is not None:
            self.settings["clock"] = clock
        self.control = self.settings.pop("control.listener", "127.0.0.1:0" if faults else "")
        self.bootstrap = ""
        self._client: ControlClient | None = None
        self._clock_rate = 0.0
        # The last time of the manual clock, and when it was read.
        self._clock_at = (int(time.time() * 1000), time.monotonic())
        self._start()
        if topics:
            try:
                create_missing(self.bootstrap, topics)
            except BaseException:
                self.kill()
                raise

    @property
    def pid(self) -> int:
        """The process id of the running broker. Raises BrokerFailed if it does not run."""
        if self._process is None:
            raise BrokerFailed("the broker has been stopped")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    @property
    def clock(self) -> Clock:
        """The broker's clock. Raises BrokerFailed if it is the machine's clock."""
        if self.settings.get("clock") != "manual":
            raise BrokerFailed('the broker uses the machine\'s clock: start it with clock="manual"')
        return Clock(self._asked(), self._store_clock)

    @property
    def faults(self) -> Faults:
        """The broker's faults. Raises BrokerFailed if it was started without support for faults."""
        return Faults(self._asked())

    def sweep(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Applies retention now, to one topic or to all.

        Returns what was deleted since the last sweep, and why. Each deletion is a dict: topic,
        partition, base_offset, end_offset, size, policy, largest_time_ms, last_append_time_ms,
        limit, and more. Raises BrokerFailed as `faults` does. Warns if earlier rounds deleted more
        than the broker remembers.
        """
        answer = self._asked().ask("POST", "/v1/sweep", {"topic": topic})
        if answer.get("forgotten"):
            warnings.warn(
                f"{answer['forgotten']} deletions of earlier rounds are no longer known: sweep more often",
                RuntimeWarning,
                stacklevel=2,
            )
        return list(answer["deleted"])

    def compact(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Compacts the logs of one topic or of all now, at any dirty ratio, and applies retention.

        Returns a dict for each compacted log. Raises BrokerFailed if a log could not be compacted,
        and as `faults` does.
        """
        answer = self._asked().ask("POST", "/v1/sweep", {"topic": topic, "compact": True})
        if answer["failed"]:
            raise BrokerFailed(f"compaction failed: {answer['failed']}")
        return list(answer["compacted"])

    def create_topic(
        self,
        name: str,
        partitions: int = AS_THE_BROKER_SAYS,
        settings: Mapping[str, object] | None = None,
    ) -> str:
        """Creates a topic and returns its name when clients can use it.

        Raises tidelog.errors.RequestError, and ClusterUnreachable if the broker does not run.
        """
        create_topic(self.bootstrap, name, partitions, settings)
        return name

    def cut_off(self, broker: int | None = None) -> None:
        """Cuts it off from another broker of its cluster, or without one from the metadata.

        Bytes between two brokers pass in neither direction if both are told; see BrokerCluster.cut.
        Raises ControlError for a broker that is not there, and BrokerFailed as `faults` does.
        """
        asked = {"metadata": True} if broker is None else {"broker": broker}
        self._asked().ask("POST", "/v1/cuts", asked)

    def heal(self, broker: int | None = None) -> None:
        """Heals the cut from one broker, or without one all cuts. Raises as `cut_off` does."""
        self._asked().ask("DELETE", "/v1/cuts", {"broker": broker})

    def _asked(self) -> ControlClient:
        if self._client is None:
            if not self.control:
                raise BrokerFailed(
                    'the broker has no control listener: start it with clock="manual" or faults=True'
                )
            self._client = ControlClient(self.control)
        return self._client

    def _store_clock(self, answer: Mapping[str, Any]) -> None:
        """Stores the time of the clock for a restart."""
        self._clock_rate = answer["rate"]
        self._clock_at = (answer["now_ms"], time.monotonic())

    def _clock_now_ms(self) -> int:
        now_ms, at_s = self._clock_at
        return now_ms + int((time.monotonic() - at_s) * self._clock_rate * 1000)

    def stop(self, *, within_s: float = STOP_WITHIN_S) -> int:
        """Stops it with SIGTERM and returns its exit status; does nothing if it is stopped.

        If it does not stop in time, it is killed, and BrokerFailed is raised.
        """
        process = self._process
        if process is None:
            return 0
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a paused process would not notice SIGTERM
        try:
            status = process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the broker did not stop within {within_s:g} s") from None
        self._forget()
        return status

    def kill(self) -> None:
        """Ends it with SIGKILL, like a crash of the process; acknowledged records must survive."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self, settings: Mapping[str, object] | None = None) -> None:
        """Starts it again on the same ports and logs; stops it first if it runs.

        `settings` override the earlier ones; the value None removes a setting.
        """
        self.stop()
        for name, value in (settings or {}).items():
            if value is None:
                self.settings.pop(name, None)
            else:
                self.settings[name] = as_text(value)
        self._start()

    def pause(self) -> None:
        """Freezes the process (SIGSTOP), like a broker that hangs.

        One of several brokers is frozen while it does not use the metadata file, for whose lock the
        others would wait as long as it is frozen.
        """
        os.kill(self.pid, signal.SIGSTOP)
        kind, _, store = self.settings.get("metadata.store", "").partition(":")
        if kind != "sqlite":
            return
        for _ in range(_PAUSES):
            if _is_free(store):
                return
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(_PAUSE_AGAIN_S)
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continues the process after pause()."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Returns everything it has logged so far, including earlier starts."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def log_end(self, lines: int) -> str:
        """Returns the last lines that it has logged."""
        with self.log_file.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _LONGEST_END, 0))
            end = log.read().decode("utf-8", "replace")
        return "\n".join(end.splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._ports.release()

    def _start(self) -> None:
        command = serve_command(["--listeners", self._listeners])
        command += ["--http", self.http, "--log-dirs", self._log_dirs]
        settings, start_ms = dict(self.settings), None
        if self.settings.get("clock") == "manual":
            start_ms = self.settings.pop("clock.start.ms", str(self._clock_now_ms()))
            settings["clock.start.ms"] = start_ms
            self.control = self.control or "127.0.0.1:0"
        if self.control:
            command += ["--control", self.control]
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")
        }
        self.log_dir.mkdir(0o700, parents=True, exist_ok=True)
        with open(self.log_file, "ab", opener=_opened_for_owner) as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=with_settings(environ, settings),
                start_new_session=True,  # a Ctrl-C is for this process alone
            )
        answer = self._ready_values()
        self._ports.release()
        self._listeners = answer["listeners"]
        self.bootstrap = ",".join(addresses_of(self._listeners))
        self.http = answer.get("http", self.http)
        self.control = answer.get("control", self.control)
        if start_ms is not None:
            self._clock_at = (int(start_ms), time.monotonic())
            if self._clock_rate:
                self._let_clock_run()
        self.cluster_id = answer.get("cluster", "")

    def _let_clock_run(self) -> None:
        """Lets the manual clock run as it did before a restart. Raises BrokerFailed."""
        try:
            self.clock.run(self._clock_rate)
        except OSError as error:
            said = f"the broker did not take the rate of its clock ({error})"
            raise self._failed(said) from None

    def _ready_values(self) -> dict[str, str]:
        """Waits for the line that says that clients can connect; returns its values."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline_s = time.monotonic() + self.ready_within_s
        read = b""
        while b"\n" not in read:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                raise self._failed(f"the broker was not ready within {self.ready_within_s:g} s")
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk or len(read) > _LONGEST_READY_LINE:
                process.kill()
                raise self._failed(f"the broker ended with status {process.wait()}")
            read += chunk
        try:
            return ready_values(read.split(b"\n", 1)[0].decode("utf-8", "replace"))
        except ValueError as error:
            raise self._failed(str(error)) from None

    def _forget(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self.bootstrap:
            self._ports.keep(filter(None, (*self.bootstrap.split(","), self.http, self.control)))
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _failed(self, sentence: str) -> BrokerFailed:
        """Ends it, and returns an error with a sentence and its last log lines."""
        self.kill()
        shown = textwrap.indent(self.log_end(_SHOWN_LINES) or "(nothing)", "    ")
        return BrokerFailed(f"{sentence}; its last log lines:\n{shown}")


def _opened_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _is_free(metadata_file: str) -> bool:
    """Returns whether no process reads or writes a metadata file, by taking its lock for a moment."""
    import sqlite3  # only clusters need it

    with contextlib.closing(sqlite3.connect(metadata_file, timeout=_LOCKED_S)) as store:
        try:
            store.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return False
        store.rollback()
    return True

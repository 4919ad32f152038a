"""Runs several brokers until SIGTERM or SIGINT: starts them, watches them, and stops them.

When all brokers are ready, one line goes to standard output,
`ready brokers=3 bootstrap=H:P,H:P,H:P http=... cluster=... pids=1,2,3`. A broker that ends before that ends
them all, because something is wrong with the settings or the machine. One that dies later is started
again, after a delay that grows, on the ports it had. One that is stopped while all others wait for it is
killed, once its lease is over.

Through its socket (`control.py`) the supervisor says which brokers run, and restarts one in order: the
broker hands over what it leads, ends, and is started again at once, with its settings read anew.

A signal stops the brokers one after another, from the last one on. Each hands over what it leads to
those that still run. A second signal stops all that are left at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.serving import addresses_of
from tidelog.supervisor.child import Child, Output
from tidelog.supervisor.control import Caller, ControlSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.supervisor.stalls import Stalls

log = logging.getLogger("tidelog.supervisor")

STOP_WITHIN_S = 60.0
_FAILED = 1
_IN_ORDER = {0, -signal.SIGTERM}  # one that has just started dies of the signal


class Supervisor:
    """The brokers of one `tidelog serve --brokers N`."""

    def __init__(
        self,
        options: Callable[[int], Sequence[str]],
        settings: Iterable[Mapping[str, str]],
        stalls: Stalls,
        *,
        restarts: bool,
        directory: Path,
        check: Callable[[int], object],
        write_log: Callable[[bytes], None],
    ) -> None:
        """`settings` are those of each broker, from broker 1 on.

        `options` returns the options of a broker that are not settings. `stalls` finds those that
        have to be ended. The socket lies in `directory`. Before a restart, `check` reads the
        settings of a broker; it raises ValueError, with a sentence, if they are wrong. `write_log`
        takes what the brokers log, and keeps nobody waiting.
        """
        self._children = [
            Child(broker, partial(options, broker), own, write_log)
            for broker, own in enumerate(settings, 1)
        ]
        self._stalls = stalls
        self._restarts, self._directory, self._check = restarts, directory, check
        self._control: ControlSocket | None = None
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._was_ready = False

    def run(self) -> int:
        """Returns the exit status: 0 after a stop in order, 1 if a broker failed to start or stop."""
        with self._signals_noticed():
            for child in self._children:
                self._start(child)
            while not self._signals:
                self._turn(self._idle_s())
                if not self._look():
                    self._stop(at_once=True)
                    return _FAILED
            return self._stop(at_once=False)

    # -- while they run -------------------------------------------------------------------------

    def _look(self) -> bool:
        """Restarts what has died and says what is ready; returns whether to go on."""
        now_s = time.monotonic()
        self._end_stalls(now_s)
        for child in self._children:
            status = child.ended()
            if status is not None:
                if not self._was_ready:
                    log.critical("a broker did not start", extra=_how(child, status))
                    return False
                if child.kill_at_s is None:
                    self._bury(child, status, now_s)
                else:
                    log.info("a broker is started again", extra=_how(child, status))
                    child.restart_at_s = now_s
            elif child.kill_at_s is not None and now_s >= child.kill_at_s:
                log.error("a broker does not stop: killed", extra={"broker": child.broker})
                child.kill()
                child.kill_at_s = now_s + STOP_WITHIN_S
            if child.restart_at_s is not None and now_s >= child.restart_at_s:
                self._start(child)
        if not self._was_ready and all(child.ready for child in self._children):
            self._was_ready = True
            self._listen()
            _say_ready(self._children)
        return True

    def _bury(self, child: Child, status: int, now_s: float) -> None:
        """Notes a death after the first `ready`, and when the broker is started again."""
        if not self._restarts:
            log.error("a broker has ended, and stays down", extra=_how(child, status))
            return
        delay_s = child.backoff.delay_s(now_s - child.started_s)
        child.restart_at_s = now_s + delay_s
        log.error("a broker has ended", extra={**_how(child, status), "starts_again_in_s": delay_s})

    def _end_stalls(self, now_s: float) -> None:
        """Kills brokers that are stopped and keep the others from writing the metadata."""
        children = {child.pid: child for child in self._children if child.pid is not None}
        for pid in self._stalls.look(children, now_s):
            log.error(
                "a broker is stopped and holds the lock of the metadata, for which all others wait: killed",
                extra={"broker": children[pid].broker, "pid": pid},
            )
            children[pid].kill()

    def _idle_s(self) -> float | None:
        """Returns in how many seconds there is something to do without an event; None if never."""
        times = [self._stalls.next_look_s()]
        for child in self._children:
            times += (child.restart_at_s, child.kill_at_s)
        known = [each for each in times if each is not None]
        return max(min(known) - time.monotonic(), 0) if known else None

    def _start(self, child: Child) -> None:
        """Starts a broker. Raises OSError if the machine refuses a process before `ready`."""
        try:
            outputs = child.start(time.monotonic())
        except OSError as error:
            if not self._was_ready:
                raise
            child.restart_at_s = time.monotonic() + child.backoff.delay_s(0)
            log.error("a broker cannot be started: %s", error, extra={"broker": child.broker})
            return
        for output in outputs:
            self._selector.register(output, selectors.EVENT_READ)

    def _turn(self, timeout_s: float | None) -> None:
        """Waits for output or a signal, and passes the output on."""
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.fileobj, Output) and not key.fileobj.read():
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
            elif isinstance(key.fileobj, int):
                os.read(key.fileobj, 4096)  # it only wakes the selector
            elif isinstance(key.fileobj, ControlSocket):
                caller = key.fileobj.accept()
                if caller is not None:
                    self._selector.register(caller, selectors.EVENT_READ)
            elif isinstance(key.fileobj, Caller) and not key.fileobj.serve(self._answer):
                self._selector.unregister(key.fileobj)
                key.fileobj.close()

    # -- what callers ask -----------------------------------------------------------------------

    def _listen(self) -> None:
        """Opens the socket: the directory is ours now, because the brokers have its locks."""
        try:
            self._control = ControlSocket(self._directory)
        except OSError as error:
            log.error("nobody can ask for a restart: %s", error)
            return
        self._selector.register(self._control, selectors.EVENT_READ)

    def _answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers one question."""
        if self._signals:
            return {"error": "the brokers are being stopped"}
        if asked.get("ask") == "brokers":
            return {"brokers": [_shown(child) for child in self._children]}
        if asked.get("ask") == "restart":
            return self._restart(asked.get("broker"))
        return {"error": "this supervisor knows the questions brokers and restart"}

    def _restart(self, broker: object) -> Mapping[str, Any]:
        """Begins to restart a broker, unless its settings are wrong."""
        child = next((each for each in self._children if each.broker == broker), None)
        if child is None:
            return {"error": f"there is no broker {broker}"}
        try:
            self._check(child.broker)
        except ValueError as error:
            return {"error": f"broker {broker} would not start: {error}"}
        now_s = time.monotonic()
        log.info("restarting a broker", extra={"broker": child.broker, "pid": child.pid})
        if child.pid is None:
            child.restart_at_s = now_s
        else:
            child.kill_at_s = now_s + STOP_WITHIN_S
            child.stop()
        return {"restarting": broker}

    # -- the end --------------------------------------------------------------------------------

    def _stop(self, *, at_once: bool) -> int:
        """Stops what runs, one after another unless all have to go; returns the exit status."""
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
        seen = self._signals
        statuses: list[int] = []
        while running := [child for child in reversed(self._children) if child.pid is not None]:
            at_once = at_once or self._signals > seen
            statuses += self._end(running if at_once else running[:1], None if at_once else seen)
        while any(isinstance(key.fileobj, Output) for key, _ in self._selector.select(0)):
            self._turn(0)
        return 0 if _IN_ORDER.issuperset(statuses) else _FAILED

    def _end(self, children: list[Child], seen: int | None) -> Iterator[int]:
        """Stops some brokers, kills those that do not stop, and yields their exit statuses.

        It returns early if there are more signals than those `seen`.
        """
        for child in children:
            log.info("stopping a broker", extra={"broker": child.broker, "pid": child.pid})
            child.stop()
        deadline_s = time.monotonic() + STOP_WITHIN_S
        while any(child.pid is not None for child in children):
            self._turn(max(deadline_s - time.monotonic(), 0))
            for child in children:
                status = child.ended()
                if status is not None:
                    log.info("a broker has stopped", extra=_how(child, status))
                    yield status
            if seen is not None and self._signals > seen:
                return
            if time.monotonic() >= deadline_s:
                deadline_s += STOP_WITHIN_S
                for child in children:
                    if child.pid is not None:
                        log.error("a broker does not stop: killed", extra={"broker": child.broker})
                        child.kill()

    @contextlib.contextmanager
    def _signals_noticed(self) -> Iterator[None]:
        """Counts SIGTERM and SIGINT, and wakes the selector for them and for the end of a child."""

        def count(*_: object) -> None:
            self._signals += 1

        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGTERM, count),
                (signal.SIGINT, count),
                (signal.SIGCHLD, lambda *_: None),
            )
        }
        self._selector.register(read, selectors.EVENT_READ)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(read)
            os.close(write)


def _how(child: Child, status: int) -> dict[str, object]:
    """Returns how a broker ended, for a line of the log."""
    if status < 0:
        return {"broker": child.broker, "signal": signal.Signals(-status).name}
    return {"broker": child.broker, "status": status}


def _shown(child: Child) -> dict[str, object]:
    """Returns what callers are told of a broker."""
    return {
        "broker": child.broker,
        "pid": child.pid,
        "starts": child.starts,
        "status": child.status,
        "is_ready": bool(child.ready),
        "http": child.ready.get("http"),
    }


def _say_ready(children: Sequence[Child]) -> None:
    """Tells the parent that clients may connect."""
    parts = [f"ready brokers={len(children)}"]
    firsts = (addresses_of(child.ready["listeners"])[0] for child in children)
    parts.append(f"bootstrap={','.join(map(_reachable, firsts))}")
    parts += [
        f"{name}={','.join(child.ready[name] for child in children)}"
        for name in ("http", "control")
        if name in children[0].ready
    ]
    parts.append(f"cluster={children[0].ready['cluster']}")
    parts.append(f"pids={','.join(str(child.pid) for child in children)}")
    sys.stdout.write(" ".join(parts) + "\n")
    sys.stdout.flush()


def _reachable(address: str) -> str:
    """Returns an address that a client of this machine can connect to."""
    host, _, port = address.rpartition(":")
    return f"localhost:{port}" if host in ("", "0.0.0.0", "[::]") else address  # noqa: S104

"""Runs several brokers until SIGTERM or SIGINT: starts them, watches them, and stops them.

When all brokers are ready, one line goes to standard output,
`ready brokers=3 bootstrap=H:P,H:P,H:P http=... cluster=... pids=1,2,3`. A broker that ends before that ends
them all, because something is wrong with the settings or the machine. One that dies later is started
again, after a delay that grows, on the ports it had.

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
from typing import TYPE_CHECKING

from tidelog.serving import addresses_of
from tidelog.supervisor.child import Child, Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

log = logging.getLogger("tidelog.supervisor")

STOP_WITHIN_S = 60.0
_FAILED = 1
_IN_ORDER = {0, -signal.SIGTERM}  # one that has just started dies of the signal
_STANDARD_ERROR = 2


class Supervisor:
    """The brokers of one `tidelog serve --brokers N`."""

    def __init__(
        self, options: Sequence[str], settings: Iterable[Mapping[str, str]], *, restarts: bool
    ) -> None:
        """`settings` are those of each broker, from broker 1 on; `options` are the same for all."""
        self._children = [
            Child(broker, options, own, _write_log) for broker, own in enumerate(settings, 1)
        ]
        self._restarts = restarts
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._was_ready = False

    def run(self) -> int:
        """Returns the exit status: 0 after a stop in order, 1 if a broker failed to start or stop."""
        with self._signals_noticed():
            for child in self._children:
                self._start(child)
            while not self._signals:
                self._turn(self._next_restart_s())
                if not self._look():
                    self._stop(at_once=True)
                    return _FAILED
            return self._stop(at_once=False)

    # -- while they run -------------------------------------------------------------------------

    def _look(self) -> bool:
        """Restarts what has died and says what is ready; returns whether to go on."""
        now_s = time.monotonic()
        for child in self._children:
            status = child.ended()
            if status is not None:
                if not self._was_ready:
                    log.critical("a broker did not start", extra=_how(child, status))
                    return False
                self._bury(child, status, now_s)
            if child.restart_at_s is not None and now_s >= child.restart_at_s:
                self._start(child)
        if not self._was_ready and all(child.ready for child in self._children):
            self._was_ready = True
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

    def _next_restart_s(self) -> float | None:
        """Returns in how many seconds the next broker is started again; None if none is."""
        times = [child.restart_at_s for child in self._children if child.restart_at_s is not None]
        return max(min(times) - time.monotonic(), 0) if times else None

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

    # -- the end --------------------------------------------------------------------------------

    def _stop(self, *, at_once: bool) -> int:
        """Stops what runs, one after another unless all have to go; returns the exit status."""
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


def _write_log(lines: bytes) -> None:
    """Writes lines to standard error; what nobody reads any more is dropped."""
    with contextlib.suppress(OSError):
        while lines:
            lines = lines[os.write(_STANDARD_ERROR, lines) :]

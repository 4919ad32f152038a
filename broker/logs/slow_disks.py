"""Slow and lost disks of this broker, found by how long a small write takes to be durable.

Each log directory is probed now and then. Its disk is slow when a probe takes longer than
`log.dir.slow.ms`, also one that has not ended yet, and it stays so for a while: until a few probes
in a row took less than half of that. A probe that fails at once is not slow: the next append to a log
fails, too, and `unwritable` has directories without appends.

A write that blocks the event loop needs no probe: the broker then loses its lease.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.directory.disk_probe import probe

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tidelog.broker.pools import SyncPools

log = logging.getLogger("tidelog.cluster")

_PROBES_IN_LIMIT = 3  # so a disk that hangs is noticed soon after the limit
_FAST_PROBES = 3  # in a row, until a slow disk is fast again
_LEAST_SLOW_MS = 10_000
_FULL = (errno.ENOSPC, errno.EDQUOT)  # which appends find out


class _Outcome(NamedTuple):
    """How long a probe took, and why it failed, if it did."""

    took_ms: int
    error: str | None


@dataclass(slots=True)
class _Directory:
    """What is known of one log directory; times are monotonic ms."""

    probing: asyncio.Future[_Outcome] | None = None
    begun_ms: int | None = None  # when the last probe began
    slow_since_ms: int | None = None
    fast_probes: int = 0  # since the last one that was not fast
    error: str | None = None  # of the last probe that has ended


class SlowDisks:
    """The disks of this broker's log directories; all methods run on the event loop."""

    def __init__(
        self, pools: SyncPools, paths: Iterable[Path], limit_ms: int, now_ms: Callable[[], int]
    ) -> None:
        """`limit_ms` is how long a probe may take; 0: there are no probes, and no disk is slow.

        `now_ms` is a monotonic clock, for any thread.
        """
        self._pools, self._limit_ms, self._now_ms = pools, limit_ms, now_ms
        self._known = {path: _Directory() for path in paths} if limit_ms else {}
        self.slow: frozenset[Path] = frozenset()
        """The log directories whose disk is slow, as `look` has found."""
        self.unwritable: Mapping[Path, str] = {}
        """Why nothing can be written to log directories, as `look` has found."""

    def check(self) -> None:
        """Judges the probes, and begins those that are due."""
        now_ms = self._now_ms()
        for path, known in self._known.items():
            self._judge(path, known, now_ms)
            is_due = (
                known.begun_ms is None
                or now_ms - known.begun_ms >= self._limit_ms // _PROBES_IN_LIMIT
            )
            if known.probing is None and is_due:
                known.begun_ms = now_ms
                known.probing = self._pools.probe_of(path).submit(
                    _timed, path, now_ms, self._now_ms
                )
        self.slow = frozenset(
            path for path, known in self._known.items() if known.slow_since_ms is not None
        )
        self.unwritable = {
            path: known.error for path, known in self._known.items() if known.error is not None
        }

    def _judge(self, path: Path, known: _Directory, now_ms: int) -> None:
        if known.probing is None or known.begun_ms is None:
            return
        has_ended = known.probing.done()
        took_ms = now_ms - known.begun_ms
        if has_ended:
            took_ms, error = known.probing.result()
            known.probing = None
            if error is not None and known.error is None:
                log.error(
                    "log directory unwritable", extra={"directory": str(path), "error": error}
                )
            known.error = error
        if took_ms > self._limit_ms:
            known.fast_probes = 0
            if known.slow_since_ms is None:
                known.slow_since_ms = now_ms
                log.error(
                    "log directory slow",
                    extra={"directory": str(path), "took_ms": took_ms, "limit_ms": self._limit_ms},
                )
        elif has_ended:
            known.fast_probes = known.fast_probes + 1 if took_ms <= self._limit_ms // 2 else 0
            if known.slow_since_ms is not None and self._is_over(known, now_ms):
                known.slow_since_ms = None
                log.info(
                    "log directory fast again", extra={"directory": str(path), "took_ms": took_ms}
                )

    def _is_over(self, known: _Directory, now_ms: int) -> bool:
        assert known.slow_since_ms is not None
        return known.fast_probes >= _FAST_PROBES and now_ms - known.slow_since_ms >= _LEAST_SLOW_MS


def _timed(path: Path, begun_ms: int, now_ms: Callable[[], int]) -> _Outcome:
    """Makes a probe; how long it took counts from `begun_ms`, when it was asked for."""
    failed: str | None = None
    try:
        probe(path)
    except OSError as error:
        if error.errno not in _FULL:
            failed = error.strerror or str(error)
    return _Outcome(now_ms() - begun_ms, failed)

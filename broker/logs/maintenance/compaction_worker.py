"""The broker's side of a process that compacts logs (`compaction_process.py`): start, request, rate, and end.

A request and its answer are lines of JSON. A process that makes no progress for some time is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidelog
from tidelog.broker.metrics import compaction_counters

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("tidelog.compaction")

_ROOT = Path(tidelog.__file__).resolve().parents[1]  # where the child finds the package
_START = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
    "from tidelog.broker.logs.maintenance.compaction_process import main; main()"
)
_MOST_LINE_BYTES = 1 << 24
_MOST_END_S = 10  # of a process that was killed


class CleaningError(Exception):
    """A log could not be compacted; it is unchanged."""

    def __init__(self, reason: str, held_by: str | None = None) -> None:
        super().__init__(reason)
        self.held_by = held_by  # where another round would come to no other end


class Worker:
    """One process that compacts logs, one after another."""

    def __init__(
        self, process: asyncio.subprocess.Process, bytes_per_second: Callable[[], float]
    ) -> None:
        self._process = process
        self._bytes_per_second = bytes_per_second
        self._sent_rate: float | None = None

    @classmethod
    async def start(cls, bytes_per_second: Callable[[], float]) -> Worker:
        """Starts a process; raises OSError. It reads and writes at most at the rate that holds meanwhile."""
        # Not in the broker's process group: Ctrl-C ends the broker, and the broker ends this process.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            _START,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MOST_LINE_BYTES,
            start_new_session=True,
        )
        return cls(process, bytes_per_second)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def request(
        self, request_line: dict[str, Any], progress_timeout_s: float
    ) -> dict[str, Any]:
        """Sends a request and returns its answer; raises CleaningError, also without progress."""
        try:
            answer = await self._read_answer(request_line, progress_timeout_s)
        except TimeoutError as error:
            raise CleaningError(
                f"process {self.pid}, which cleaned it, has made no progress for {progress_timeout_s:g} s",
                compaction_counters.STUCK,
            ) from error
        except (OSError, ValueError, RuntimeError) as error:  # uvloop's word for a closed pipe
            raise CleaningError(f"the cleaning process is gone: {error}") from error
        if "error" in answer:
            held_by = compaction_counters.UNREADABLE if answer["corrupt"] else None
            raise CleaningError(answer["error"], held_by)
        return answer

    async def _read_answer(
        self, request_line: dict[str, Any], progress_timeout_s: float
    ) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._send_rate()
        self._process.stdin.write(json.dumps(request_line).encode() + b"\n")
        seen = -1
        async with asyncio.timeout(progress_timeout_s) as waiting:
            await self._process.stdin.drain()
            while True:
                line = await self._process.stdout.readline()
                if not line.endswith(b"\n"):
                    raise CleaningError("the cleaning process has ended")
                cleaning: dict[str, Any] = json.loads(line)
                if "progress" not in cleaning:
                    return cleaning
                self._send_rate()  # it may have been changed meanwhile
                if cleaning["progress"] > seen:
                    seen = cleaning["progress"]
                    waiting.reschedule(asyncio.get_running_loop().time() + progress_timeout_s)

    def _send_rate(self) -> None:
        """Sends the rate to the process if it is another one than before."""
        rate = self._bytes_per_second()
        if rate != self._sent_rate:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"bytes_per_second": rate}).encode() + b"\n")
            self._sent_rate = rate

    async def stop(self) -> bool:
        """Kills the process; False if it does not end because it waits for a disk."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        try:
            async with asyncio.timeout(_MOST_END_S):
                await self._process.wait()
        except TimeoutError:
            if self._process.returncode is None:  # else it ended while this process stood still
                log.error("compaction worker did not stop", extra={"pid": self.pid})
                return False
        return True

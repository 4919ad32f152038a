"""Structured logs: one line for each event, an event's name and `key=value` pairs.

`log.info("topic created", extra={"topic": name})` prints
`ts=2026-01-01T00:00:00.000Z level=info logger=tidelog.node msg="topic created" topic=orders`.
Lines are written to standard error; standard output has the ready line alone. Texts are cut at
`MOST_CHARACTERS`. The same line is logged ten times a minute, and then counted (`repeats.py`). So is
the same warning of different partitions, unless the level is debug: a disk that fails has thousands. So are,
above debug, the lines of one logger and level beyond the first few thousand different ones a minute. Logging
never waits for the reader of standard error (`log_output.py`).
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tidelog.broker.clock import SystemClock
from tidelog.broker.logging.log_output import LogOutput
from tidelog.broker.logging.repeats import OTHERS, Repeats
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path

MOST_CHARACTERS: Final = 2_000  # of a message, and of each value
_MOST_TRACEBACK = 40_000  # characters
_LAST_LINES_S = 1.0  # how long the end of the process waits until the last lines are written
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Logfmt(logging.Formatter):
    """Formats a record as logfmt.

    An exception follows as a traceback in its own lines, indented. A BrokerError, such as a metadata store
    that does not answer, is no fault of the program: its sentence is the field `reason` of the line.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns one line, and the traceback if there is one."""
        line = (
            f"{_stamp(record)} level={record.levelname.lower()} "
            f"logger={record.name} msg={_quoted(record.getMessage())}"
        )
        for key, value in vars(record).items():
            if key not in _STANDARD:
                line += f" {key}={_quoted(str(value))}"
        if record.exc_info and isinstance(record.exc_info[1], BrokerError):
            line += f" reason={_quoted(record.exc_info[1].message)}"
        elif record.exc_info:
            trace = _cut(self.formatException(record.exc_info), _MOST_TRACEBACK)
            line += "\n  " + trace.replace("\n", "\n  ")
        return line


def _shows_debug() -> bool:
    return logging.getLogger().isEnabledFor(logging.DEBUG)


def _of_any_partition(record: logging.LogRecord) -> str | None:
    """Returns a line without the partition's name and numbers, so that those of all partitions are equal.

    Returns None for a line that is not about one partition.
    """
    fields = vars(record)
    name = fields.get("log")
    if name is None and "partition" in fields:
        name = f"{fields.get('topic')}-{fields['partition']}"
    if name is None:
        return None
    reason = fields.get("reason") or (record.exc_info and record.exc_info[1]) or ""
    message = record.getMessage().replace(name, "*")
    why = str(reason).replace(name, "*")
    line = f"level={record.levelname.lower()} logger={record.name} msg={_quoted(message)}"
    return f"{line} reason={_quoted(why)}" if why else line


def _stamp(record: logging.LogRecord) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"ts={moment}.{int(record.msecs):03d}Z"


def _quoted(text: str) -> str:
    """Returns a text, quoted and escaped if logfmt requires it, and cut if it is long."""
    text = _cut(text, MOST_CHARACTERS)
    if text and text.isprintable() and not any(c in text for c in ' ="'):
        return text
    return json.dumps(text)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} more characters)"


class LogHandler(logging.Handler):
    """Formats records, counts those that are repeated, and hands the lines to a `LogOutput`."""

    def __init__(self, output: LogOutput | None = None) -> None:
        super().__init__()
        self.setFormatter(Logfmt())
        self.output = output or LogOutput(self.dropped_line)
        self._repeats: defaultdict[str, Repeats] = defaultdict(Repeats)  # by level and logger
        self._clock = SystemClock()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless the same line was logged `SHOWN` times in this minute."""
        try:
            line = self.format(record)
            now_s = self._clock.monotonic_s()
            stamp, _, text = line.partition(" ")
            self._log_repeated(stamp, now_s)
            if record.levelno >= logging.WARNING and not _shows_debug():
                text = _of_any_partition(record) or text
            of = f"level={record.levelname.lower()} logger={record.name}"
            is_debug = record.levelno <= logging.DEBUG
            if is_debug or self._repeats[of].is_shown("", text, now_s):
                self.output.put(_encoded(line))
        except Exception:  # noqa: BLE001 - as in logging's own handlers: who logs does not fail
            self.handleError(record)

    def _log_repeated(self, stamp: str, now_s: float) -> None:
        for of, repeats in list(self._repeats.items()):
            for _, text, times in repeats.take_repeated(now_s):
                first, _, _ = text.partition("\n")
                line = f"{of} msg={_quoted(OTHERS)}" if text == OTHERS else first
                self.output.put(_encoded(f"{stamp} {line} repeated={times}"))

    def dropped_line(self, lines: int) -> bytes:
        """Returns the line with the number of lines that were dropped."""
        fields = {"lines": lines, "reason": "standard error was not read in time"}
        record = logging.makeLogRecord(
            {"name": "tidelog.log", "levelname": "WARNING", "msg": "log lines dropped", **fields}
        )
        return _encoded(self.format(record))

    def flush(self) -> None:
        """Logs the counts of repeated lines, and waits at most a second until all lines are written."""
        self._log_repeated(_stamp(logging.makeLogRecord({})), math.inf)
        self.output.drain(_LAST_LINES_S)


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


def set_up(level: str, unread_file: Path | None = None) -> LogHandler:
    """Configures logging to write all lines at or above `level` to standard error.

    Once standard error is closed at the other end, lines are written to the `unread_file`, if given.
    """
    handler = LogHandler()
    if unread_file is not None:
        handler.output.unread_file = unread_file
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # a closed pipe must not fill itself with tracebacks
    atexit.register(handler.flush)
    return handler

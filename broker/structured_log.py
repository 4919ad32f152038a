"""Structured logs: one line an event, `key=value` pairs behind a sentence.

`log.info("topic created", extra={"topic": name})` prints
`ts=2026-01-01T00:00:00.000Z level=info logger=tidelog.node msg="topic created" topic=orders`.
Lines go to standard error; standard output carries the ready line alone.
"""

from __future__ import annotations

import json
import logging
import sys
import time

from protocol.errors import BrokerError

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Logfmt(logging.Formatter):
    """Formats a record as logfmt.

    An exception follows as a traceback in its own lines, indented. An error with a code of the
    protocol, such as a metadata store that does not answer, is not a fault in the program: its
    sentence ends the line as `reason`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns one line, and the traceback if there is one."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = (
            f"ts={moment}.{int(record.msecs):03d}Z level={record.levelname.lower()} "
            f"logger={record.name} msg={_quoted(record.getMessage())}"
        )
        for key, value in vars(record).items():
            if key not in _STANDARD:
                line += f" {key}={_quoted(str(value))}"
        if record.exc_info and isinstance(record.exc_info[1], BrokerError):
            line += f" reason={_quoted(record.exc_info[1].message)}"
        elif record.exc_info:
            line += "\n  " + self.formatException(record.exc_info).replace("\n", "\n  ")
        return line


def _quoted(text: str) -> str:
    """The text itself, or quoted and escaped where it would not stand alone."""
    if text and text.isprintable() and not any(c in text for c in ' ="'):
        return text
    return json.dumps(text)


def set_up(level: str) -> None:
    """Sends everything at or above `level` to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # a closed pipe must not fill itself with tracebacks

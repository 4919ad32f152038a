"""Records as text: JSON lines without loss, format strings, and times as people write them.

There is one JSON object a line. `key`, `value` and the values of `headers` (pairs of name and
value) are text, null, or {"base64": "..."} for bytes that are not UTF-8. `timestamp_ms` is exact,
null for a record without a time. `tidelog produce --json` reads the output of `tidelog consume
--json` back unchanged.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.escaping import as_json
from tidelog.cli.output import instant_of
from tidelog.cli.shared import UsageError, instants
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RELATIVE = re.compile(r"now|[+-]([0-9.]+(ms|[smhdw]))+", re.ASCII | re.IGNORECASE)
_TIMES = ("timestamp_ms", "timestamp", "timestamp_type", "append_time_ms", "append_time")
_KNOWN = frozenset({"topic", "partition", "offset", *_TIMES, "key", "value", "headers"})


class Record(NamedTuple):
    """A record to produce; a time of -1 means no time, None leaves the time to the producer."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None
    partition: int | None = None


class Seen(NamedTuple):
    """A consumed record; `append_time_ms` is None if it is unknown."""

    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    append_time_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


# --- times ----------------------------------------------------------------------------------------


def is_relative(text: str) -> bool:
    """Returns whether a time is relative to now, so that it depends on a clock."""
    return _RELATIVE.fullmatch(text.strip()) is not None


def time_of(text: str | int, now_ms: int, *, shift: bool, what: str) -> int:
    """Returns a time in ms. -1, which means "no time", is refused, or with `shift` becomes 0.

    Raises CommandError, whose message begins with `what`.
    """
    try:
        found: int = instants().parse_instant(text, now_ms)
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None
    if found != NO_TIMESTAMP:
        return found
    if shift:
        return 0
    raise UsageError(
        f'{what}: {text} is the millisecond -1, which means "no time": give one more or less, or --shift for '
        "1970-01-01T00:00Z"
    )


# --- JSON lines -----------------------------------------------------------------------------------


def to_json(seen: Seen, topic: str, *, with_append_time: bool) -> str:
    """Returns a consumed record as one line, without the end of the line."""
    to_iso = instants().to_iso
    time = None if seen.timestamp_ms == NO_TIMESTAMP else seen.timestamp_ms
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": seen.partition,
        "offset": seen.offset,
        "timestamp_ms": time,
        "timestamp": to_iso(time),
        "timestamp_type": None
        if time is None
        else ("LogAppendTime" if seen.is_log_append_time else "CreateTime"),
    }
    if with_append_time:
        fields["append_time_ms"] = seen.append_time_ms
        fields["append_time"] = to_iso(seen.append_time_ms)
    fields["key"] = _to_json(seen.key)
    fields["value"] = _to_json(seen.value)
    fields["headers"] = [[name, _to_json(value)] for name, value in seen.headers]
    return as_json(fields)


def _to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(line: bytes, read_time: Callable[[str | int], int]) -> Record:
    """Returns the record of a line; `read_time` parses its time.

    Raises ValueError and CommandError.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('is no record: expected {"key": ..., "value": ...}')
    if unknown := sorted(set(fields) - _KNOWN):
        raise ValueError(f"{unknown[0]!r} is not a field of a record")
    return Record(
        _from_json("key", fields.get("key")),
        _from_json("value", fields.get("value")),
        _headers(fields.get("headers")),
        _time(fields, read_time),
        _partition(fields.get("partition")),
    )


def _from_json(what: str, value: object) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return value.encode()
        if (
            isinstance(value, dict)
            and list(value) == ["base64"]
            and isinstance(value["base64"], str)
        ):
            return base64.b64decode(value["base64"], validate=True)
    except ValueError:  # half of a surrogate pair, or not base64
        raise ValueError(f"{what}: {json.dumps(value)[:80]} does not represent bytes") from None
    raise ValueError(f'{what}: expected a text, null or {{"base64": "..."}}')


def _headers(value: object) -> list[tuple[str, bytes | None]]:
    if value is None:
        return []
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise ValueError("headers: expected pairs of name and value")
    found = []
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ValueError("headers: expected pairs of name and value")
        _from_json("headers", pair[0])
        found.append((pair[0], _from_json(f"header {pair[0]}", pair[1])))
    return found


def _time(fields: Mapping[str, object], read_time: Callable[[str | int], int]) -> int | None:
    for name in ("timestamp_ms", "timestamp"):
        if name not in fields:
            continue
        value = fields[name]
        if value is None:
            return NO_TIMESTAMP
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{name}: expected a time, milliseconds or null")
        return read_time(value)
    return None


def _partition(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError("partition: expected a number from 0 on")
    return value


# --- format strings -------------------------------------------------------------------------------

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)

_FIELDS: dict[str, Callable[[Seen, str], bytes]] = {
    "s": lambda seen, _: seen.value or b"",
    "S": lambda seen, _: _length(seen.value),
    "k": lambda seen, _: seen.key or b"",
    "K": lambda seen, _: _length(seen.key),
    "T": lambda seen, _: b"%d" % seen.timestamp_ms,
    "I": lambda seen, _: shown(seen.timestamp_ms, "none").encode(),
    "a": lambda seen, _: shown(seen.append_time_ms, "unknown").encode(),
    "A": lambda seen, _: b"unknown" if seen.append_time_ms is None else b"%d" % seen.append_time_ms,
    "h": lambda seen, _: b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in seen.headers
    ),
    "t": lambda _, topic: topic.encode(),
    "p": lambda seen, _: b"%d" % seen.partition,
    "o": lambda seen, _: b"%d" % seen.offset,
    "%": lambda _, __: b"%",
}


def formatter(text: str) -> Callable[[Seen, str], bytes]:
    """Returns a function that formats records by kcat's tokens and three more.

    Raises CommandError.
    """
    parts: list[bytes | Callable[[Seen, str], bytes]] = []
    for token in _TOKEN.finditer(text):
        field, code, escape, plain, single = token.groups()
        if field is not None and field in _FIELDS:
            parts.append(_FIELDS[field])
        elif code is not None:
            parts.append(bytes.fromhex(code))
        elif escape is not None and escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        elif plain is not None:
            parts.append(plain.encode())
        else:
            known = " ".join(f"%{each}" for each in _FIELDS)
            raise UsageError(
                f"--format: {single or token[0]} is nothing there is: {known} \\n \\r \\t \\x0a"
            )

    def write(seen: Seen, topic: str) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(seen, topic) for part in parts)

    return write


def is_about_append_times(text: str) -> bool:
    """Returns whether a format string uses the append time."""
    return any(token[1] in ("a", "A") for token in _TOKEN.finditer(text) if token[1])


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def shown(time_ms: int | None, missing: str) -> str:
    """Returns a time as text for people."""
    if time_ms is None or time_ms == NO_TIMESTAMP:
        return missing
    return instant_of(time_ms)

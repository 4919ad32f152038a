"""Records as text: JSON lines without loss, format strings, a table, and times as people write them.

Consumed records are written column by column, with as little work for each record as there can be.

There is one JSON object a line. `key`, `value` and the values of `headers` (pairs of name and
value) are text, null, or {"base64": "..."} for bytes that are not UTF-8. `timestamp_ms` is exact,
null for a record without a time. `tidelog produce --json` reads the output of `tidelog consume
--json` back unchanged.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import repeat
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.cli.escaping import as_json, escaped
from tidelog.cli.output import instant_of
from tidelog.cli.shared import UsageError, instants
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.client.consumed import Consumed, Headers

    Writer = Callable[[int, Consumed], bytes]

Value = TypeVar("Value")
Text = TypeVar("Text", str, bytes)

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


def json_lines(topic: str, *, with_append_times: bool) -> Writer:
    """Returns a function that writes the records of a partition as lines of JSON."""
    to_iso, name = instants().to_iso, as_json(topic).replace("%", "%%")

    def time(of: tuple[int, bool]) -> str:
        time_ms = None if of[0] == NO_TIMESTAMP else of[0]
        kind = "LogAppendTime" if of[1] else "CreateTime"
        return _fields(
            timestamp_ms=time_ms,
            timestamp=to_iso(time_ms),
            timestamp_type=None if time_ms is None else kind,
        )

    def append_time(time_ms: int | None) -> str:
        return _fields(append_time_ms=time_ms, append_time=to_iso(time_ms))

    def write(partition: int, records: Consumed) -> bytes:
        line = f'{{"topic": {name}, "partition": {partition}, "offset": %d, %s%s'
        rows = zip(
            records.offsets,
            _each(time, list(zip(records.timestamps, records.is_log_append, strict=True))),
            _each(append_time, records.append_times) if with_append_times else repeat(""),
            _json_texts(records.keys),
            _json_texts(records.values),
            _each(_json_headers, records.headers),
            strict=False,
        )
        line += '"key": %s, "value": %s, "headers": %s}\n'
        return "".join(map(line.__mod__, rows)).encode()

    return write


def _each(make: Callable[[Value], Text], values: list[Value]) -> Iterable[Text]:
    """Returns the text of each value; that of equal ones is made once."""
    made = {value: make(value) for value in set(values)}
    return map(made.__getitem__, values)


def _fields(**fields: Any) -> str:
    """Returns fields as JSON, for the middle of an object."""
    return json.dumps(fields)[1:-1] + ", "


def _json_texts(column: list[bytes | None]) -> list[str]:
    """Returns keys or values as JSON; as a rule they are texts of which all is printable."""
    try:
        texts = ["null" if data is None else encode_basestring(data.decode()) for data in column]
        if "".join(texts).isprintable():
            return texts
    except UnicodeDecodeError:
        pass
    return [as_json(_to_json(data)) for data in column]


def _json_headers(headers: Headers) -> str:
    return as_json([[name.decode(errors="replace"), _to_json(value)] for name, value in headers])


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
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, at column {error.colno}") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('it is not a record: expected {"key": ..., "value": ...}')
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

_COLUMNS: dict[str, Callable[[Consumed], Iterable[bytes | int]]] = {
    "s": lambda records: (each or b"" for each in records.values),
    "S": lambda records: map(_length, records.values),
    "k": lambda records: (each or b"" for each in records.keys),
    "K": lambda records: map(_length, records.keys),
    "T": lambda records: records.timestamps,
    "I": lambda records: _each(lambda time: shown(time, "none").encode(), records.timestamps),
    "a": lambda records: _each(lambda time: shown(time, "unknown").encode(), records.append_times),
    "A": lambda records: _each(
        lambda time: b"unknown" if time is None else b"%d" % time, records.append_times
    ),
    "h": lambda records: _each(_header_bytes, records.headers),
    "o": lambda records: records.offsets,
}
_NUMBERS = "STKo"  # columns of numbers; the others are bytes
_SAME: dict[str, Callable[[str, int], bytes]] = {  # what all records of a partition share
    "t": lambda topic, _: topic.encode(),
    "p": lambda _, partition: b"%d" % partition,
    "%": lambda _, __: b"%",
}


def formatter(text: str, topic: str) -> Writer:
    """Returns a function that formats records by kcat's tokens and three more.

    Raises CommandError.
    """
    parts: list[bytes | str] = []  # a str is a field
    for token in _TOKEN.finditer(text):
        field, code, escape, plain, single = token.groups()
        if field is not None and (field in _COLUMNS or field in _SAME):
            parts.append(field)
        elif code is not None:
            parts.append(bytes.fromhex(code))
        elif escape is not None and escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        elif plain is not None:
            parts.append(plain.encode())
        else:
            known = ", ".join(f"%{each}" for each in (*_COLUMNS, *_SAME))
            raise UsageError(
                f"--format: there is no {single or token[0]}: write {known}, \\n, \\r, \\t or \\x0a"
            )
    names = [part for part in parts if isinstance(part, str) and part in _COLUMNS]

    def write(partition: int, records: Consumed) -> bytes:
        line = b""
        for part in parts:
            if isinstance(part, str) and part in _COLUMNS:
                line += b"%d" if part in _NUMBERS else b"%b"
            else:
                same = _SAME[part](topic, partition) if isinstance(part, str) else part
                line += same.replace(b"%", b"%%")
        columns = [_COLUMNS[name](records) for name in names]
        rows = zip(*columns, strict=True) if columns else repeat((), len(records.offsets))
        return b"".join(map(line.__mod__, rows))

    return write


def is_about_append_times(text: str) -> bool:
    """Returns whether a format string uses the append time."""
    return any(token[1] in ("a", "A") for token in _TOKEN.finditer(text) if token[1])


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _header_bytes(headers: Headers) -> bytes:
    return b",".join(name + b"=" + (b"NULL" if value is None else value) for name, value in headers)


# --- a table --------------------------------------------------------------------------------------

_ROW = "{:>9}  {:>10}  {:<24}  {}{}  {}\n"


def table_head(*, with_append_times: bool) -> bytes:
    """Returns the names of the columns of `table_rows`."""
    append = f"{'append time':<24}  " if with_append_times else ""
    return _ROW.format("partition", "offset", "record time", append, "key", "value").encode()


def table_rows(*, with_append_times: bool) -> Writer:
    """Returns a function that writes records as rows, for people."""

    def append_time(time_ms: int | None) -> str:
        return f"{shown(time_ms, 'unknown'):<24}  "

    def write(partition: int, records: Consumed) -> bytes:
        line = f"{partition:>9}  %10d  %-24s  %s%s  %s%s\n"
        rows = zip(
            records.offsets,
            _each(lambda time_ms: shown(time_ms, "none"), records.timestamps),
            _each(append_time, records.append_times) if with_append_times else repeat(""),
            _readable(records.keys),
            _readable(records.values),
            _each(_readable_headers, records.headers),
            strict=False,
        )
        return "".join(map(line.__mod__, rows)).encode()

    return write


def _readable(column: Iterable[bytes | None]) -> list[str]:
    """Returns bytes as texts in one line for a terminal; unprintable characters are escaped."""
    texts = ["null" if data is None else data.decode(errors="backslashreplace") for data in column]
    return texts if "".join(texts).isprintable() else [*map(escaped, texts)]


def _readable_headers(headers: Headers) -> str:
    names = [escaped(name.decode(errors="replace")) for name, _ in headers]
    values = _readable(value for _, value in headers)
    return "".join(f"  {name}={value}" for name, value in zip(names, values, strict=True))


def shown(time_ms: int | None, missing: str) -> str:
    """Returns a time as text for people."""
    if time_ms is None or time_ms == NO_TIMESTAMP:
        return missing
    return instant_of(time_ms)

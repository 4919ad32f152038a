"""`tidelog dump PATH...`: shows what the files of a log directory contain, and checks each.

A directory stands for its files that a log directory may have, with those of its partitions. When
all are shown, a list of them with their verdicts follows.

The text form is a table, with each finding below its row, and a verdict. With as_json there is one
object a line: rows (`kind` says of what), `finding`s, and a `verdict` at the end of each file.
Times are in milliseconds, null (`-`) for none. A key, value or header that is not UTF-8 is {"hex":
...} (`0x...`).

It writes nothing and takes no lock, so a broker may run on the same directory. The end of a file
that the broker is writing to may then look torn.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.escaping import as_json, escaped
from tidelog.cli.output import bar_beside_output
from tidelog.cli.shared import UsageError
from tidelog.dump.files import kind_of
from tidelog.dump.segments import DumpFinding, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import TextIO

    from tidelog.dump.files import Kind
    from tidelog.dump.segments import DumpOptions

FINE, FINDINGS = 0, 1
_HELD_ROWS = 200  # the number of rows that are read to find the widths of columns
_PLURALS = {"batch": "batches", "entry": "entries", "property": "properties"}
_UNCOUNTED = {"end", "record", "room", "partition", "adopted", "correction", "written_behind"}
"""Rows that are not counted: records are by their batches, even if they are not shown."""


class _Judged(NamedTuple):
    """A file that was shown, and its number of findings."""

    path: Path
    kind: Kind
    findings: int


def run(paths: Sequence[Path], wanted: DumpOptions, *, as_json: bool) -> int:
    """Shows every file; returns FINE or FINDINGS. Raises UsageError before anything is written."""
    work = [(path, _files(path) if path.is_dir() else [_known(path)]) for path in paths]
    page = _JsonPage(sys.stdout) if as_json else _TextPage(sys.stdout)
    size = sum(_size(file) for _, files in work for file, _ in files)
    clean = True
    with bar_beside_output(size, of_bytes=True) as advance:
        for path, files in work:
            judged = [_Judged(*file, _show(page, *file, wanted, advance)) for file in files]
            if path.is_dir():
                _sum_up(page, path, judged)
            clean = clean and not any(one.findings for one in judged)
    return FINE if clean else FINDINGS


def _show(
    page: _JsonPage | _TextPage,
    path: Path,
    kind: Kind,
    wanted: DumpOptions,
    advance: Callable[[int], None],
) -> int:
    """Shows one file; returns the number of findings."""
    page.begin(path, kind.name)
    findings, totals = 0, Counter[str]()
    size, done = _size(path), 0
    for item in _items(path, kind, wanted):
        page.show(item)
        if isinstance(item, DumpFinding):
            findings += 1
        else:
            _count(item, totals)
            if item.kind == "batch":
                advance(item.fields["position"] - done)
                done = item.fields["position"]
    advance(size - done)
    page.end(findings, totals)
    return findings


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # retention or compaction has removed it meanwhile
        return 0


def _known(path: Path) -> tuple[Path, Kind]:
    """Returns a readable file and its kind. Raises UsageError."""
    try:
        with path.open("rb"):
            kind = kind_of(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if kind is None:
        raise UsageError(f"{path}: no file of a log directory has such a name")
    return path, kind


def _files(directory: Path) -> list[tuple[Path, Kind]]:
    """Returns all files of a log directory or a partition that dump supports. Raises UsageError."""
    try:
        within = sorted(directory.iterdir())
        for one in [one for one in within if one.is_dir()]:
            within += sorted(one.iterdir())
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None
    files = [(one, kind_of(one)) for one in within if one.is_file()]
    known = [_known(one) for one, kind in files if kind is not None]
    if not known:
        raise UsageError(f"{directory}: in it is no file tidelog knows in a log directory")
    return known


def _sum_up(page: _JsonPage | _TextPage, directory: Path, judged: Sequence[_Judged]) -> None:
    """Lists the files of a directory with their verdicts."""
    page.begin(directory, "directory")
    for path, kind, findings in judged:
        verdict = _counted(findings, "finding") if findings else "ok"
        name = str(path.relative_to(directory))
        page.show(Row("file", {"name": name, "what": kind.name, "verdict": verdict}))
    page.end(sum(one.findings for one in judged), Counter({"file": len(judged)}))


def _items(path: Path, kind: Kind, wanted: DumpOptions) -> Iterable[Row | DumpFinding]:
    """Yields everything about a file; an error during reading is a finding too."""
    try:
        yield from kind.read(path, wanted)
    except OSError as error:
        yield DumpFinding("", f"cannot be read on: {error.strerror or error}")


def _count(row: Row, totals: Counter[str]) -> None:
    if row.kind not in _UNCOUNTED:
        totals[row.kind] += 1
    if row.kind == "batch":
        totals["record"] += row.fields["count"] or 0


# --- JSON ----------------------------------------------------------------------------------------


class _JsonPage:
    """Writes one JSON object a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._path = self._kind = ""

    def begin(self, path: Path, what: str) -> None:
        self._path, self._kind = str(path), what

    def show(self, item: Row | DumpFinding) -> None:
        if isinstance(item, DumpFinding):
            self._write("finding", item._asdict())
        else:
            self._write(item.kind, item.fields)

    def end(self, findings: int, totals: Counter[str]) -> None:
        counts = {_plural(kind): count for kind, count in totals.items()}
        verdict = {"what": self._kind, "is_ok": not findings, "findings": findings}
        self._write("verdict", verdict | counts)

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        line = {"file": self._path, "kind": kind} | {
            name: [[_plain(part) for part in pair] for pair in value]
            if name == "headers"
            else _plain(value)
            for name, value in fields.items()
        }
        self._out.write(as_json(line) + "\n")


def _plain(value: object) -> object:
    """Returns a value in a form that JSON supports."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _plural(kind: str) -> str:
    return _PLURALS.get(kind, f"{kind}s")


# --- text ----------------------------------------------------------------------------------------


class _TextPage:
    """Writes a table for each file. A column without values is left out until it has one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._title = ""
        self._held: list[Row | DumpFinding] = []
        self._widths: dict[str, int] = {}

    def begin(self, path: Path, what: str) -> None:
        self._title = escaped(str(path))
        self._widths = {}
        self._out.write(f"{escaped(str(path))}: {what}\n")

    def show(self, item: Row | DumpFinding) -> None:
        self._held.append(item)
        if len(self._held) >= _HELD_ROWS:
            self._write_held()

    def end(self, findings: int, totals: Counter[str]) -> None:
        self._write_held()
        counts = [_counted(count, kind) for kind, count in totals.items()]
        verdict = _counted(findings, "finding") if findings else "ok"
        self._out.write(": ".join((self._title, ", ".join((verdict, *counts)))) + "\n\n")

    def _write_held(self) -> None:
        held, self._held = self._held, []
        self._widen([item for item in held if isinstance(item, Row) and _is_tabular(item)])
        for item in held:
            if isinstance(item, DumpFinding):
                where = f"{item.where}: " if item.where else ""
                self._out.write(f"  ! {escaped(where + item.what)}\n")
            elif _is_tabular(item):
                cells = [_cell(item.fields[name]).rjust(w) for name, w in self._widths.items()]
                self._out.write(f"  {'  '.join(cells)}\n")
            else:
                text = " ".join(f"{name} {_cell(value)}" for name, value in item.fields.items())
                self._out.write(f"    {item.kind}: {text}\n")

    def _widen(self, rows: list[Row]) -> None:
        """Widens the table for more rows; a new column repeats the heading."""
        if not rows:
            return
        widths = {}
        for name in rows[0].fields:
            said = max(len(_cell(row.fields[name])) for row in rows if name in row.fields)
            if name in self._widths or any(_says(row.fields[name]) for row in rows):
                widths[name] = max(said, len(name), self._widths.get(name, 0))
        if widths.keys() != self._widths.keys():
            heading = [name.rjust(width) for name, width in widths.items()]
            self._out.write(f"  {'  '.join(heading)}\n")
        self._widths = widths


def _is_tabular(row: Row) -> bool:
    return row.kind not in _UNCOUNTED


def _says(value: object) -> bool:
    return value is not None and value is not False


def _cell(value: object) -> str:
    """Returns a value as the text of a cell."""
    if isinstance(value, bool):
        return "yes" if value else "-"
    if value is None:
        return "-"
    if isinstance(value, bytes):
        try:
            return repr(value.decode())
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, list):
        return ",".join(f"{_cell(name)}={_cell(content)}" for name, content in value) or "-"
    return escaped(str(value))


def _counted(count: int, kind: str) -> str:
    return f"{count} {kind if count == 1 else _plural(kind)}"

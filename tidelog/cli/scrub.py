"""`tidelog scrub --log-dirs DIR...`: reads the segments of log directories again, and checks every batch.

It reads closed segments, as the broker's own scrubbing does, so a broker may run on the directories:
nothing is written, and no lock is taken. With `--with-active` it also reads the last segment of each
log, whose end may look torn while a broker writes to it. Exit status: 0 if every batch is good, 1 if
one is bad or a segment cannot be read, 2 for a mistake in the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.arguments import add_flag, add_json
from tidelog.cli.output import bar, print_json, print_lines, print_table
from tidelog.cli.shared import FAILED, UsageError
from tidelog.storage import filenames
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.scrub import ScrubPosition, scrub
from tidelog.storage.segment.segment import Segment
from tidelog.text import size_of, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.storage.segment.scrub import BadBatch

_SLICE_BYTES = 4 * 2**20
_NO_LIMIT = 2**63  # no segment follows


class _File(NamedTuple):
    """A segment's file that is to be read."""

    topic: str
    partition: int
    path: Path
    base_offset: int
    end_offset: int  # where the next segment begins


def add_scrub(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog scrub`."""
    what = "log directories; commas may separate them, as in log.dirs"
    parser.add_argument("--log-dirs", metavar="DIR", nargs="+", required=True, help=what)
    parser.add_argument("--topic", action="append", help="one topic alone; may be repeated")
    what = "also the last segment of each log: for directories on which no broker runs"
    add_flag(parser, "--with-active", what)
    add_json(parser)
    parser.set_defaults(run=_scrub)


def _scrub(options: argparse.Namespace) -> int:
    """Reads and prints; returns the exit status. Raises CommandError."""
    directories = [Path(each) for text in options.log_dirs for each in text.split(",") if each]
    files = list(_files(directories, options.topic, with_active=options.with_active))
    bad: list[dict[str, Any]] = []
    read_bytes = 0
    with bar(sum(_size(each.path) for each in files), of_bytes=True) as progress:
        for file in files:
            try:
                bad.extend(_row(file, found) for found in _read(file, progress))
            except FileNotFoundError:
                continue  # retention or compaction has removed it meanwhile
            except OSError as error:
                bad.append(_row(file, error.strerror or str(error)))
            else:
                read_bytes += _size(file.path)
    if options.json:
        print_json({"segments": len(files), "bytes": read_bytes, "bad": bad})
    else:
        _print(files, read_bytes, bad)
    return FAILED if bad else 0


def _files(
    directories: Sequence[Path], topics: Sequence[str] | None, *, with_active: bool
) -> Iterator[_File]:
    """Yields the segments to read. Raises CommandError."""
    seen = set()
    for directory in directories:
        for log in _logs(directory):
            name = filenames.parse_partition_directory(log.name)
            if name is None or (topics is not None and name[0] not in topics):
                continue
            seen.add(name[0])
            bases = sorted(
                parsed.offset
                for each in log.iterdir()
                if (parsed := filenames.parse_segment_file(each.name)) is not None
                and parsed.suffix == filenames.LOG_SUFFIX
            )
            for base_offset, end_offset in zip(bases, [*bases[1:], _NO_LIMIT], strict=True):
                if end_offset != _NO_LIMIT or with_active:
                    path = log / filenames.segment_file(base_offset, filenames.LOG_SUFFIX)
                    yield _File(*name, path, base_offset, end_offset)
    for topic in topics or ():
        if topic not in seen:
            raise UsageError(f"there is no log of {topic} in these directories")


def _logs(directory: Path) -> list[Path]:
    """Returns the partitions of a log directory, of all brokers of a machine. Raises CommandError."""
    try:
        within = [each for each in sorted(directory.iterdir()) if each.is_dir()]
        for brokers in [each for each in within if each.name == filenames.BROKERS_DIRECTORY]:
            for one in sorted(brokers.iterdir()):
                within += [each for each in sorted(one.iterdir()) if each.is_dir()]
    except OSError as error:
        raise UsageError(f"cannot read {directory}: {error.strerror}") from None
    return within


def _read(file: _File, progress: Callable[[int], None]) -> Iterator[BadBatch]:
    """Reads a segment; yields what is bad. Raises OSError."""
    segment = Segment(
        file.path.parent, file.base_offset, Tail(file.base_offset, file.path.stat().st_size)
    )
    place: ScrubPosition | None = ScrubPosition(0, file.base_offset)
    try:
        while place is not None:
            scrubbed = scrub(segment, place, _SLICE_BYTES, file.end_offset)
            progress(scrubbed.read_bytes)
            yield from scrubbed.bad
            place = scrubbed.next
    finally:
        segment.rest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _row(file: _File, found: BadBatch | str) -> dict[str, Any]:
    where = {"topic": file.topic, "partition": file.partition, "file": str(file.path)}
    if isinstance(found, str):
        return where | {"position": None, "offset": None, "reason": f"cannot be read: {found}"}
    return where | found._asdict()


def _print(files: Sequence[_File], read_bytes: int, bad: Sequence[dict[str, Any]]) -> None:
    if bad:
        print_table(
            ("log", ">byte", ">offset", "file", "what"),
            [
                (
                    f"{row['topic']}-{row['partition']}",
                    row["position"],
                    row["offset"],
                    Path(row["file"]).name,
                    row["reason"],
                )
                for row in bad
            ],
            wraps="what",
        )
        print_lines("")
    found = some(len(bad), "bad place") if bad else "every batch is good"
    print_lines(f"{some(len(files), 'segment')}, {size_of(read_bytes)} read: {found}.")

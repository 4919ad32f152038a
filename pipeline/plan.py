"""plan.json: what a run reads, fixed at its first start, so that a repeated run reads the same.

    plan = ScanPlan.open(directory, job="mirror", run="nightly", arguments=..., make=...)

The first `open` calls `make` and stores its result by rename, before anything is read. Later calls
use the file, even if the logs have grown since. A file of another job or with other arguments is
refused. Offsets are ranges (start, end) without the end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.source.splits import offsets_of
from tidelog.pipeline.times import to_iso
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.source.splits import OffsetRange, Split
    from tidelog.protocol.topic_partition import TopicPartition

_VERSION: Final = 1
PLAN: Final = "plan.json"
TYPED: Final = "typed"  # among the arguments: the text of times relative to now
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})
_TIMES: Final = ("from", "to", "at")


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A plan.

    `notes` is what the job stores beside the offsets, for example positions of its target.
    """

    job: str
    run: str
    created_ms: int
    arguments: Mapping[str, Any]
    offsets: Mapping[TopicPartition, OffsetRange]
    notes: Mapping[str, Any] = field(default_factory=dict)
    splits: Sequence[tuple[str, int, int, int, int]] = ()
    is_new: bool = True

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""
        return sum(one[4] for one in self.splits)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        job: str,
        run: str,
        arguments: Mapping[str, object],
        now_ms: int,
        make: Callable[[], tuple[Sequence[Split], Mapping[str, Any]]],
        save: bool = True,
    ) -> ScanPlan:
        """Returns the plan of this run: the one in `directory`, or a new one.

        A new one is saved there unless `save` is False. `make` returns splits and notes. Raises
        UsageError for the plan of another run, PipelineError for an invalid file.
        """
        wanted = json.loads(json.dumps(dict(arguments)))
        path = directory / PLAN
        with contextlib.suppress(FileNotFoundError):
            found = cls._read(path)
            found.check(path, job, wanted)
            return found
        splits, notes = make()
        made = cls(
            job=job,
            run=run,
            created_ms=now_ms,
            arguments=wanted,
            offsets=offsets_of(splits),
            notes=json.loads(json.dumps(dict(notes))),
            splits=[
                (one.topic, one.partition, one.start_offset, one.end_offset, one.size_bytes)
                for one in splits
            ],
        )
        if save:
            made.write(path)
        return made

    @classmethod
    def arguments_at(cls, path: Path) -> Mapping[str, Any]:
        """Returns the arguments of the plan at `path`; empty without one. Raises PipelineError."""
        with contextlib.suppress(FileNotFoundError):
            return cls._read(path).arguments
        return {}

    @classmethod
    def _read(cls, path: Path) -> ScanPlan:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["version"] != _VERSION:
                raise PipelineError(
                    f"{path} has version {stored['version']}: {_VERSION} is known here"
                )
            return cls(
                job=stored["job"],
                run=stored["run"],
                created_ms=stored["created_ms"],
                arguments=stored["arguments"],
                offsets={
                    (topic, part): (start, end) for topic, part, start, end in stored["offsets"]
                },
                notes=stored["notes"],
                splits=[(one[0], one[1], one[2], one[3], one[4]) for one in stored["splits"]],
                is_new=False,
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise PipelineError(f"{path} is no plan of a run: {error}") from error

    def check(self, path: Path, job: str, wanted: Mapping[str, Any]) -> None:
        """Raises UsageError unless the plan is of this job and these arguments."""
        if self.job != job:
            raise UsageError(
                f"run {self.run} is a run of {self.job}, not of {job}: choose another --run ({path})"
            )
        for began, asked in self._differences(wanted):
            raise UsageError(
                f"run {self.run} was started with {began}, and is now asked for {asked}: repeat it as it"
                f" was, or choose another --run ({path})"
            )

    def _differences(self, wanted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields the stored and the new value of each argument that differs.

        Times are as the user wrote them.
        """
        for name in _TIMES:
            if self.arguments.get(f"{name}_ms") != wanted.get(f"{name}_ms"):
                yield _time_in(self.arguments, name), _time_in(wanted, name)
        for name in sorted({*self.arguments, *wanted} - {TYPED}):
            before, now = self.arguments.get(name), wanted.get(name)
            if before != now:
                yield f"{name} = {json.dumps(before)}", json.dumps(now)

    def write(self, path: Path) -> None:
        """Writes the plan and renames it into place; it is durable before the run continues."""
        text = json.dumps(
            {
                "version": _VERSION,
                "job": self.job,
                "run": self.run,
                "created_ms": self.created_ms,
                "arguments": self.arguments,
                "offsets": [[*key, *span] for key, span in sorted(self.offsets.items())],
                "notes": self.notes,
                "splits": [list(one) for one in self.splits],
            },
            indent=1,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{PLAN}.{os.getpid()}")
        with removed_if_failed(partial):
            with partial.open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)


def _time_in(arguments: Mapping[str, Any], name: str) -> str:
    """Returns a time among the arguments in the form of an option."""
    time_ms = arguments.get(f"{name}_ms")
    if time_ms is None:
        return f"no --{name}"
    typed = arguments.get(TYPED, {}).get(name)
    return f"--{name} {to_iso(time_ms)}" if typed is None else f"--{name} {typed}"


@contextlib.contextmanager
def removed_if_failed(partial: Path) -> Iterator[None]:
    """Removes an incomplete file after an error (a full disk) and names it. Raises OSError."""
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(partial)) from error


@contextlib.contextmanager
def at_work(directory: Path) -> Iterator[None]:
    """Locks a run's directory against other processes, as far as file locks work.

    Two processes that both find no plan would each make one. A killed process leaves no lock.
    Raises PipelineError, and OSError if nothing can be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(
                f"run {directory.name} is at work in another process ({directory}): wait until it has ended,"
                " or choose another run"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def described(plan: ScanPlan) -> str:
    """Returns the text of a dry run: each partition's range and splits, and the total.

    Bytes are left out where brokers are read: they do not report sizes.
    """
    is_sized = not plan.arguments.get("brokers")
    counts: dict[TopicPartition, list[int]] = {}
    for topic, partition, _, _, size_bytes in plan.splits:
        seen = counts.setdefault((topic, partition), [0, 0])
        seen[0] += 1
        seen[1] += size_bytes
    lines = []
    for key, (start, end) in sorted(plan.offsets.items()):
        splits, size_bytes = counts.get(key, [0, 0])
        size = f", {some(size_bytes, 'byte')}" if is_sized else ""
        name = f"{key[0]}-{key[1]}"
        cut = some(splits, "split")
        lines.append(f"{name}: offsets {start} to {end} ({end - start}), {cut}{size}")
    total = sum(end - start for start, end in plan.offsets.values())
    size = f", {some(plan.size_bytes, 'byte')}" if is_sized else ""
    lines.append(
        f"{some(len(plan.offsets), 'partition')}, {some(total, 'offset')},"
        f" {some(len(plan.splits), 'split')}{size}"
    )
    return "\n".join(lines)

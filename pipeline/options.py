"""The options that several jobs have, declared once: source, times, run and output.

    @declared
    class AuditOptions(RunOptions, Times, SourceOptions):
        ...

`selection_of` turns them into what `pipeline.source.access.plan` takes. A time relative to now
(`-2h`) means the same in every repetition of a run as when the run began: `as_begun` reads it from
plan.json.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from tidelog.client import address_of
from tidelog.config.instants import suspect_unit
from tidelog.config.units import in_its_unit, parse_size
from tidelog.pipeline.declaring import (
    HOW_TO_RUN,
    Choice,
    Flag,
    Item,
    Many,
    Options,
    Text,
    declared,
)
from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.plan import TYPED, ScanPlan
from tidelog.pipeline.source.splits import (
    HIGH_WATERMARK,
    READ_COMMITTED,
    SPLIT_BYTES,
    Selection,
    SourceError,
)
from tidelog.pipeline.times import is_relative, parse_duration, parse_time, to_iso

if TYPE_CHECKING:
    from collections.abc import Mapping

Isolation = Literal["read_committed", "read_uncommitted"]
UpTo = Literal["high-watermark", "log-end"]
Report = Literal["html", "json", "none"]
INLINE: Final = "inline"
DEFAULT_MASTER: Final = "local[*]"
AUTO: Final = "auto"  # what is small runs in this process, the rest on DEFAULT_MASTER
_NAMES = re.compile(r"[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*")
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")  # temporary files begin with a dot
LOCAL_MASTER: Final = r"local(?:\[([0-9]+|\*)(?:, *([0-9]+))?\])?"
"""A regular expression for a local master: its groups are the cores and how often a task is tried."""
_PLACE = (
    r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"  # a host, or an address of IPv6, and a port
)
_MASTER = re.compile(
    rf"{LOCAL_MASTER}|local-cluster\[ *[0-9]+ *, *[0-9]+ *, *[0-9]+ *\]|yarn"
    rf"|spark://{_PLACE}(,{_PLACE})*|k8s://.+"
)
_PLAIN = re.compile("plaintext://", re.IGNORECASE)


WHICH_RECORDS: Final = "which records"
_ISOLATION: Final = "whether records of aborted transactions are left out (read_committed)"
_UPTO: Final = "of log directories: what is replicated (high-watermark), or all there is"
BROKER: Final = ("--bootstrap-server", "--brokers")
"""More spellings of the option for the cluster that is read: that of Kafka's tools, an older one."""
COMMAND_CONFIG: Final = (
    "client properties with security settings for the brokers that are read, as Kafka's tools take"
    " them"
)
TO_COMMAND_CONFIG: Final = "the same for the brokers that are written to"


AnyOptions = TypeVar("AnyOptions", bound=Options)


class Instant(int):
    """A time in ms; `typed` is the text of a time relative to now."""

    typed: str | None = None


# --- values; the message of a ValueError is shown ------------------------------------------------


def brokers(text: str) -> str:
    """Checks and returns `host:port,...`, without `PLAINTEXT://` before an address."""
    found = [_PLAIN.sub("", one.strip()) for one in text.split(",")]
    for one in found:
        address_of(one)
    return ",".join(found)


def instant(text: str) -> Instant:
    """Parses a time: ISO 8601 with its zone, milliseconds, or a span relative to now."""
    now_ms = time.time_ns() // 1_000_000
    found = Instant(parse_time(text, now_ms))
    if suspect := suspect_unit(text):
        sys.stderr.write(f"tidelog pipeline: warning: {suspect}\n")
    if is_relative(text):
        found.typed = text.strip()
    return found


def duration(text: str) -> int:
    """Parses a span in ms, not below 0: 7d, 1h30m, 250ms, or milliseconds."""
    found = parse_duration(text)
    if found < 0:
        raise ValueError(f"'{text}' is below 0")
    return found


def size(text: str) -> int:
    """Parses a number of bytes above 0: 1000, 64k, 128MiB, 1g."""
    found = parse_size(text)
    if not found:
        raise ValueError(f"'{text}' is not a size: write 128MiB, or bytes")
    return found


def master(text: str) -> str:
    """Checks the form of a master before Spark, which takes seconds, is started for it."""
    if text not in {AUTO, INLINE} and not _MASTER.fullmatch(text):
        raise ValueError(
            f"'{text}' is no master: give {AUTO}, {INLINE}, local, local[N], spark://HOST:PORT, yarn or"
            " k8s://URL"
        )
    return text


def run_id(text: str) -> str:
    """Parses the name of a run, which must be usable as a file name."""
    if not _RUN_ID.fullmatch(text):
        raise ValueError(
            f"'{text}' is no name: letters, digits, . _ - alone, the first a letter, a digit or _"
        )
    return text


def pair(text: str) -> tuple[str, str]:
    """Parses `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"'{text}': expected KEY=VALUE")
    return key.strip(), value


def setting(text: str) -> tuple[str, str]:
    """Parses `key=value`, a setting of a topic; its value may have a unit (7d, 64MiB)."""
    key, value = pair(text)
    try:
        return key, in_its_unit(key, value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def whole(text: str) -> int:
    """Parses a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"invalid int value: {text!r}") from None


def real(text: str) -> float:
    """Parses a number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"invalid float value: {text!r}") from None


# --- what jobs share ----------------------------------------------------------------------------


def addresses(meaning: str, also: tuple[str, ...] = ()) -> Text:
    """Declares the addresses of a cluster that is read."""
    place, file = "HOST:PORT,...", "command_config"
    return Text(meaning, also=also, parse=brokers, metavar=place, secured_by=file)


def topics(meaning: str = "names, or a regular expression (all but __ topics)") -> Text:
    """Declares a selection of topics."""
    return Text(meaning, metavar="A,B|REGEX")


def moment(meaning: str, section: str | None = None) -> Item[Instant | None]:
    """Declares a time."""
    return Item(meaning, section=section, parse=instant, metavar="TIME")


def span(meaning: str, default: int) -> Item[int]:
    """Declares a span of time."""
    return Item(meaning, parse=duration, default=default, metavar="SPAN")


def pairs(meaning: str, metavar: str = "KEY=VALUE") -> Many[tuple[str, str]]:
    """Declares what is given as KEY=VALUE, or in a dictionary."""
    return Many(f"{meaning}; may be given many times", parse=pair, metavar=metavar)


def isolation(meaning: str = _ISOLATION, section: str | None = None) -> Choice[Isolation]:
    """Declares which transactions count."""
    choices, default = get_args(Isolation), READ_COMMITTED
    return Choice(meaning, section=section, choices=choices, default=default)


def upto(meaning: str = _UPTO) -> Choice[UpTo]:
    """Declares up to where log directories are read."""
    return Choice(meaning, choices=get_args(UpTo), default=HIGH_WATERMARK)


@declared
class SourceOptions(Options):
    """The source, and the selection of records."""

    section = WHICH_RECORDS
    one_of = ("broker", "logs")
    needs_one = True

    broker: Text = addresses("read from a cluster", also=BROKER)
    logs: Many[str] = Many(
        "read log directories, or copies of them in an object store (s3://bucket/logs)",
        metavar="DIR|URI",
    )
    command_config: Text = Text(COMMAND_CONFIG, metavar="FILE")
    topics: Text = topics()
    split_bytes: Item[int] = Item(
        "how much a task reads (128m)", parse=size, default=SPLIT_BYTES, metavar="SIZE"
    )


@declared
class Times(Options):
    """The limits of event time."""

    section = WHICH_RECORDS

    from_: Item[Instant | None] = moment("event time, included")
    to: Item[Instant | None] = moment("event time, not included")


@declared
class TimedSource(Times, SourceOptions):
    """A selection of records, also by event time."""


@declared
class Left(Options):
    """The name of a run, and what it leaves."""

    section = HOW_TO_RUN

    run: Item[str] = Item(
        "a name for this run; again with the same name, it reads the same offsets",
        parse=run_id,
        metavar="ID",
    )
    out: Item[str] = Item("where to leave it (tidelog-runs)", default="tidelog-runs", metavar="DIR")
    report: Choice[Report] = Choice(
        "which report to write", choices=get_args(Report), default="html"
    )

    def __post_init__(self) -> None:
        """Names a run without a name."""
        super().__post_init__()
        if self.run is None:
            name = new_run_id(self.action or self.job, time.time_ns() // 1_000_000)
            self.__dict__["run"] = name

    @property
    def run_directory(self) -> Path:
        """Where the run leaves its files."""
        return Path(self.out) / self.run


@declared
class RunOptions(Left):
    """How a job with tasks is run."""

    section = HOW_TO_RUN

    dry_run: Flag = Flag("say what would be done: splits and bytes; no Spark")
    master: Text = Text(
        f"a Spark master, or '{INLINE}': this process, without Spark; '{AUTO}': this process for what"
        f" is small, else {DEFAULT_MASTER} (the master of spark-submit, else {AUTO})",
        parse=master,
        metavar="URL",
    )
    conf: Many[tuple[str, str]] = Many(
        "a Spark setting; may be given many times", parse=pair, metavar="KEY=VALUE"
    )


# --- combined options ---------------------------------------------------------------------------


def selection_of(options: TimedSource, **more: Any) -> Selection:
    """Returns the selection by the options and further fields in `more`. Raises UsageError."""
    low, high = range_of(options)
    names, pattern = topics_of(options.topics)
    try:
        return Selection(
            topics=names,
            pattern=pattern,
            low_time=low,
            high_time=high,
            split_bytes=options.split_bytes,
            **more,
        )
    except SourceError as error:
        raise UsageError(f"--topics: {error}") from error


def range_of(options: Times) -> tuple[int | None, int | None]:
    """Returns start and end of the range of event times. Raises UsageError for an empty range."""
    low, high = (
        None if time_ms is None else int(time_ms) for time_ms in (options.from_, options.to)
    )
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--from {to_iso(low)} is not before --to {to_iso(high)}")
    return low, high


def topics_of(text: str | None) -> tuple[tuple[str, ...], str | None]:
    """Returns names separated by commas, or else the text as a regular expression."""
    if text is None:
        return (), None
    if _NAMES.fullmatch(text):
        return tuple(dict.fromkeys(text.split(","))), None
    return (), text


def new_run_id(job: str, now_ms: int) -> str:
    """Returns a name for a run without one."""
    stamp = to_iso(now_ms).partition(".")[0].replace("-", "").replace(":", "")
    return f"{job}-{stamp}Z-{secrets.token_hex(2)}"


def read_arguments(options: TimedSource) -> Mapping[str, object]:
    """Returns the arguments that decide which records are read, as plan.json stores them."""
    return {
        "brokers": options.broker,
        "logs": options.logs or None,
        "topics": options.topics,
        **time_arguments(options),
    }


def time_arguments(options: Options) -> dict[str, object]:
    """Returns the given times in ms, with the text of those relative to now."""
    given = {name: getattr(options, field) for name, field in _times(options).items()}
    typed = {
        name: time_ms.typed
        for name, time_ms in given.items()
        if time_ms is not None and time_ms.typed is not None
    }
    absolute = {
        f"{name}_ms": None if time_ms is None else int(time_ms) for name, time_ms in given.items()
    }
    return {**absolute, **({TYPED: typed} if typed else {})}


def _times(options: Options) -> dict[str, str]:
    """Returns the fields of a job that are times, by the names of their options."""
    return {
        one.spellings[0].lstrip("-"): one.name for one in options.declared() if one.parse is instant
    }


def as_begun(options: AnyOptions, path: Path) -> AnyOptions:
    """Resolves times relative to now as when the run with the plan at `path` began."""
    before = ScanPlan.arguments_at(path)
    frozen: dict[str, Instant] = {}
    for name, field in _times(options).items():
        given, was_typed = getattr(options, field), before.get(TYPED, {}).get(name)
        if given is not None and given.typed is not None and given.typed == was_typed:
            frozen[field] = Instant(before[f"{name}_ms"])
            frozen[field].typed = given.typed
    return options.but(**frozen)

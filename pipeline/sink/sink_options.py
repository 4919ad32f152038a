"""The options of a write to `timelog`, and the columns that it takes."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import uuid
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.client import Brokers, secured
from tidelog.pipeline.replay.delivery import AUTO, MODES
from tidelog.pipeline.replay.targets import CODECS
from tidelog.pipeline.timelog import security
from tidelog.pipeline.timelog.names import OptionError, options_of
from tidelog.pipeline.timelog.spark_options import SINK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log = logging.getLogger("tidelog.pipeline")
T = TypeVar("T", bound=str)
NAMES: Final = (
    "brokers",
    "topic",
    "run",
    "staging",
    "delivery",
    "exclusive",
    "compression",
    "clientId",
    "checkpointLocation",
    security.COMMAND_CONFIG,
)
ALIASES: Final = {
    "kafka.bootstrap.servers": "brokers",
    "kafka.compression.type": "compression",
    "kafka.client.id": "clientId",
}
_BYTES: Final = ("binary", "string")
_INTEGERS: Final = ("bigint", "int", "smallint", "tinyint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "header_names": ("array<binary>",),
    "topic": ("string",),
    "partition": _INTEGERS,
    "timestamp": ("timestamp",),
    "timestamp_ms": _INTEGERS,
}
"""The columns that are written, and their types in Spark."""

_MOST_REMOVALS: Final = 100
_RUN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,100}")
_OF_READS: Final = ("offset", "timestampType", "append_time_ms", "has_timestamp", "plausible")
"""Columns of a read, which a record cannot be given: they are left out."""


class SinkOptions:
    """The options, parsed and checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Parses the options. Raises OptionError."""
        settings, others = security.split(given)
        own, self.unused = options_of("a write to timelog", others, NAMES, ALIASES, SINK)
        if "brokers" not in own:
            raise OptionError("a write to timelog needs kafka.bootstrap.servers")
        self._addresses, self._secured = own["brokers"], settings
        self._client_id = own.get("clientId")
        self._command_config = own.get(security.COMMAND_CONFIG)
        self.topic = own.get("topic")
        self.run = own.get("run")
        if self.run is not None and not _RUN.fullmatch(self.run):
            raise OptionError(f"run is a name of letters, digits, . _ and -, not '{self.run}'")
        self.delivery = _one_of("delivery", own.get("delivery", AUTO), MODES)
        self.compression = _one_of("compression", own.get("compression", "none"), CODECS[1:])
        self.exclusive = _one_of("exclusive", own.get("exclusive", "false"), ("true", "false"))
        self._staging = own.get("staging")
        self._checkpoint = own.get("checkpointLocation")

    @cached_property
    def brokers(self) -> Brokers:
        """The brokers, with their security settings; these are read from files where it is asked for.

        Raises OptionError for a mistake in the settings.
        """
        found = secured(self._addresses, security.security_of(self._secured, self._command_config))
        found.client_id = self._client_id
        return found

    def warn(self, unwritten: Sequence[str]) -> None:
        """Logs the options that change nothing here, and the columns that are not written."""
        for one in self.unused:
            _log.warning("%s", one)
        if unwritten:
            _log.warning("columns are not written: %s", ", ".join(unwritten))

    def staging(self) -> Path:
        """Returns the directory for staged rows. Raises OptionError if there is none to be had."""
        place = self._staging
        if place is None and self._checkpoint is not None:
            place = f"{self._checkpoint}/timelog"
        if place is None:
            raise OptionError(
                "staging is needed: a directory that all machines of the cluster share"
            )
        plain = place.removeprefix("file://") if place.startswith("file:///") else place
        plain = plain.removeprefix("file:")
        if "://" in plain:
            raise OptionError(f"staging is a directory that all machines share, not {place}")
        return Path(plain).absolute()

    def directory_of_batch(self) -> Path:
        """Returns where a batch is staged: that of its run, or a temporary one. Raises OptionError."""
        if self.run is not None:
            if self._staging is None:
                raise OptionError(
                    "run needs staging: a directory that stays, so that a second attempt finds what"
                    " the first has written"
                )
            return self.staging() / self.run
        name = f"tidelog-{uuid.uuid4().hex}"
        return (self.staging() if self._staging else Path(tempfile.gettempdir())) / name

    def forget(self, directory: Path) -> None:
        """Removes the directory of a batch that has no name, and so cannot be repeated.

        Tasks that Spark has not ended yet may add a file meanwhile: then it is removed again.
        """
        for _ in range(_MOST_REMOVALS if self.run is None else 0):
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                return


def _one_of(name: str, value: str, values: tuple[T, ...]) -> T:
    for one in values:
        if one == value.lower():
            return one
    raise OptionError(f"{name} is one of {', '.join(values)}, not '{value}'")


def check(schema: Any, options: SinkOptions, *, overwrite: bool) -> list[str]:
    """Returns the columns that are not written, as Spark's own sink does not.

    Raises OptionError for a column of a wrong type, and for one that is missing.
    """
    if overwrite:
        raise OptionError("timelog appends to topics: write with mode append")
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, type_ in types.items():
        if type_ not in COLUMNS.get(name, (type_,)) and type_ != "void":
            raise OptionError(f"column {name} is {' or '.join(COLUMNS[name])}, not {type_}")
    if "value" not in types:
        raise OptionError(f"a record needs a column value, and there are {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise OptionError("where to? Give the option topic, or a column topic")
    return [name for name in types if name not in COLUMNS and name not in _OF_READS]

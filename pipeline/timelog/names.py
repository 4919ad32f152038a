"""The names of the options of `timelog`: ours, those of Spark's Kafka source, and those to ignore."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = (
    "path",
    "paths",
    "brokers",
    "commandConfig",
    "topics",
    "topicsPattern",
    "assign",
    "level",
    "from",
    "to",
    "upto",
    "isolation",
    "verifyCrc",
    "includeHeaders",
    "minPartitions",
    "maxPartitionBytes",
    "maxPartitionOffsets",
    "maxBatchBytes",
    "trustTimeIndex",
    "offsets",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "pushFilters",
)
ALIASES: Final = {
    "kafka.bootstrap.servers": "brokers",
    "subscribe": "topics",
    "subscribePattern": "topicsPattern",
    "kafka.isolation.level": "isolation",
}
"""Names of Spark's Kafka source that mean the same."""

TUNING: Final = (
    "groupIdPrefix",
    "kafka.client.id",
    "kafka.group.id",
    "kafka.max.poll.records",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.receive.buffer.bytes",
    "kafka.request.timeout.ms",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options that tune a consumer of Java, which this source does not have. They change nothing."""

_CATALOG: Final = {  # what Spark's catalog adds to the options of a table
    "provider",
    "owner",
    "location",
    "external",
    "comment",
    "collation",
    "is_managed_location",
    "serialization.format",
    "transient_lastddltime",
}
_AS_GIVEN: Final = "option."  # before the names of a table's options, as the user wrote them


class OptionError(ValueError):
    """An invalid option; the message names it."""


def is_of_table(given: Mapping[str, str]) -> bool:
    """Returns whether these are the options of a table in Spark's catalog."""
    return "provider" in {name.lower() for name in given}


def named(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options by our own names, whose case does not matter.

    Raises OptionError for an unknown name, naming those near it, and for one that is given twice.
    """
    if is_of_table(given):
        given = _of_table(given)
    known = {name.lower(): name for name in (*NAMES, *ALIASES, *TUNING)}
    found: dict[str, str] = {}
    said: dict[str, str] = {}
    for name, value in given.items():
        spelled = known.get(name.lower())
        if spelled is None:
            raise OptionError(_unknown(name, known))
        if spelled in TUNING:
            continue
        own = ALIASES.get(spelled, spelled)
        if own in found and found[own] != value:
            raise OptionError(f"{spelled} and {said[own]} are one option: give one of them")
        found[own], said[own] = value, spelled
    return found


def _unknown(name: str, known: Mapping[str, str]) -> str:
    near = [known[each] for each in difflib.get_close_matches(name.lower(), known, 3)]
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"timelog has no option {name}{hint} It has: {', '.join((*NAMES, *ALIASES))}"


def _of_table(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that the user wrote, without what the catalog made of them."""
    lower = {name.lower(): value for name, value in given.items()}
    written = {
        name.removeprefix(_AS_GIVEN): value
        for name, value in lower.items()
        if name.startswith(_AS_GIVEN)
    }
    others = {
        name: value
        for name, value in lower.items()
        if not name.startswith(_AS_GIVEN) and name not in _CATALOG
    }
    if "path" in others:  # the catalog makes a URI of it
        others["path"] = re.sub("^file:/+", "/", others["path"])
    return others | written

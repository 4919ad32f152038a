"""The names of the options of `timelog`: ours, and those of Spark's Kafka source that mean the same."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import public
from tidelog.pipeline.timelog.spark_options import REFUSED, SOURCE, UNUSED, Meaning, meaning_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMES: Final = (
    "path",
    "brokers",
    "commandConfig",
    "rack",
    "clientId",
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
    "maxRecordsPerPartition",
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
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "plausible",
    "pushFilters",
)
PATHS: Final = "paths"
"""What Spark makes of `load([...])`: a list in JSON. Nobody writes it, so no message names it."""

METADATA: Final = "timelog.options"
"""In the metadata of a table's first column: the options, as JSON."""

ALIASES: Final = {
    "kafka.bootstrap.servers": "brokers",
    "subscribe": "topics",
    "subscribePattern": "topicsPattern",
    "kafka.isolation.level": "isolation",
    "kafka.client.rack": "rack",
    "kafka.client.id": "clientId",
    "kafka.check.crcs": "verifyCrc",
}
"""Names of Spark's Kafka source that mean the same."""

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


@public("tidelog.spark")
class OptionError(ValueError):
    """An invalid option; the message names it."""


def is_of_table(given: Mapping[str, str]) -> bool:
    """Returns whether these are the options of a table in Spark's catalog."""
    return "provider" in {name.lower() for name in given}


def carried(metadata: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that the first column of a table carries in its metadata.

    Raises OptionError for a column that the table itself has declared: it carries none.
    """
    if METADATA not in metadata:
        raise OptionError(
            "a table that declares columns loses its options: leave the columns out of CREATE TABLE"
        )
    return dict(json.loads(metadata[METADATA]))


def named(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Returns the options of a source by our own names, as `options_of` does."""
    written = _of_table(given) if is_of_table(given) else given
    return options_of("timelog", written, (*NAMES, PATHS), ALIASES, SOURCE)


def options_of(
    what: str,
    given: Mapping[str, str],
    names: Sequence[str],
    aliases: Mapping[str, str],
    of_spark: Mapping[str, Meaning],
) -> tuple[dict[str, str], list[str]]:
    """Returns the options by our own names, and a sentence for each that changes nothing.

    The case of names does not matter. Raises OptionError for an unknown name, naming those near it,
    for one that is given twice, and for one that only Spark's own source or sink can have.
    """
    found: dict[str, str] = {}
    said: dict[str, str] = {}
    unused = []
    for name, value in given.items():
        known = spelled(name, (*names, *aliases))
        if known is None:
            meaning = meaning_of(name, of_spark, aliases)
            if meaning is None:
                near = [one for one in (*names, *aliases) if one != PATHS]
                raise OptionError(unknown(what, name, near))
            if meaning.kind == REFUSED:
                raise OptionError(f"{name} is not supported: {meaning.says}")
            if meaning.kind == UNUSED:
                unused.append(f"option {name} changes nothing: {meaning.says}")
            continue
        own = aliases.get(known, known)
        if own in found and found[own] != value:
            raise OptionError(f"{known} and {said[own]} are one option: give one of them")
        found[own], said[own] = value, known
    return found, unused


def spelled(name: str, known: Sequence[str]) -> str | None:
    """Returns a name as it is declared; None if it is not."""
    return {one.lower(): one for one in known}.get(name.lower())


def unknown(what: str, name: str, known: Sequence[str], *, kind: str = "option") -> str:
    """Returns the sentence for an unknown name, with at most three that are near it."""
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], 3)
    spelling = [spelled(one, known) or one for one in near]
    if spelling:
        return f"{what} has no {kind} {name}; did you mean {' or '.join(spelling)}?"
    return f"{what} has no {kind} {name}, nor one of a similar name: see docs/pipeline"


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

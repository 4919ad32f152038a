"""Topics and partitions as commands take them: TOPIC, or TOPIC:0,2 for some of its partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.cli.shared import CommandError, UsageError
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cli.cluster import Cluster
    from tidelog.protocol.topic_partition import TopicPartition

Wanted = Mapping[str, Sequence[int] | None]
"""Partitions by topic; None stands for all of them."""

_PLACES = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)(:(?P<numbers>[0-9]{1,9}(,[0-9]{1,9})*))?")


def places_given(given: Iterable[str]) -> Wanted:
    """Parses TOPIC or TOPIC:0,1. Raises CommandError."""
    found: dict[str, list[int] | None] = {}
    for text in given:
        match = _PLACES.fullmatch(text)
        if match is None:
            raise UsageError(f"{text}: expected TOPIC or TOPIC:0,1")
        if match["topic"] in found:
            raise UsageError(f"{match['topic']} is named twice")
        numbers = match["numbers"]
        found[match["topic"]] = (
            None if numbers is None else sorted({int(each) for each in numbers.split(",")})
        )
    return found


def places_in(cluster: Cluster, wanted: Wanted) -> list[TopicPartition]:
    """Returns the selected partitions, all of which exist. Raises CommandError."""
    found = []
    for described in cluster.topics(list(wanted)):
        name, numbers = described.name, wanted[described.name]
        there = [each.number for each in described.partitions]
        for number in numbers or ():
            if number not in there:
                has = some(len(there), "partition")
                raise CommandError(f"there is no partition {name}-{number}: the topic has {has}")
        found += [(name, number) for number in (there if numbers is None else numbers)]
    return found

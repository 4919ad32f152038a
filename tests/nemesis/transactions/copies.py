"""What a group reads, transforms and writes: each record below its committed offset is copied once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.nemesis.checker import Found, Kind
from tests.nemesis.history import Told, said, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.nemesis.checker import Logs
    from tests.nemesis.history import Place


def wrong(logs: Logs, events: Iterable[object], groups: Mapping[str, str]) -> Iterator[Found]:
    """Yields what is wrong with the copies.

    `groups` maps each group to the topic of its copies. What a group was told last, after all
    else, is its committed offset.
    """
    told: dict[tuple[str, Place], int] = {}
    for event in events:
        if isinstance(event, Told):
            told[event.group, event.place] = event.offset
    for group, topic in groups.items():
        made = _copies(logs, topic)
        known = set()
        for (name, place), end_offset in told.items():
            if name != group:
                continue
            for entry in logs.get(place, ()):
                source = source_of(place, entry.offset)
                known.add(source)
                copies = made.get(source, [])
                is_due = entry.offset < end_offset
                what = f"{source} by {group}, which has committed {end_offset}"
                if is_due and not copies:
                    yield Found(Kind.NOT_COPIED, place, what)
                elif len(copies) > is_due:
                    yield Found(Kind.COPIED_TWICE, place, f"{what}: {', '.join(copies)}")
        for source in made.keys() - known:
            yield Found(Kind.ABORTED_READ, topic, f"a copy of {source}, which is not there")


def _copies(logs: Logs, topic: str) -> dict[str, list[str]]:
    """Returns where the copies of each source are, by the names of sources."""
    made: defaultdict[str, list[str]] = defaultdict(list)
    for place, log in logs.items():
        if place.topic != topic:
            continue
        for entry in log:
            value = said(entry.value)
            if value is not None:
                made[value.more].append(source_of(place, entry.offset))
    return made

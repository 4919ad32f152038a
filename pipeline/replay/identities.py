"""Tells a topic from a later topic of the same name by its topic id, if the broker reports ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.client import Client


def ids_of(client: Client, names: Iterable[str]) -> dict[str, str]:
    """Returns the ids of those topics that exist and have an id."""
    wanted = set(names)
    if not wanted:
        return {}
    return {
        name: one.topic_id
        for name, one in sorted(client.topics().items())
        if name in wanted and one.topic_id
    }


def made_anew(client: Client, known: Mapping[str, str]) -> list[str]:
    """Returns the topics whose id has changed."""
    return [name for name, found in ids_of(client, known).items() if found != known[name]]


def sentence(topic: str, place: str) -> str:
    """Returns the error sentence for a topic of the source or the target that was created again."""
    return (
        f"topic {topic} of the {place} is not the one that was planned: it was deleted and recreated; begin a"
        " new run"
    )

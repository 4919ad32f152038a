"""Valid topic names, and the text form of ids, as in Kafka.

A topic's name is 1 to 249 characters of [a-zA-Z0-9._-], and neither "." nor "..", because it must
fit into a directory name. Metrics write "." as "_", so two topics whose names differ only there
collide.

Ids are 16 random bytes in URL-safe base64 without padding. Ids that begin with "-" are avoided,
because command lines would parse them as options, and so are the two that Kafka reserves.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID, uuid4

from tidelog.protocol.errors import InvalidTopic

MAX_NAME_LENGTH = 249
RESERVED_IDS = (UUID(int=0), UUID(int=1))
"""Ids that no topic has, as in Kafka."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raises InvalidTopic, with the reason, for a name that Kafka does not allow."""
    if not name:
        raise InvalidTopic("a topic's name must not be empty")
    if name in (".", ".."):
        raise InvalidTopic(f"a topic cannot be called {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(
            f"a topic's name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"topic name {name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
        )


def collision_key(name: str) -> str:
    """Returns the form of a name that two topics must not have in common."""
    return name.replace(".", "_")


def new_id() -> UUID:
    """Returns a random id that Kafka could choose."""
    while True:
        chosen = uuid4()
        if chosen not in RESERVED_IDS and not written_id(chosen).startswith("-"):
            return chosen


def written_id(value: UUID) -> str:
    """Returns an id as Kafka's 22 characters of base64."""
    return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def read_id(written: str) -> UUID:
    """Returns the id in the 22 characters that `written_id` makes. Raises ValueError."""
    value = UUID(bytes=urlsafe_b64decode(written + "=="))
    if written_id(value) != written:
        raise ValueError(f"{written!r} is no id")
    return value

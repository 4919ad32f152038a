"""Topics that a test needs, created over Kafka's protocol before the test's own client connects.

A refusal is a tidelog.errors.RequestError, and a broker that does not run a ClusterUnreachable. pytest
shows both where the test asked for the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__tracebackhide__ = True

AS_THE_BROKER_SAYS = -1
"""As many partitions as `num.partitions` says."""


def create_topic(
    bootstrap: str, name: str, partitions: int, settings: Mapping[str, object] | None = None
) -> None:
    """Creates a topic and returns when clients can use it.

    Raises RequestError, and ClusterUnreachable.
    """
    from tidelog.client import Client, ClientError

    texts = {name: as_text(value) for name, value in (settings or {}).items()}
    with Client(bootstrap) as client:
        try:
            client.create_topic(name, partitions, texts)
        except ClientError as error:
            raise error.with_traceback(None) from None


def create_missing(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Creates those of some topics, given with their partitions, that do not exist. Raises RequestError."""
    from tidelog.client import Client

    with Client(bootstrap) as client:
        known = client.topics()
    for name, partitions in topics.items():
        if name not in known:
            create_topic(bootstrap, name, partitions)


def as_text(value: object) -> str:
    """Returns a setting's value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

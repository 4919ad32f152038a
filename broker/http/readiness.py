"""The reasons for which /readyz is 503: why this broker serves no clients, or not all partitions.

/readyz, /v1/doctor and /v1/cluster show the reasons that `reasons` returns, so they cannot differ. A leap of
the clock is a warning and no reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.http.services import Services

NOT_SERVING = "broker not serving"
SUSPENDED = "all leaders suspended"
OFFLINE = "log offline"
FULL = "directory full"
WENT_BACK = "metadata went back"


class Reason(NamedTuple):
    """One reason, as a line without its end; `topic` and `partition` are those of a log."""

    kind: str
    line: str
    topic: str | None = None
    partition: int | None = None


def reasons(services: Services) -> list[Reason]:
    """Returns why /readyz is 503, without reading a file of a log; nothing if it is 200."""
    return [*_of_session(services), *_of_logs(services)]


def _of_session(services: Services) -> Iterator[Reason]:
    """Yields the reasons of the broker: it starts or stops, has no session, or cannot use the metadata."""
    why = services.cluster.why_not_serving
    if why is not None:
        yield Reason(NOT_SERVING, f"not ready: {why}")
    elif not services.ready:
        yield Reason(NOT_SERVING, "not ready")
    elif services.replicas.all_suspended:
        line = (
            "not ready: every partition led here is suspended: the metadata are out of reach, and no "
            "in-sync replica asks"
        )
        yield Reason(SUSPENDED, line)
    if services.metadata.went_back is not None:
        yield Reason(WENT_BACK, f"not ready: {services.metadata.went_back}")


def _of_logs(services: Services) -> Iterator[Reason]:
    """Yields the logs that a failed write has taken offline, and the directories that are full."""
    for each in services.partitions.offline():
        line = f"{each.topic}-{each.index} is offline: {each.offline}"
        yield Reason(OFFLINE, line, each.topic, each.index)
    for path in services.store.full_directories():
        yield Reason(FULL, f"not ready: no space left in {path}")

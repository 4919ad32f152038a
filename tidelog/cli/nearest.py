"""The nearest name where one that was given does not exist."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidelog.control import ControlError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.control import ControlClient


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean NAME?` for the end of a sentence, or an empty text if none is near."""
    from tidelog.config.setting import closest  # late: with it come all settings

    near = closest(name, known)
    return f"; did you mean {near}?" if near else ""


def nearest_topic(client: ControlClient, name: str) -> str:
    """Returns `did_you_mean` of the topics that a broker names over HTTP, nothing for one of them."""
    with contextlib.suppress(OSError, ControlError, ValueError, KeyError, TypeError):
        known = {each["topic"] for each in client.ask("GET", "/v1/cluster")["partitions"]}
        if name not in known:
            return did_you_mean(name, sorted(known))
    return ""

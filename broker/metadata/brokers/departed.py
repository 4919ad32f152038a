"""The brokers whose sessions have just ended: Metadata responses still list them for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.image import Image


class Departed:
    """The brokers whose sessions have ended, as they were, until they have another session."""

    def __init__(self) -> None:
        self._gone: dict[int, tuple[LiveBroker, float]] = {}  # and when the image lost them

    def __bool__(self) -> bool:
        return bool(self._gone)

    def observe(self, before: Image, after: Image, now_s: float) -> None:
        """Compares two images, and keeps the brokers that are missing in the newer one."""
        for broker in after.brokers:
            self._gone.pop(broker, None)
        for broker, live in before.brokers.items():
            if broker not in after.brokers:
                self._gone[broker] = live, now_s

    def since(self, since_s: float) -> list[LiveBroker]:
        """Returns those that went missing after a time in s, and drops the others."""
        self._gone = {broker: each for broker, each in self._gone.items() if each[1] >= since_s}
        return [live for live, _ in self._gone.values()]

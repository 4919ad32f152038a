"""What coordinators need of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import Protocol

from tidelog.broker.partitions.services import Services as Below


class Services(Below, Protocol):
    """What coordinators need."""

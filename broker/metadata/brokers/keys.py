"""The keys that brokers write about themselves (`records.py`)."""

from __future__ import annotations

from typing import Final

LIVE_PREFIX: Final = "live/"
REGISTRATION_PREFIX: Final = "broker/"
OFFLINE_PREFIX: Final = "offline/"
SEEN_PREFIX: Final = "seen/"
CONTROLLER: Final = "controller"
MEMBER_PREFIXES: Final = (LIVE_PREFIX, REGISTRATION_PREFIX, OFFLINE_PREFIX, SEEN_PREFIX)
"""The prefixes that the id of a broker follows."""
MEMBER_KEYS: Final = (*MEMBER_PREFIXES, CONTROLLER)
"""The prefixes of all keys that brokers write."""

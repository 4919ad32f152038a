"""Logs the settings that were given at the start and have no effect, one line for each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.config.load import BROKER_NAMES, DEFAULT_NAMES

if TYPE_CHECKING:
    from tidelog.config import BrokerConfig

log = logging.getLogger("tidelog.settings")


def log_ignored(config: BrokerConfig) -> None:
    """Logs every setting that was given at the start and has no effect."""
    for name, value in config.ignored.items():
        log.info("setting accepted and ignored", extra={"setting": name, "value": value})
    for name, given in config.given.items():
        setting = BROKER_NAMES.get(name) or DEFAULT_NAMES.get(name)
        if setting is not None and not setting.effective:
            extra = {"setting": name, "value": given.value}
            log.info("setting accepted and ignored", extra=extra)

"""Logs settings that have no effect: at the start, and when one is changed later.

A safety setting that nothing enforces is a warning, in a line of its own; every other setting that is
ignored is information. Which settings promise safety in vain, and what each leaves open, is declared in
`config/unenforced.py`; this file only logs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from config import unenforced
from config.load import BROKER_NAMES, DEFAULT_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.metadata.image import Image
    from config import BrokerConfig

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
    warn_unenforced({name: given.value for name, given in config.given.items()})


def log_unenforced_in(image: Image) -> None:
    """Warns of safety settings without effect that were changed before this start."""
    warn_unenforced(image.broker_configs)


def warn_unenforced(given: Mapping[str, str | None]) -> None:
    """Warns of each safety setting of the broker among `given` that nothing enforces."""
    for name, consequence in unenforced(given).items():
        log.warning(
            "a safety setting is not enforced: %s",
            consequence,
            extra={"setting": name},
        )

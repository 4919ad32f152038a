"""The steps of KIP-32's migration as the settings of three brokers, and who is restarted for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.versions import magic_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BROKERS = (1, 2, 3)
CANARY = 2
_PROTOCOL, _FORMAT = "inter.broker.protocol.version", "log.message.format.version"
OLD, NEW, NEWEST = "0.9.0", "0.10.2", "3.9"


class Step(NamedTuple):
    """One step: the releases that all brokers get, and those that one broker gets instead."""

    name: str
    protocol: str
    message_format: str
    canary_format: str | None = None
    restarted: tuple[int, ...] = BROKERS

    def magic(self, broker: int) -> int:
        """The message format that a broker writes in this step."""
        own = self.canary_format if broker == CANARY else None
        return magic_of(own or self.message_format)

    def write(self, file: Path) -> None:
        """Writes the properties files: that of all brokers, and that of the canary."""
        _write(file, {_PROTOCOL: self.protocol, _FORMAT: self.message_format})
        own = file.with_name(f"{file.stem}.{CANARY}{file.suffix}")
        own.unlink(missing_ok=True)
        if self.canary_format is not None:
            _write(own, {_FORMAT: self.canary_format})


def _write(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


BEGIN = Step("phase 1, old protocol", OLD, OLD)
PHASE_1 = Step("phase 1", NEW, OLD)
CANARY_STEP = Step("canary", NEW, OLD, canary_format=NEW, restarted=(CANARY,))
CANARY_BACK = Step("canary rolled back", NEW, OLD, restarted=(CANARY,))
PHASE_2 = Step("phase 2", NEW, NEW)
PHASE_2_BACK = Step("phase 2 rolled back", NEW, OLD)
ALL_BACK = Step("phase 1 rolled back", OLD, OLD)
LAST = Step("format 2", NEWEST, NEWEST)

SHORT = (BEGIN, PHASE_1, CANARY_STEP, CANARY_BACK, PHASE_2)
LONG = (*SHORT, PHASE_2_BACK, ALL_BACK, PHASE_1, PHASE_2, LAST)

"""Security settings from where users have them: a client properties file, or Spark's options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security.settings import Security
from tidelog.config.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARK: Final = "kafka."


def read_settings(path: str) -> dict[str, str]:
    """Returns the settings in a properties file as Kafka's tools take it (`--command-config`).

    Raises SecuritySettingsError if it cannot be read.
    """
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SecuritySettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecuritySettingsError(f"{path} is not UTF-8 text") from None


def security_in(path: str) -> Security | None:
    """Returns the security that a properties file asks for; None if it is about other matters.

    Raises SecuritySettingsError, which names the file.
    """
    try:
        return Security.of(read_settings(path))
    except SecuritySettingsError as error:
        name = "" if str(error).startswith(path) else f"{path}: "
        raise SecuritySettingsError(f"{name}{error}") from None


def of_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings among options of Spark: those that begin with `kafka.`, without it."""
    return {
        name.lower().removeprefix(_SPARK): value
        for name, value in options.items()
        if name.lower().startswith(_SPARK)
    }

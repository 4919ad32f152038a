"""The options of `timelog` for secured brokers: `kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`.

They are those of Spark's Kafka source. Instead, or beside them, `commandConfig` names a client
properties file. It and the stores that it names are read where the query is planned; workers get
what was read (docs/security.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client import SecuritySettingsError
from tidelog.client.security import Security
from tidelog.client.security.files import of_spark, read_settings
from tidelog.client.security.options import FAMILIES
from tidelog.pipeline.timelog.names import OptionError, is_of_table

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND_CONFIG: Final = "commandConfig"
_SPARK: Final = tuple(f"kafka.{each}" for each in FAMILIES)
_OF_TABLE: Final = "option."


def split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the security settings among the options, by Kafka's names, and all other options.

    Raises OptionError for settings of a table: Spark's catalog would store and show them.
    """
    settings = {name: value for name, value in given.items() if _is_security(name)}
    if settings and is_of_table(given):
        raise OptionError(
            f"the options of a table are stored in Spark's catalog: give {COMMAND_CONFIG}, a file with"
            " the security settings, instead of them"
        )
    others = {name: value for name, value in given.items() if name not in settings}
    return of_spark(settings), others


def _is_security(name: str) -> bool:
    return name.lower().removeprefix(_OF_TABLE).startswith(_SPARK)


def security_of(settings: Mapping[str, str], path: str | None) -> Security | None:
    """Returns the security by settings and by the file at `path`, if one is given.

    Raises OptionError, also for a setting that has two values.
    """
    try:
        in_file = {} if path is None else read_settings(path)
        for name in settings:
            if in_file.get(name, settings[name]) != settings[name]:
                raise OptionError(f"kafka.{name} differs from {name} in {path}: remove one")
        return Security.of({**in_file, **settings})
    except SecuritySettingsError as error:
        raise OptionError(f"{error}") from None

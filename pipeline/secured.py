"""How jobs reach secured brokers: `--command-config` for the source, `--to-command-config` for the target.

The files have Kafka's settings (docs/security.md). They are read once, when the job starts, and
their settings go with the addresses to the tasks. So does what the job finds out: whether brokers at
these addresses have answered. Plans and reports contain addresses alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tidelog.client import Brokers, SecuritySettingsError, secured
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.security.settings import Security
    from tidelog.pipeline.declaring import Options

O = TypeVar("O", bound="Options")  # noqa: E741 - the options of any job


def with_command_configs(options: O) -> O:
    """Returns options whose addresses of brokers carry the settings in the files that are given.

    Raises UsageError for a mistake in a file, or for one that is about no brokers.
    """
    carried: dict[str, Brokers] = {}
    for file, fields in _addresses(options).items():
        given = {name: getattr(options, name) for name in fields}
        given = {name: each for name, each in given.items() if each is not None}
        security = _security_in(file, getattr(options, file), is_used=bool(given))
        carried |= {name: secured(each, security) for name, each in given.items()}
    return options.but(**carried)


def _addresses(options: Options) -> dict[str, list[str]]:
    """Returns the fields with addresses of brokers, by the field with the file for them."""
    found: dict[str, list[str]] = {}
    for option in options.declared():
        if option.secured_by is not None:
            found.setdefault(option.secured_by, []).append(option.name)
    return found


def _security_in(file: str, path: str | None, *, is_used: bool) -> Security | None:
    if path is None:
        return None
    option = f"--{file.replace('_', '-')}"
    if not is_used:
        raise UsageError(f"{option} has the settings for brokers, and none are named")
    from tidelog.client.security.files import security_in

    try:
        return security_in(path)
    except SecuritySettingsError as error:
        raise UsageError(f"{option} {error}") from None

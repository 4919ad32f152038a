"""How jobs reach secured brokers: `--command-config` for the source, `--to-command-config` for the target.

The files have Kafka's settings (docs/security.md). They are read once, when the job starts, and
their settings go with the addresses to the tasks. So does what the job finds out: whether brokers at
these addresses have answered. Plans and reports contain addresses alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client import Brokers, SecuritySettingsError, secured
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from tidelog.client.security.settings import Security
    from tidelog.pipeline.declaring import Options

O = TypeVar("O", bound="Options")  # noqa: E741 - the options of any job

# An option for a file, and the options whose brokers it is about; all by their names in the parser.
_FILES: Final = {
    "command_config": ("broker", "cluster", "from_"),
    "to_command_config": ("to_broker", "to"),
}


def add_command_config(group: argparse._ArgumentGroup) -> None:
    """Adds the option for the brokers that a job reads from."""
    group.add_argument(
        "--command-config",
        metavar="FILE",
        help="client properties with security settings for the brokers that are read, as Kafka's tools"
        " take them",
    )


def add_to_command_config(group: argparse._ArgumentGroup) -> None:
    """Adds the option for the brokers that a job writes to."""
    group.add_argument(
        "--to-command-config", metavar="FILE", help="the same for the brokers that are written to"
    )


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


def use_command_configs(options: argparse.Namespace) -> None:
    """Lets the addresses of brokers carry the settings in the files that are given.

    Raises UsageError for a mistake in a file, or for one that is about no brokers.
    """
    for name, fields in _FILES.items():
        path = getattr(options, name, None)
        option = f"--{name.replace('_', '-')}"
        given = [each for each in fields if isinstance(getattr(options, each, None), str)]
        for each in given:
            if not isinstance(getattr(options, each), Brokers):
                setattr(options, each, secured(getattr(options, each), None))
        if path is None:
            continue
        if not given:
            raise UsageError(f"{option} has the settings for brokers, and none are named")
        from tidelog.client.security.files import security_in

        try:
            security = security_in(path)
        except SecuritySettingsError as error:
            raise UsageError(f"{option} {error}") from None
        for each in given:
            setattr(options, each, secured(getattr(options, each), security))

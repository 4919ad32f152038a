"""How jobs reach secured brokers: `--command-config` for the source, `--to-command-config` for the target.

The files have Kafka's settings (docs/security.md). They are read once, when the job starts, and
their settings go with the addresses to the tasks. So does what the job finds out: whether brokers at
these addresses have answered. Plans and reports contain addresses alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client import Brokers, SecuritySettingsError, secured
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    import argparse

# An option for a file, and the options whose brokers it is about; all by their names in the parser.
_FILES: Final = {
    "command_config": ("brokers", "cluster", "source"),
    "to_command_config": ("to_brokers", "target"),
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


def use_command_configs(options: argparse.Namespace) -> None:
    """Lets the addresses of brokers carry the settings in the files that are given.

    Raises UsageError for a mistake in a file, or for one that is about no brokers.
    """
    for name, fields in _FILES.items():
        path = getattr(options, name, None)
        option = f"--{name.replace('_', '-')}"
        given = [each for each in fields if getattr(options, each, None) is not None]
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

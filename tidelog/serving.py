"""The command by which our own programs start a broker as a process, and the line it answers.

The broker watches its standard input, a pipe that only its parent holds open, and stops when the
pipe closes. So it never outlives its parent. Its settings go by its environment, because every user of the
machine can read a command line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Python's own -m would put the working directory first on sys.path, with packages of the same names.
START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from tidelog.cli import main; sys.exit(main())"
)

SETTINGS_VARIABLE = "TIDELOG_SETTINGS"
"""The environment variable with settings that count as those of the command line do."""


def serve_command(options: Iterable[str]) -> list[str]:
    """Returns the command that runs `tidelog serve` with some options, by this Python."""
    root = str(Path(__file__).resolve().parents[1])
    return [sys.executable, "-P", "-c", START, root, "serve", "--stop-at-eof", *options]


def with_settings(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which `tidelog serve` has these settings."""
    return {**environ, SETTINGS_VARIABLE: json.dumps(dict(settings))}


def settings_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that `with_settings` has put there. Raises ValueError and TypeError."""
    return dict(json.loads(environ.get(SETTINGS_VARIABLE, "{}")))


def ready_values(line: str) -> dict[str, str]:
    """Returns the values of a line `ready name=value ...`. Raises ValueError for another line."""
    first, *parts = line.split()
    if first != "ready":
        raise ValueError(f"expected a ready line, the broker wrote {line!r}")
    return dict(part.partition("=")[::2] for part in parts)


def addresses_of(listeners: str) -> list[str]:
    """Returns the `host:port` of each listener of a ready line."""
    return [each.partition("://")[2] for each in listeners.split(",")]

"""Starts broker processes with a mistake in them, for tests that demand to find it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from tidelog.serving import START, serve_command

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAIN = "from tidelog.cli import main;"


@contextmanager
def injecting(module: str, name: str) -> Iterator[None]:
    """Brokers that are started meanwhile call the module's `inject` with a name before they serve."""
    assert _MAIN in START
    injected = f"from {module} import inject; inject(sys.argv.pop(1)); {_MAIN}"
    start = START.replace(_MAIN, injected)

    def command(options):
        python, *flags, _, root, serve, stop = serve_command(())
        return [python, *flags, start, root, name, serve, stop, *options]

    with mock.patch("tidelog.process.serve_command", command):
        yield

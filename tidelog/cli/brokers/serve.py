"""`tidelog serve`: one broker in this process, or with --brokers several in processes of their own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.serving import SETTINGS_VARIABLE, settings_in

if TYPE_CHECKING:
    import argparse

    from tidelog.config import BrokerConfig

DESCRIPTION = (
    "Run a broker until SIGTERM, or with --brokers several that replicate to each other. Settings come from "
    "the properties file, then from KAFKA_* environment variables (KAFKA_NUM_PARTITIONS is num.partitions), "
    "then from these options; the later wins."
)

_USAGE_ERROR = 2
_FAILED = 1
_STOP_WITHIN_S = 10.0
# The settings that have options of their own.
_SHORTHANDS = {
    "listeners": "listeners",
    "log_dirs": "log.dirs",
    "http": "http.listener",
    "control": "control.listener",
    "clock": "clock",
    "clock_scope": "clock.scope",
}


def add_serve(serve: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add = serve.add_argument
    what = "where to listen, 127.0.0.1:9092 if not given (empty host: every interface; port 0: any free one)"
    add("--listeners", metavar="NAME://HOST:PORT", help=what)
    add("--log-dirs", metavar="DIR", help="where the logs are kept, several separated by commas")
    what = "where to serve metrics, health and JSON over HTTP, which is off without it (port 0: any free one)"
    add("--http", metavar="HOST:PORT", help=what)
    what = "a Kafka server.properties file; may be given many times, the later file wins"
    add("--config", metavar="FILE", type=Path, action="append", default=[], help=what)
    what = "one setting; may be given many times"
    add("--set", metavar="KEY=VALUE", action="append", default=[], help=what)
    what = "run N brokers as one cluster, each with the next port of every address"
    add("--brokers", metavar="N", help=what)
    what = "with --brokers: leave a broker that has died as it is"
    add("--no-restart", action="store_true", help=what)
    what = "where to move a manual clock, plant faults and ask for sweeps (port 0: any free one)"
    add("--control", metavar="HOST:PORT", help=what)
    what = "the clock: the machine's, or a manual one that stands still until it is moved"
    add("--clock", choices=["system", "manual"], help=what)
    what = "where a manual clock starts (2026-01-01T00:00Z, -7d)"
    add("--clock-start", metavar="TIME", help=what)
    what = "what follows a manual clock: the log alone, or the sessions and offsets of groups too"
    add("--clock-scope", choices=["log", "all"], help=what)
    what = "stop when standard input ends, as when the program that started this one dies"
    add("--stop-at-eof", action="store_true", help=what)


def run_serve(options: argparse.Namespace) -> int:
    """Serves until SIGTERM; returns the exit status."""
    from tidelog.config import ConfigError, load
    from tidelog.config.broker.checks import check_reach

    try:
        overrides = overrides_of(options)
        config = load(options.config, os.environ, overrides)
        check_reach(config)
        if options.brokers is None and options.no_restart:
            raise ConfigError("--no-restart is about the brokers of --brokers N")
        if options.brokers is not None:
            return _serve_many(options, config, overrides)
    except ConfigError as error:
        sys.stderr.write(f"tidelog serve: {error}\n")
        return _USAGE_ERROR
    if options.stop_at_eof:
        _stop_at_eof()
    from tidelog.broker.server import run

    return run(config)


def _serve_many(
    options: argparse.Namespace, config: BrokerConfig, overrides: dict[str, str]
) -> int:
    """Runs several brokers. Raises ConfigError."""
    from tidelog.broker.logging import structured_log
    from tidelog.config import ConfigError, load
    from tidelog.storage.filenames import SUPERVISORS_UNREAD_LOG
    from tidelog.storage.permissions import set_umask
    from tidelog.supervisor.arrangement import arranged, files_of
    from tidelog.supervisor.stalls import Stalls
    from tidelog.supervisor.supervisor import Supervisor, log

    if not options.brokers.isascii() or not options.brokers.isdecimal():
        raise ConfigError(f"--brokers {options.brokers}: expected a number")
    settings = arranged(config, overrides, int(options.brokers[:9]))

    def load_own(broker: int) -> BrokerConfig:
        return load(files_of(options.config, broker), os.environ, settings[broker - 1])

    def same(broker: int) -> list[str]:
        return [
            part for file in files_of(options.config, broker) for part in ("--config", str(file))
        ]

    (first, *_) = [load_own(broker) for broker in range(1, len(settings) + 1)]
    metadata = Path(first.cluster.metadata_store.removeprefix("sqlite:"))
    stalls = Stalls(metadata, first.cluster.broker_session_timeout_ms / 1000)
    if options.stop_at_eof:
        _stop_at_eof()
    set_umask()
    handler = structured_log.set_up(
        config.log_level, Path(config.log_dirs[0], SUPERVISORS_UNREAD_LOG)
    )
    try:
        return Supervisor(
            same,
            settings,
            stalls,
            restarts=not options.no_restart,
            directory=Path(config.log_dirs[0]),
            check=load_own,
            write_log=handler.output.put,
        ).run()
    except OSError as error:
        log.critical("broker stopped on error", extra={"reason": str(error)})
        return _FAILED


def overrides_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings given on the command line, or by a parent process. Raises ConfigError."""
    from tidelog.config import ConfigError
    from tidelog.config.ignored import HIDDEN, is_secret
    from tidelog.config.instants import parse_instant, suspect_unit

    found: dict[str, str] = {}
    given = [
        (f"--{option.replace('_', '-')}", name, value)
        for option, name in _SHORTHANDS.items()
        if (value := getattr(options, option)) is not None
    ]
    if options.clock_start is not None:
        try:
            start_ms = parse_instant(options.clock_start, time.time_ns() // 1_000_000)
        except ValueError as error:
            raise ConfigError(f"--clock-start: {error}") from None
        if suspect := suspect_unit(options.clock_start):
            sys.stderr.write(f"tidelog serve: warning: --clock-start {suspect}\n")
        given.append(("--clock-start", "clock.start.ms", str(start_ms)))
    given += map(_set_given, options.set)
    try:
        passed_on = settings_in(os.environ)
    except (TypeError, ValueError) as error:
        what = "is not what a parent process sets"
        raise ConfigError(f"{SETTINGS_VARIABLE} {what}: {error}") from None
    os.environ.pop(SETTINGS_VARIABLE, None)  # not for the processes of this one
    given += [(SETTINGS_VARIABLE, name, value) for name, value in passed_on.items()]
    for option, name, value in given:
        if found.setdefault(name, value) != value:
            values = (value, found[name]) if not is_secret(name) else (HIDDEN, HIDDEN)
            raise ConfigError(
                f"{option}={values[0]} contradicts {name}={values[1]} given before it"
            )
    return found


def _set_given(text: str) -> tuple[str, str, str]:
    """Returns how a `--set KEY=VALUE` is named, its key and its value. Raises ConfigError."""
    from tidelog.config import ConfigError
    from tidelog.config.units import in_its_unit

    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise ConfigError(f"--set {text}: expected KEY=VALUE")
    try:
        return f"--set {name}", name, in_its_unit(name, value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _stop_at_eof() -> None:
    """Stops as for SIGTERM once standard input ends; kills a broker that does not stop.

    The parent process holds the other end of a pipe. When it dies in any way, the kernel closes the
    pipe.
    """
    import signal
    import threading

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(_STOP_WITHIN_S)
        os._exit(1)

    threading.Thread(target=watch, name="stop-at-eof", daemon=True).start()

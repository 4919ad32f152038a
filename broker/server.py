"""From start to stop: open the logs, listen, say `ready`, serve, and flush everything on SIGTERM.

`run` prints exactly one line to standard output, beginning `ready`, when clients may connect; it names
the ports that were bound. HTTP, and the control listener where there is one, answer before, while one
of several brokers waits for the others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from tidelog.broker.boot import Services
from tidelog.broker.clock import ManualClock, SystemClock, machine_boot_id
from tidelog.broker.controller.topics.startup import open_topics
from tidelog.broker.http.application import start_http
from tidelog.broker.lifecycle.directories import check_directories
from tidelog.broker.logging import structured_log as logs
from tidelog.broker.logs.log_dir_locks import lock_directories
from tidelog.broker.logs.maintenance.checkpoint import checkpoint
from tidelog.broker.logs.maintenance.compaction_rounds import CompactionRounds
from tidelog.broker.logs.maintenance.disk_space_watch import watch_disk_space
from tidelog.broker.logs.maintenance.retention_rounds import RetentionRounds
from tidelog.broker.logs.maintenance.scrub_rounds import ScrubRounds
from tidelog.broker.metadata.local import metadata_of, places_of
from tidelog.broker.metadata.store import MetadataError
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting import descriptors
from tidelog.broker.network.accepting.sockets import (
    http_listener,
    is_open,
    listen,
)
from tidelog.broker.network.memory.heap import keep_freed_memory
from tidelog.broker.network.servers import bound_servers, tls_contexts
from tidelog.broker.pools import NoDefaultPool
from tidelog.broker.settings import log_ignored
from tidelog.config import ConfigError
from tidelog.config.broker.listeners import joined
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.records import kernels
from tidelog.storage import files, permissions
from tidelog.storage.directory.log_directory import LogDirectoryError
from tidelog.storage.directory.store import LogStore
from tidelog.storage.filenames import UNREAD_LOG

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping

    from tidelog.broker.clock import Clock
    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.testing.faults import Faults
    from tidelog.config import BrokerConfig

log = logging.getLogger("tidelog.server")

_FEW_DESCRIPTORS = 4_096
_DRAIN_S = 3.0
_LINGER_S = 0.5  # how long peers may take to close their side
# How long a thread of a pool may compute in Python while the event loop waits. Python's 5 ms would
# be added to each turn of the loop while a log is read in a pool.
_SWITCH_INTERVAL_S = 0.001
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(config: BrokerConfig, clock: Clock | None = None) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit status: 0, or 1 if the start failed."""
    permissions.set_umask(group_reads=config.log_dir_group_readable)
    logs.set_up(config.log_level, Path(config.log_dirs[0], UNREAD_LOG))
    keep_freed_memory()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_main(config, clock or _clock(config)))
        except (ConfigError, LogDirectoryError, MetadataError, BrokerError, OSError) as error:
            log.critical("broker stopped on error", extra={"reason": str(error)})
            return 1
        finally:
            # Python gives the signals back to the system when it ends: another one would still end
            # the process then, and its exit status would be that of a crash.
            signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)


def _clock(config: BrokerConfig) -> Clock:
    """The machine's clock, or a manual one that stands still until it is moved."""
    system = SystemClock()
    if config.clock != "manual":
        return system
    return ManualClock(system.now_ms() if config.clock_start_ms is None else config.clock_start_ms)


async def _main(config: BrokerConfig, clock: Clock) -> int:
    """Runs a broker to its end.

    With a control listener, faults may be put between it and the machine.
    """
    if not config.control:
        return await _run(config, clock, None)
    from tidelog.broker.testing.control import install_faults

    with install_faults([Path(directory) for directory in config.log_dirs]) as faults:
        return await _run(config, clock, faults)


async def _run(config: BrokerConfig, clock: Clock, faults: Faults | None) -> int:
    started_s = clock.monotonic_s()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(NoDefaultPool())
    log_ignored(config)
    contexts = tls_contexts(config)
    if kernels.IMPLEMENTATION != "compiled":
        log.warning("compiled record kernels not found, using slower Python kernels")
    directories = [Path(directory) for directory in config.log_dirs]
    allowed = descriptors.of_process()
    if allowed.limit < _FEW_DESCRIPTORS:
        log.warning(
            "limit of open files is low, connections refused early",
            extra={"limit": allowed.limit, "advice": "raise it with ulimit -n"},
        )
    files.RECENT.capacity = allowed.segments
    store = LogStore(
        directories,
        default_config=config.topic_defaults,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        boot_id=machine_boot_id(),
        reserve_bytes=config.log_dir_reserve_bytes,
    )

    def begin_stop() -> None:
        stop.set()
        store.note_stopping()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, begin_stop)
    # First: the metadata beside the logs are migrated when they are opened.
    await lock_directories(store, stop, clock)
    try:
        check_directories(config, directories)
        metadata = metadata_of(config)
        if faults is not None and config.cluster.metadata_store:
            from tidelog.broker.testing.cuts import Cuts  # between this broker and the others

            faults.cuts = Cuts(metadata)
        await metadata.open()
        try:
            permissions.warn_of_open(places_of(config), group_reads=config.log_dir_group_readable)
            services = Services(config, clock, store, metadata, Metrics(), allowed)
            services.enter()
            services.clock_watch.begin()
            await open_topics(services)
            try:
                await _serve(services, stop, started_s, faults, contexts)
            finally:
                services.clock_watch.end()
                await services.topics.stop()
                services.scheduler.close()
                services.pools.stop()
                await services.leave()
        finally:
            await metadata.close()
    finally:
        store.close()
    log.info("broker stopped")
    return 0


async def _serve(
    services: Services,
    stop: asyncio.Event,
    started_s: float,
    faults: Faults | None,
    contexts: Mapping[str, ssl.SSLContext],
) -> None:
    """Listens, prints the ready line, and serves until the broker is told to stop."""
    loop = asyncio.get_running_loop()
    servers, bound = await bound_servers(services, contexts), services.listeners
    http_socket, control_socket = await services.pools.topics.run(_own_sockets, services.config)
    rounds, compaction = RetentionRounds(services), CompactionRounds(services)
    # HTTP answers while the broker still waits to be unfenced, and says so.
    https = [loop.create_task(start_http(services, http_socket))] if http_socket else []
    if control_socket is not None and faults is not None:
        control = partial(_start_control, services, (rounds, compaction), faults)
        https.append(loop.create_task(control(control_socket)))
    services.http = None if http_socket is None else http_listener(http_socket)
    try:
        if await _has_joined(services, stop):
            services.ready = True
            services.coordinator.start()
            services.transactions.start()
            for server in servers:
                await server.start_serving()
            _say_ready(services, bound, http_socket, control_socket)
            after_s = round(services.clock.monotonic_s() - started_s, 3)
            log.info("broker ready", extra={"after_s": after_s})
            with services.collector.governing():
                chores = _begin_chores(services, rounds, compaction)
                await stop.wait()
                await _stop_serving(services, servers, chores, faults)
    finally:
        for http in https:
            await _stop_http(http)


async def _stop_serving(
    services: Services,
    servers: list[asyncio.Server],
    chores: list[asyncio.Task[None]],
    faults: Faults | None,
) -> None:
    """Hands over what this broker leads, and lets the requests under way finish."""
    log.info("broker stopping")
    await services.cluster.hand_over()
    services.ready = False
    for server in servers:
        server.close()
    for chore in chores:
        chore.cancel()
    await asyncio.gather(*chores, return_exceptions=True)
    if faults is not None:
        faults.stopping()
    await services.coordinator.stop()
    await services.transactions.stop()
    await _drain(services)
    await services.replicas.close()


async def _has_joined(services: Services, stop: asyncio.Event) -> bool:
    """Waits until the broker may serve; returns False if it is to stop before."""
    loop = asyncio.get_running_loop()
    joining = loop.create_task(services.start())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
    if joining.done():
        stopping.cancel()
        joining.result()  # raises what the start has failed with
        return True
    log.info("broker stopping before it was unfenced")
    joining.cancel()
    await asyncio.wait([joining])
    return False


def _begin_chores(
    services: Services, rounds: RetentionRounds, compaction: CompactionRounds
) -> list[asyncio.Task[None]]:
    """Begins what runs beside the requests."""
    loop, scrubbing = asyncio.get_running_loop(), ScrubRounds(services)
    return [
        loop.create_task(work)
        for work in (
            _chores(services),
            services.connections.watch(),
            services.metrics.loop_lag.run(lambda: sum(services.metrics.requests.values())),
            rounds.run(),
            compaction.run(),
            *([scrubbing.run()] if scrubbing.is_on else []),
            services.topics.run(),
            services.clock_watch.run(),
            watch_disk_space(services),
            services.collector.watch(),
            services.cluster_watch.run(),
            services.replicas.run(),
        )
    ]


def _own_sockets(config: BrokerConfig) -> tuple[socket.socket | None, socket.socket | None]:
    """Returns the sockets of HTTP and of the control port, as far as there are any."""
    http = listen(*address, "http.listener") if (address := config.http.address) else None
    return http, listen(*config.control, "control.listener") if config.control else None


async def _start_control(
    services: Services,
    rounds: tuple[RetentionRounds, CompactionRounds],
    faults: Faults,
    listening: socket.socket,
) -> Any:
    from tidelog.broker.testing.control import start_control
    from tidelog.broker.testing.controlled import Control

    if is_open(listening):
        host = listening.getsockname()[0]
        log.warning("control.listener reachable from other machines", extra={"host": host})
    return await start_control(Control(services, *rounds, faults), listening)


async def _stop_http(http: asyncio.Task[Any]) -> None:
    """Ends the HTTP server, whether or not any request has started it."""
    if not http.done():
        http.cancel()
        await asyncio.wait([http])
    if not http.cancelled():
        if http.exception() is None:
            await http.result().cleanup()
        else:
            log.error("HTTP server not started", exc_info=http.exception())


def _say_ready(
    services: Services,
    listeners: list[Listener],
    http: socket.socket | None,
    control: socket.socket | None,
) -> None:
    """Tells the parent that clients may connect."""
    shown = ",".join(f"{at.name}://{joined(at.host, at.port)}" for at in listeners)
    parts = [f"ready listeners={shown}"]
    if http is not None:
        parts.append(f"http={joined(*http.getsockname()[:2])}")
    if control is not None:
        parts.append(f"control={joined(*control.getsockname()[:2])}")
    parts.append(f"cluster={services.metadata.image.cluster_id} pid={os.getpid()}")
    print(" ".join(parts), flush=True)  # noqa: T201 - the one line on standard output


async def _chores(services: Services) -> None:
    """What has to be looked at now and then."""
    interval_s = min(30.0, max(1.0, services.config.connections_max_idle_ms / 1000 / 4))
    while True:
        await asyncio.sleep(interval_s)
        closed = services.connections.close_idle()
        if closed:
            log.info("idle connections closed", extra={"count": closed})
        services.connections.log_repeated()
        services.transactions.refusals.log_repeated()
        try:  # the next round may go better; this loop must not end
            await checkpoint(services.store, services.pools, services.purgatory)
        except BrokerError as error:
            log.error("checkpoint failed", extra={"reason": error.message})
        except Exception:
            log.exception("checkpoint failed")


async def _drain(services: Services) -> None:
    """Waits until requests under way are answered, for a limited time; then closes every connection."""
    services.purgatory.wake_all()
    started_s = services.clock.monotonic_s()
    while services.connections and services.clock.monotonic_s() < started_s + _DRAIN_S:
        lingering = services.clock.monotonic_s() < started_s + _LINGER_S
        for connection in list(services.connections):
            if connection.is_busy or connection.outgoing.is_streaming:
                continue
            if lingering:
                connection.leave()
            else:
                connection.close()
        await asyncio.sleep(0.01)
    for connection in list(services.connections):
        connection.abort()
    await asyncio.sleep(0)

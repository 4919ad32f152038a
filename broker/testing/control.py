"""The control listener: manual clock, faults, rounds on demand and more, as JSON over HTTP below /v1.

The listener exists only if control.listener is set at start. It is for tests and has no authentication: any
client can stop the clock and break the disk, except a page in a browser
(`broker.http.answers.browser_guard`). ROUTES lists the requests. Times are shown twice: `*_ms`, exact, and as
ISO 8601. A bad request is answered `{"error": NAME, "message": sentence}` with status 400, an unknown object
with 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.clock import ManualClock
from tidelog.broker.http.answers import (
    HttpError,
    body_of,
    browser_guard,
    error_middleware,
    fields_of,
    json_line,
    partition_number,
)
from tidelog.broker.http.application import readable
from tidelog.broker.logs.maintenance.checkpoint import checkpoint
from tidelog.broker.logs.maintenance.compaction_rounds import CompactionRound
from tidelog.broker.network import routes
from tidelog.broker.testing.fault_requests import wrapped
from tidelog.broker.testing.fault_storage import FaultySystem
from tidelog.broker.testing.faults import Fault, Faults
from tidelog.client import async_connection
from tidelog.config.instants import to_iso
from tidelog.storage import files
from tidelog.storage.time.append_time import ahead

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from tidelog.broker.logs.maintenance.retention_rounds import SweptSegment
    from tidelog.broker.testing.controlled import Control
    from tidelog.broker.testing.cuts import Cuts
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.control")

_MOST_BYTES = 65_536
_POLL_S = 0.001


@contextlib.contextmanager
def install_faults(log_dirs: list[Path]) -> Iterator[Faults]:
    """Installs the hooks that inject faults into requests and the disk; called before anything is opened."""
    faults = Faults(log_dirs)
    system = files.use(FaultySystem(faults))
    routes.wrap(partial(wrapped, faults=faults))
    try:
        yield faults
    finally:
        faults.clear()
        async_connection.dial_by(None)
        routes.wrap(None)
        files.use(system)


# --- the clock -----------------------------------------------------------------------------------


async def show_clock(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the time of the clock and how it runs."""
    clock = control.services.clock
    now_ms = clock.now_ms()
    is_manual = isinstance(clock, ManualClock)
    rate = clock.rate if isinstance(clock, ManualClock) else 1.0
    return {
        "clock": "manual" if is_manual else "system",
        "now_ms": now_ms,
        "now": to_iso(now_ms),
        "rate": rate,
        "frozen": not rate,
    }


async def _moved(control: Control) -> dict[str, Any]:
    """Does the rounds of retention and compaction that are due after the clock was moved."""
    await control.services.clock_watch.observe()
    await control.rounds.catch_up()
    await control.compaction.catch_up()
    shown = await show_clock(control, {})
    log.info("clock moved", extra={"now_ms": shown["now_ms"], "rate": shown["rate"]})
    return shown


async def set_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Sets the clock to a time, forwards or back; it runs on as before."""
    control.clock.set(control.time(given, "to"))
    return await _moved(control)


async def step_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Moves the clock by a duration, forwards or back; it runs on as before."""
    control.clock.step(control.span(given, "by"))
    return await _moved(control)


async def leap_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Moves the clock by a duration without time passing, as a wrong clock does."""
    control.clock.leap(control.span(given, "by"))
    return await _moved(control)


async def freeze_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Stops the clock, now or at a given time."""
    control.clock.freeze(control.time(given, "at") if "at" in given else None)
    return await _moved(control)


async def run_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the clock at a rate, from now on or from a given time."""
    rate = given.get("rate", 1)
    if not isinstance(rate, int | float) or isinstance(rate, bool):
        raise HttpError(400, "BAD_RATE", f"rate={rate!r}: expected a number above 0")
    control.clock.run(rate, control.time(given, "from") if "from" in given else None)
    return await _moved(control)


# --- sweeps --------------------------------------------------------------------------------------


async def sweep(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Applies retention now, to one topic or to all.

    Returns deletions since the last sweep, and failures.

    `forgotten` counts deletions of rounds in between that were too many to be stored. With
    `compact` logs are compacted first, however little of them is dirty.
    """
    topic = given.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise HttpError(400, "BAD_REQUEST", f"topic={topic!r}: expected a name")
    if topic is not None and topic not in control.services.metadata.image.topics:
        raise HttpError(404, "UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {topic}")
    compact = given.get("compact", False)
    if not isinstance(compact, bool):
        raise HttpError(400, "BAD_REQUEST", f"compact={compact!r}: expected true or false")
    compacted = await control.compaction.sweep(topic) if compact else CompactionRound([], [])
    deleted, failed, forgotten = await control.rounds.sweep(topic)
    now_ms = control.services.clock.now_ms()
    return {
        "now_ms": now_ms,
        "now": to_iso(now_ms),
        "deleted": [_deletion(each) for each in deleted],
        **({"forgotten": forgotten} if forgotten else {}),
        **({"compacted": [each._asdict() for each in compacted.cleaned]} if compact else {}),
        "failed": [e._asdict() for e in failed] + [e._asdict() for e in compacted.failed],
    }


def _deletion(swept: SweptSegment) -> dict[str, Any]:
    """Returns a deletion as JSON, with each time twice."""
    answer: dict[str, Any] = {
        "topic": swept.topic,
        "partition": swept.partition,
        "asked": swept.asked,
    }
    for name, value in swept.deletion._asdict().items():
        if name.endswith("_time"):
            answer[f"{name}_ms"] = value
            value = to_iso(value)  # noqa: PLW2901 - the second of the two
        answer[name] = value
    return answer


# --- faults --------------------------------------------------------------------------------------


async def show_faults(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every fault, and how often it was injected."""
    return {"faults": [fault.shown() for fault in control.faults]}


async def add_fault(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a fault."""
    fault = control.faults.add(given)
    log.info("fault added", extra=_fields_of(fault))
    return fault.shown()


async def show_fault(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one fault, and how often it was injected."""
    return _fault(control.faults.get, given).shown()


async def remove_fault(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Removes one fault; requests that it delays continue."""
    fault = _fault(control.faults.remove, given)
    log.info("fault removed", extra=_fields_of(fault))
    return fault.shown()


async def clear_faults(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """Removes all faults."""
    return {"removed": [fault.shown() for fault in control.faults.clear()]}


def _fault(find: Callable[[int], Fault | None], given: Mapping[str, Any]) -> Fault:
    number = given["id"]
    found = find(int(number)) if number.isdecimal() and len(number) < 10 else None
    if found is None:
        raise HttpError(404, "UNKNOWN_FAULT", f"there is no fault {number}")
    return found


def _fields_of(fault: Fault) -> dict[str, Any]:
    answer = fault.shown()
    return {"fault": answer.pop("id"), **answer}


# --- append times ---------------------------------------------------------------------------------


async def show_append_time(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a partition's last append time, and how far it is ahead of the clock."""
    partition, now_ms = await _partition(control, given), control.services.clock.now_ms()
    return _append_time(partition, partition.last_append_time, now_ms)


async def reset_append_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Resets a partition's append clock to the broker's clock, once, if it is ahead of it."""
    services, partition = control.services, await _partition(control, given)
    while services.appends.is_busy(partition):  # noqa: ASYNC110 - nobody else ever waits for it
        await asyncio.sleep(_POLL_S)
    now_ms = services.clock.now_ms()
    last_time = partition.last_append_time
    if ahead(last_time, now_ms):
        await services.pools.maintenance.run_to_end(partition.append_clock.reset, now_ms)
        await checkpoint(services.store, services.pools, services.purgatory)
    return _append_time(partition, last_time, now_ms)


async def _partition(control: Control, given: Mapping[str, Any]) -> Partition:
    return await control.services.partitions.open(
        given["topic"], partition_number(given["partition"])
    )


def _append_time(partition: Partition, last_time: int | None, now_ms: int) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "last_append_time_ms": last_time,
        "last_append_time": to_iso(last_time),
        "now_ms": now_ms,
        "now": to_iso(now_ms),
        "ahead_ms": ahead(last_time, now_ms),
    }


# --- cuts ----------------------------------------------------------------------------------------


async def show_cuts(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the broker is cut off from."""
    return _shown_cuts(_cuts(control))


async def add_cut(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Cuts the broker off from another one, or from the metadata."""
    cuts = _cuts(control)
    if given.get("metadata") is True and "broker" not in given:
        cuts.metadata = True
    else:
        cuts.add(_other_broker(control, given))
    return _shown_cuts(cuts)


async def heal_cuts(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Heals the cut from one broker, or all cuts."""
    cuts = _cuts(control)
    cuts.heal(_other_broker(control, given) if "broker" in given else None)
    return _shown_cuts(cuts)


def _cuts(control: Control) -> Cuts:
    cuts = control.faults.cuts
    if cuts is None:
        raise HttpError(
            400, "BROKER_ALONE", "the broker is alone: there is nothing to cut it off from"
        )
    return cuts


def _other_broker(control: Control, given: Mapping[str, Any]) -> int:
    broker, me = given.get("broker"), control.services.metadata.node_id
    known = sorted(control.services.metadata.image.registrations.keys() - {me})
    if not isinstance(broker, int) or isinstance(broker, bool) or broker not in known:
        expected = ", ".join(map(str, known)) or "there is none"
        raise HttpError(
            400,
            "UNKNOWN_BROKER",
            f"broker={broker!r}: expected another broker ({expected}), or metadata: true",
        )
    return broker


def _shown_cuts(cuts: Cuts) -> dict[str, Any]:
    return {"brokers": sorted(cuts.brokers), "metadata": cuts.metadata}


# --- the listener --------------------------------------------------------------------------------


class _Route(NamedTuple):
    """One route of the listener, and the fields that a request's body may have (None: any)."""

    method: str
    path: str
    do: Callable[[Control, Mapping[str, Any]], Awaitable[dict[str, Any]]]
    fields: tuple[str, ...] | None = ()
    status: int = 200


_APPEND_TIME = "/v1/topics/{topic}/partitions/{partition}/append-time"
ROUTES = (
    _Route("GET", "/v1/clock", show_clock),
    _Route("POST", "/v1/clock/set", set_clock, ("to",)),
    _Route("POST", "/v1/clock/step", step_clock, ("by",)),
    _Route("POST", "/v1/clock/leap", leap_clock, ("by",)),
    _Route("POST", "/v1/clock/freeze", freeze_clock, ("at",)),
    _Route("POST", "/v1/clock/run", run_clock, ("rate", "from")),
    _Route("POST", "/v1/sweep", sweep, ("topic", "compact")),
    _Route("GET", _APPEND_TIME, show_append_time),
    _Route("POST", _APPEND_TIME, reset_append_clock),
    _Route("GET", "/v1/faults", show_faults),
    _Route("POST", "/v1/faults", add_fault, None, 201),
    _Route("DELETE", "/v1/faults", clear_faults),
    _Route("GET", "/v1/faults/{id}", show_fault),
    _Route("DELETE", "/v1/faults/{id}", remove_fault),
    _Route("GET", "/v1/cuts", show_cuts),
    _Route("POST", "/v1/cuts", add_cut, ("broker", "metadata"), 201),
    _Route("DELETE", "/v1/cuts", heal_cuts, ("broker",)),
)


async def start_control(control: Control, listening: socket.socket) -> Any:
    """Waits for the first connection on a listening socket, then serves there.

    Returns the runner.
    """
    await readable(listening)
    web = await control.services.pools.metrics.run(importlib.import_module, "aiohttp.web")
    paths = list(dict.fromkeys(route.path for route in ROUTES))
    app = web.Application(
        middlewares=[error_middleware(web, log, paths), browser_guard(web, listening)],
        client_max_size=_MOST_BYTES,
    )
    for route in ROUTES:
        app.router.add_route(route.method, route.path, _handler(control, route, web))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    return runner


def _handler(control: Control, route: _Route, web: Any) -> Callable[[Any], Awaitable[Any]]:
    async def handle(request: Any) -> Any:
        given = fields_of(await body_of(request), route.fields, may_be_empty=True)
        answer = await route.do(control, {**given, **request.match_info})
        return web.json_response(answer, status=route.status, dumps=json_line)

    return handle

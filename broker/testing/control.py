"""The control listener: a clock in the hand, faults, sweeps and more, as JSON over HTTP below /v1.

It exists only where it is asked for at start, has no authentication and serves tests: whoever reaches it
can stop time and break the disk, but no page in a browser (`http_answers.guarding`). ROUTES says what there
is. Times are shown twice: `*_ms`, exact, and as ISO 8601 (null where the year is beyond 9999). A mistake is
answered `{"error": NAME, "message": sentence}` with status 400, what is not there with 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.clock import ManualClock
from broker.maintenance.compaction_rounds import CompactionRound
from broker.network import dispatch
from broker.network.http import readable
from broker.network.http_answers import Refused, answering, guarding, line, partition_number
from broker.testing.fault_requests import wrapped
from broker.testing.fault_storage import FaultySystem
from broker.testing.faults import Fault, Faults
from config.instants import parse_duration, parse_instant, to_iso
from storage import files
from storage.time.append_time import ahead

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from broker.maintenance.compaction_rounds import CompactionRounds
    from broker.maintenance.retention_rounds import Rounds, Swept
    from broker.node import Node
    from storage.log.partition import Partition

log = logging.getLogger("tidelog.control")

_MOST_BYTES = 65_536
_POLL_S = 0.001


@contextlib.contextmanager
def faults_in_the_way(log_dirs: list[Path]) -> Iterator[Faults]:
    """Put what faults need into the way of requests and of the disk, before anything is opened."""
    faults = Faults(log_dirs)
    system = files.use(FaultySystem(faults))
    dispatch.wrap(partial(wrapped, faults=faults))
    try:
        yield faults
    finally:
        faults.clear()
        dispatch.wrap(None)
        files.use(system)


class Control(NamedTuple):
    """What the control listener has in its hands."""

    node: Node
    rounds: Rounds
    compaction: CompactionRounds
    faults: Faults

    @property
    def clock(self) -> ManualClock:
        """The clock, if it can be moved; raises Refused."""
        clock = self.node.clock
        if isinstance(clock, ManualClock):
            return clock
        raise Refused(
            400, "CLOCK_NOT_MANUAL", "the clock is the machine's own: start with --clock manual"
        )

    def time(self, given: Mapping[str, Any], name: str) -> int:
        """A time that has to be given; raises Refused."""
        return self._read(given, name, partial(parse_instant, now_ms=self.node.clock.now_ms()))

    def span(self, given: Mapping[str, Any], name: str) -> int:
        """A span that has to be given; raises Refused."""
        return self._read(given, name, parse_duration)

    @staticmethod
    def _read(given: Mapping[str, Any], name: str, read: Callable[[Any], int]) -> int:
        if name not in given:
            raise Refused(400, "MISSING", f"{name} is missing")
        try:
            return read(given[name])
        except ValueError as error:
            raise Refused(400, "BAD_TIME", f"{name}: {error}") from None


# --- the clock -----------------------------------------------------------------------------------


async def show_clock(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """What time it is, and how the clock goes on."""
    clock = control.node.clock
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
    """The clock was touched: rounds of retention and compaction that have come due by it are done first."""
    await control.rounds.catch_up()
    await control.compaction.catch_up()
    shown = await show_clock(control, {})
    log.info("clock moved", extra={"now_ms": shown["now_ms"], "rate": shown["rate"]})
    return shown


async def set_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Jump to a time, forwards or back; the clock goes on as before."""
    control.clock.set(control.time(given, "to"))
    return await _moved(control)


async def step_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Move by a span, forwards or back; the clock goes on as before."""
    control.clock.step(control.span(given, "by"))
    return await _moved(control)


async def freeze_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Stand still, now or at a time."""
    control.clock.freeze(control.time(given, "at") if "at" in given else None)
    return await _moved(control)


async def run_clock(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run at a rate, from now on or from a time."""
    rate = given.get("rate", 1)
    if not isinstance(rate, int | float) or isinstance(rate, bool):
        raise Refused(400, "BAD_RATE", f"rate={rate!r}: expected a number above 0")
    control.clock.run(rate, control.time(given, "from") if "from" in given else None)
    return await _moved(control)


# --- sweeps --------------------------------------------------------------------------------------


async def sweep(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Apply retention now, to one topic or to all; what went since the last sweep, and what failed.

    `forgotten` counts deletions of rounds in between that were too many to be kept until somebody asks.
    With `compact` logs are compacted first, however little of them is dirty.
    """
    topic = given.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise Refused(400, "BAD_REQUEST", f"topic={topic!r}: expected a name")
    if topic is not None and topic not in control.node.metadata.image.topics:
        raise Refused(404, "UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {topic}")
    compact = given.get("compact", False)
    if not isinstance(compact, bool):
        raise Refused(400, "BAD_REQUEST", f"compact={compact!r}: expected true or false")
    compacted = await control.compaction.sweep(topic) if compact else CompactionRound([], [])
    deleted, failed, forgotten = await control.rounds.sweep(topic)
    now_ms = control.node.clock.now_ms()
    return {
        "now_ms": now_ms,
        "now": to_iso(now_ms),
        "deleted": [_deletion(each) for each in deleted],
        **({"forgotten": forgotten} if forgotten else {}),
        **({"compacted": [each._asdict() for each in compacted.cleaned]} if compact else {}),
        "failed": [e._asdict() for e in failed] + [e._asdict() for e in compacted.failed],
    }


def _deletion(swept: Swept) -> dict[str, Any]:
    """A deletion as JSON: times twice."""
    told: dict[str, Any] = {
        "topic": swept.topic,
        "partition": swept.partition,
        "asked": swept.asked,
    }
    for name, value in swept.deletion._asdict().items():
        if name.endswith("_time"):
            told[f"{name}_ms"] = value
            value = to_iso(value)  # noqa: PLW2901 - the second of the two
        told[name] = value
    return told


# --- faults --------------------------------------------------------------------------------------


async def show_faults(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """Every fault that is planted, and how often it has struck."""
    return {"faults": [fault.shown() for fault in control.faults]}


async def add_fault(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Plant a fault."""
    fault = control.faults.add(given)
    log.info("fault planted", extra=_told(fault))
    return fault.shown()


async def show_fault(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """One fault, and how often it has struck."""
    return _fault(control.faults.get, given).shown()


async def remove_fault(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Lift one fault; who is held by it goes on."""
    fault = _fault(control.faults.remove, given)
    log.info("fault lifted", extra=_told(fault))
    return fault.shown()


async def clear_faults(control: Control, _given: Mapping[str, Any]) -> dict[str, Any]:
    """Lift all faults."""
    return {"removed": [fault.shown() for fault in control.faults.clear()]}


def _fault(find: Callable[[int], Fault | None], given: Mapping[str, Any]) -> Fault:
    number = given["id"]
    found = find(int(number)) if number.isdecimal() and len(number) < 10 else None
    if found is None:
        raise Refused(404, "UNKNOWN_FAULT", f"there is no fault {number}")
    return found


def _told(fault: Fault) -> dict[str, Any]:
    told = fault.shown()
    return {"fault": told.pop("id"), **told}


# --- append times ---------------------------------------------------------------------------------


async def show_append_time(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """When a partition's last batch was appended, and how far that is ahead of the clock."""
    partition, now_ms = await _partition(control, given), control.node.clock.now_ms()
    return _append_time(partition, partition.last_append_time, now_ms)


async def free_append_time(control: Control, given: Mapping[str, Any]) -> dict[str, Any]:
    """Let a partition's append time go back to the clock's, once, if it is ahead."""
    node, partition = control.node, await _partition(control, given)
    while node.appends.is_busy(partition):  # noqa: ASYNC110 - nobody else ever waits for it
        await asyncio.sleep(_POLL_S)
    now_ms = node.clock.now_ms()
    last_time = partition.reset_append_clock(now_ms)
    if last_time is not None:  # what recovery reads must no longer show the old time
        await node.pools.maintenance.run_to_end(partition.save_times)
        await node.checkpoint()
    else:
        last_time = partition.last_append_time
    return _append_time(partition, last_time, now_ms)


async def _partition(control: Control, given: Mapping[str, Any]) -> Partition:
    return await control.node.open_partition(given["topic"], partition_number(given["partition"]))


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


# --- the listener --------------------------------------------------------------------------------


class _Route(NamedTuple):
    """One thing that can be asked for, and the fields its body may have (None: any)."""

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
    _Route("POST", "/v1/clock/freeze", freeze_clock, ("at",)),
    _Route("POST", "/v1/clock/run", run_clock, ("rate", "from")),
    _Route("POST", "/v1/sweep", sweep, ("topic", "compact")),
    _Route("GET", _APPEND_TIME, show_append_time),
    _Route("POST", _APPEND_TIME, free_append_time),
    _Route("GET", "/v1/faults", show_faults),
    _Route("POST", "/v1/faults", add_fault, None, 201),
    _Route("DELETE", "/v1/faults", clear_faults),
    _Route("GET", "/v1/faults/{id}", show_fault),
    _Route("DELETE", "/v1/faults/{id}", remove_fault),
)


async def start_control(control: Control, listening: socket.socket) -> Any:
    """Wait for the first request on a listening socket, then serve there; returns the runner."""
    await readable(listening)
    web = await control.node.pools.metrics.run(importlib.import_module, "aiohttp.web")
    routes = ", ".join(f"{route.method} {route.path}" for route in ROUTES)
    app = web.Application(
        middlewares=[answering(web, log, routes), guarding(web, listening)],
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
        given = _body(await request.text(), route)
        told = await route.do(control, {**given, **request.match_info})
        return web.json_response(told, status=route.status, dumps=line)

    return handle


def _body(text: str, route: _Route) -> Mapping[str, Any]:
    """The fields of a body; raises Refused."""
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "BAD_JSON", f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused(400, "BAD_JSON", "the body is no JSON object")
    for name in given:
        if route.fields is not None and name not in route.fields:
            known = f"it may have {', '.join(route.fields)}" if route.fields else "it takes none"
            raise Refused(400, "UNKNOWN_FIELD", f"{name!r} is no field of this request: {known}")
    return given

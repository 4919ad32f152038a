"""A JSON API below /v1, on the port of the metrics, for what Kafka's protocol has no request for.

The API is read-only, but for the few routes of `changes`.

The API returns both times of an offset; lookups by any record time, including the six milliseconds
before 1970 that ListOffsets uses as sentinels; lookups by append time; why each segment is still
there, when it will be deleted, and what other settings would delete (`explain`); what is wrong
with times (`doctor`); the time of the broker's clock, and how far it is trusted (`clock`); and the leader
of each partition of the cluster (`broker/http/cluster_facts.py`). `routes/declared.py` declares the routes,
and docs/http.md shows each. A time is given as milliseconds, as ISO 8601 with its zone, or relative to
the broker's now ("-2h"). In a cluster every broker returns the answers of the leaders (`gathering`).

All lookups, and the formatting of their results, run in a pool of their own, so that neither
requests nor the lookups of Kafka's protocol wait for them. A diagnosis of all logs has another one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.http import changes, gathering
from tidelog.broker.http.answers import HttpError, time_fields
from tidelog.broker.http.api_query import ApiQuery
from tidelog.broker.http.clock import clock, topic_clock
from tidelog.broker.http.cluster_facts import cluster
from tidelog.broker.http.doctor import doctor
from tidelog.broker.http.explain import explain
from tidelog.broker.http.gathering import ClusterQuery
from tidelog.broker.http.http_peers import ANSWERED_BY, ASKED_BY, HttpPeers, name_of
from tidelog.broker.http.routes import declared
from tidelog.protocol.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.broker.http.routes.route import Route
    from tidelog.broker.http.services import Services
    from tidelog.storage.log.lookup import AppendedSince
    from tidelog.storage.log.partition import Partition

_NONE = -1  # the offset if nothing is found


# --- offsets -------------------------------------------------------------------------------------


def offsets(query: ApiQuery) -> dict[str, Any]:
    """Returns the first offset at or after a time, or an append time; without one, the ends."""
    at, appended_at = query.time("at"), query.time("appended-at")
    if at is not None and appended_at is not None:
        raise HttpError(
            400, "BAD_REQUEST", "at and appended-at are two questions: ask one at a time"
        )
    is_capped = query.flag("capped")
    if is_capped and at is None:
        raise HttpError(
            400, "BAD_REQUEST", "capped=true says how record times count: it needs at=TIME"
        )
    answer = query.topic_fields()
    if at is not None:
        answer |= time_fields("at", at)
    elif appended_at is not None:
        answer |= time_fields("appended_at", appended_at)
    find_offsets = partial(
        _offsets_of,
        at=at,
        appended_at=appended_at,
        is_capped=is_capped,
        is_committed=query.one("isolation") == declared.READ_COMMITTED,
    )
    return {**answer, "partitions": query.each(find_offsets)}


def _offsets_of(
    partition: Partition,
    *,
    at: int | None,
    appended_at: int | None,
    is_capped: bool,
    is_committed: bool,
) -> dict[str, Any]:
    upper = partition.last_stable_offset if is_committed else partition.high_watermark
    start = min(partition.log_start_offset, upper)
    answer: dict[str, Any] = {"log_start_offset": start, "end_offset": upper}
    if at is not None:
        reader = partition.reader
        find = reader.find_by_capped_time if is_capped else reader.find_by_time
        found = find(at, upper_offset=upper)
        offset = _NONE if found is None else found[0]
        return answer | _times(partition, offset) | _before(partition, offset, upper)
    if appended_at is None:
        largest = partition.reader.find_largest_time(upper_offset=upper)
        return answer | {
            "first": _times(partition, start if start < upper else _NONE),
            "last": _times(partition, upper - 1 if start < upper else _NONE),
            "largest": _times(partition, _NONE if largest is None else largest[0]),
        }
    since = partition.reader.find_by_append_time(appended_at, upper_offset=upper)
    offset = _NONE if since.offset is None else since.offset
    if since.unknown_from is None:
        answer |= _times(partition, offset) | _before(partition, offset, upper)
        return answer | {"unknown": None, "absent": _absent(since)}
    until = upper if since.offset is None else since.offset
    answer |= {**_times(partition, _NONE), "offset": None}
    answer |= _before(partition, since.unknown_from, upper)
    unknown = {"start_offset": since.unknown_from, "end_offset": until}
    return answer | {"unknown": unknown, "absent": None}


def _absent(since: AppendedSince) -> dict[str, Any] | None:
    """Returns the offsets right before the one found whose records compaction has removed."""
    if since.absent_from is None:
        return None
    return {"start_offset": since.absent_from, "end_offset": since.offset}


def _times(partition: Partition, offset: int) -> dict[str, Any]:
    """Returns an offset and both its times."""
    record_time = append_time = None
    if offset != _NONE:
        _, record_time, append_time, _ = partition.reader.times_of(offset)
    return {
        "offset": offset,
        **time_fields("timestamp", record_time),
        **time_fields("append_time", append_time),
    }


def _before(partition: Partition, offset: int, upper: int) -> dict[str, Any]:
    """Returns the offsets and bytes before an offset, or the end, which DeleteRecords would delete."""
    offset = upper if offset == _NONE else offset
    return {
        "offsets_before": max(offset - partition.log_start_offset, 0),
        "bytes_before": partition.reader.size_before(offset),
    }


def record_times(query: ApiQuery) -> dict[str, Any]:
    """Returns both times of one offset, or with next=true of the first record from there on."""
    (index,) = query.partitions()
    text = query.path["offset"]
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) >= 2**63:
        raise HttpError(
            400, "BAD_OFFSET", f"{text[:40]!r} is not an offset: expected a number from 0 on"
        )
    offset = int(text)
    partition = query.services.partitions.get(query.path["topic"], index)
    if query.flag("next"):
        record = partition.reader.first_record(offset)
        if record is None:
            raise OffsetOutOfRange(f"there is no record from offset {offset} on")
        offset, found = record
    else:
        found = partition.reader.times_of(offset)
    timestamp_type = None
    if found.record_time is not None:
        timestamp_type = "LogAppendTime" if found.is_log_append_time else "CreateTime"
    return {
        **query.topic_fields(),
        "partition": index,
        "offset": offset,
        "kind": found.kind,
        **time_fields("timestamp", found.record_time),
        "timestamp_type": timestamp_type,
        **time_fields("append_time", found.append_time),
    }


# --- the routes ----------------------------------------------------------------------------------


class _Served(NamedTuple):
    """A route, its handler, and the function that merges the answers of several brokers."""

    route: Route
    handle: Callable[[ApiQuery], dict[str, Any]]
    gather: Callable[[ClusterQuery], Awaitable[str]] = gathering.own
    is_long: bool = False  # the handler examines every log, in a pool of its own


_SERVED = (
    _Served(declared.OFFSETS, offsets, gathering.by_partition),
    _Served(declared.RECORD_TIMES, record_times, gathering.of_one),
    _Served(declared.EXPLAIN, explain, gathering.by_partition),
    _Served(declared.CLUSTER, cluster),
    _Served(declared.CLOCK, clock),
    _Served(declared.TOPIC_CLOCK, topic_clock, gathering.by_partition),
    _Served(declared.DOCTOR, doctor, gathering.diagnosis, is_long=True),
)


def add_api(app: Any, web: Any, services: Services) -> None:
    """Adds the routes of `declared` to an application."""
    others = HttpPeers(services)
    app.on_cleanup.append(others.close)
    app.on_response_prepare.append(partial(_sign, services))
    for served in _SERVED:
        app.router.add_get(served.route.path, _handler(services, served, others, web))
    changes.add_changes(app, web, services)


async def _sign(services: Services, _request: Any, response: Any) -> None:
    """Names this broker in a header of the response."""
    response.headers[ANSWERED_BY] = name_of(services)


def _handler(services: Services, served: _Served, others: HttpPeers, web: Any) -> Any:
    route = served.route

    async def handle(request: Any) -> Any:
        given = route.read(request.query.items())
        cluster_query = ClusterQuery(
            ApiQuery(services, request.match_info, given, services.clock.now_ms()),
            served.handle,
            route.path,
            services.pools.doctor if served.is_long else services.pools.http,
            others,
            is_long=served.is_long,
            from_broker=ASKED_BY in request.headers,
        )
        return web.Response(
            text=await served.gather(cluster_query), content_type="application/json"
        )

    return handle

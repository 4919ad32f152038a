"""Declares every request below /v1: its purpose, its parameters, its answer, and its errors."""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.http.routes.route import FLAG, Error, Parameter, Route

READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"

OPENAPI: Final = "/v1/openapi.json"
"""The path of the description of all these."""

# --- parts of paths ------------------------------------------------------------------------------

PARTS: Final = (
    Parameter("topic", "NAME", "The name of the topic", {"type": "string", "minLength": 1}),
    Parameter("partition", "N", "The number of the partition", {"type": "integer", "minimum": 0}),
    Parameter(
        "offset",
        "OFFSET",
        "The offset of a record",
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    ),
)

# --- parameters ----------------------------------------------------------------------------------

_TIME: Final[dict[str, Any]] = {
    "type": "string",
    "format": "tidelog-time",
    "examples": ["2026-01-01T00:00Z", "1767225600000", "-2h", "now"],
}
_PARTITION: Final = Parameter(
    "partition", "N", "One partition; otherwise all of them", {"type": "integer", "minimum": 0}
)

# --- errors --------------------------------------------------------------------------------------

ALWAYS: Final = (  # of any request
    Error(400, "BAD_REQUEST"),
    Error(400, "UNKNOWN_PARAMETER"),
    Error(403, "FORBIDDEN"),
    Error(500, "UNKNOWN_SERVER_ERROR"),
    Error(503, "BUSY"),
    Error(503, "NOT_READY"),
)
_OF_TIME: Final = (Error(400, "BAD_TIME"), Error(400, "NO_TIME"))
_OF_TOPIC: Final = (Error(404, "UNKNOWN_TOPIC_OR_PARTITION"),)
_OF_LOG: Final = (
    Error(503, "CORRUPT_MESSAGE"),
    Error(503, "KAFKA_STORAGE_ERROR"),
    Error(503, "LEADER_NOT_AVAILABLE"),
    Error(503, "NOT_LEADER_OR_FOLLOWER"),
)
_OF_CHANGE: Final = (
    Error(400, "BAD_JSON"),
    Error(400, "UNKNOWN_FIELD"),
    Error(403, "CLUSTER_AUTHORIZATION_FAILED"),
    Error(413, "BAD_REQUEST"),
)

# --- requests ------------------------------------------------------------------------------------

OFFSETS: Final = Route(
    "GET",
    "/v1/topics/{topic}/offsets",
    "Returns the first record at or after a time, or without one the first and the last record, and "
    "the one with the largest time",
    "Offsets",
    _OF_TIME + _OF_TOPIC + _OF_LOG,
    (
        Parameter("at", "TIME", "The first record whose own time is TIME or later", _TIME),
        Parameter(
            "appended-at", "TIME", "The first record that was appended at TIME or later", _TIME
        ),
        Parameter(
            "capped",
            "true",
            "Beside `at`: counts no record with a time later than its append time",
            FLAG,
        ),
        _PARTITION,
        Parameter(
            "isolation",
            READ_COMMITTED,
            "Only below the last stable offset",
            {"enum": [READ_UNCOMMITTED, READ_COMMITTED]},
        ),
        Parameter(
            "shift",
            "true",
            'Replaces the one time that means "no time" by the next millisecond',
            FLAG,
        ),
    ),
)
RECORD_TIMES: Final = Route(
    "GET",
    "/v1/topics/{topic}/partitions/{partition}/records/{offset}/times",
    "Returns both times of a record",
    "RecordTimes",
    (Error(400, "BAD_OFFSET"), *_OF_TOPIC, Error(404, "OFFSET_OUT_OF_RANGE"), *_OF_LOG),
    (Parameter("next", "true", "Or of the first record behind it, where it is gone", FLAG),),
)
EXPLAIN: Final = Route(
    "GET",
    "/v1/topics/{topic}/explain",
    "Returns for every segment what will delete it and when, or what keeps it",
    "Explanation",
    (Error(400, "INVALID_CONFIG"), *_OF_TOPIC, *_OF_LOG),
    (
        _PARTITION,
        Parameter(
            "set",
            "NAME=VALUE",
            "The same under another setting of the topic; any number of times",
            {"type": "string", "pattern": "^[^=]+="},
            is_repeatable=True,
        ),
    ),
)
CLUSTER: Final = Route(
    "GET", "/v1/cluster", "Returns what this broker knows of its cluster", "Cluster"
)
CLOCK: Final = Route(
    "GET",
    "/v1/clock",
    "Returns what the broker's clock shows, and whether it is trusted",
    "Clock",
)
TOPIC_CLOCK: Final = Route(
    "GET",
    "/v1/topics/{topic}/clock",
    "Returns what a reset of a topic's times would change",
    "TopicClock",
    _OF_TOPIC + _OF_LOG,
    (_PARTITION,),
)
DOCTOR: Final = Route(
    "GET",
    "/v1/doctor",
    "Returns what is wrong with the broker, its clock, and the times of all logs, or of some",
    "Diagnosis",
    _OF_TOPIC + _OF_LOG,
    (
        Parameter("topic", "NAME", "One topic", {"type": "string", "minLength": 1}),
        Parameter("partition", "N", "One partition of the topic", _PARTITION.schema),
    ),
)
ACCEPT_CLOCK: Final = Route(
    "POST",
    "/v1/clock/accept",
    "Trusts the clock although it has leapt",
    "Clock",
    (*_OF_CHANGE, Error(409, "NO_LEAP"), Error(409, "OTHER_LEAP")),
    fields=(
        Parameter(
            "to_ms",
            "MS",
            "What the clock showed at the leap: `to_ms` of `leap`",
            {"type": "integer"},
            is_required=True,
        ),
    ),
)
RESET_TOPIC: Final = Route(
    "POST",
    "/v1/topics/{topic}/clock/reset",
    "Lets times of a topic that are ahead of the clock go back to it",
    "TopicReset",
    (*_OF_CHANGE, *_OF_TOPIC, Error(409, "OTHER_TOPIC")),
    fields=(
        Parameter(
            "topic_id",
            "ID",
            "The id of the topic whose preview was seen",
            {"type": "string", "format": "uuid"},
            is_required=True,
        ),
        Parameter("partition", "N", "One partition", {"type": ["integer", "null"], "minimum": 0}),
    ),
)

ROUTES: Final = (
    OFFSETS,
    RECORD_TIMES,
    EXPLAIN,
    CLUSTER,
    CLOCK,
    TOPIC_CLOCK,
    DOCTOR,
    ACCEPT_CLOCK,
    RESET_TOPIC,
)

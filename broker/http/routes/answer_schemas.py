"""The answers of the requests below /v1, as JSON Schema: `SCHEMAS`, by the names that routes declare.

Every time has two fields: `*_ms`, exact, and ISO 8601 in UTC; both are null together.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_INTEGER: Final[Schema] = {"type": "integer"}
_INTEGER_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
_NUMBER: Final[Schema] = {"type": "number"}
_TRUTH: Final[Schema] = {"type": "boolean"}
_ISO: Final[Schema] = {"type": "string", "examples": ["2026-01-01T00:00:00.000Z"]}
_ISO_OR_NULL: Final[Schema] = {"type": ["string", "null"]}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


def _time(*names: str) -> Schema:
    """Returns the two properties of each named time, which is never null."""
    return {key: value for name in names for key, value in ((f"{name}_ms", _INTEGER), (name, _ISO))}


def _maybe_time(*names: str) -> Schema:
    """Returns the two properties of each named time, which may be null."""
    return {
        key: value
        for name in names
        for key, value in ((f"{name}_ms", _INTEGER_OR_NULL), (name, _ISO_OR_NULL))
    }


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


_TOPIC: Final = {"topic": _TEXT, "topic_id": {"type": "string", "format": "uuid"}}
_LED: Final = {"leader": _INTEGER}  # the broker that answers for the partition


def _rows(row: Schema) -> Schema:
    """Returns the schema of `partitions`: each has its row, or the error in its place."""
    return _list({"anyOf": [row, _ref("FailedPartition")]})


# --- times ---------------------------------------------------------------------------------------

_RECORD: Final = {"offset": _INTEGER, **_maybe_time("timestamp", "append_time")}
_RANGE: Final = _object({"start_offset": _COUNT, "end_offset": _COUNT})
_ENDS: Final = {"partition": _COUNT, "log_start_offset": _COUNT, "end_offset": _COUNT}
_EXTREMES: Final = dict.fromkeys(("first", "last", "largest"), _ref("Record"))
_BEFORE: Final = {"offsets_before": _COUNT, "bytes_before": _COUNT}

_TIMES: Final[Schema] = {
    "Offsets": _object(
        {
            **_TOPIC,
            "partitions": _rows(
                {
                    "anyOf": [
                        _object({**_ENDS, **_EXTREMES, **_LED}),
                        _object({**_ENDS, **_RECORD, **_BEFORE, **_LED}),
                        _object(
                            {
                                **_ENDS,
                                **_RECORD,
                                "offset": _INTEGER_OR_NULL,
                                **_BEFORE,
                                "unknown": _or_null(_RANGE),
                                "absent": _or_null(_RANGE),
                                **_LED,
                            }
                        ),
                    ]
                }
            ),
        },
        _time("at", "appended_at"),
    ),
    "Record": _object(_RECORD),
    "RecordTimes": _object(
        {
            **_TOPIC,
            "partition": _COUNT,
            "offset": _COUNT,
            "kind": _choice("data", "control", "absent"),
            **_maybe_time("timestamp", "append_time"),
            "timestamp_type": {"enum": ["CreateTime", "LogAppendTime", None]},
        },
    ),
}

# --- the clock -----------------------------------------------------------------------------------

_RESET: Final = _object(
    {
        "offset": _COUNT,
        **_maybe_time("last_append_time", "max_event_time", "next_max_event_time"),
    }
)
_RESET_ROW: Final = {"partition": _COUNT, "reset": _or_null(_RESET)}

_CLOCKS: Final[Schema] = {
    "Clock": _object(
        {
            "broker": _INTEGER,
            "other_brokers": _list(_INTEGER),
            "clock": _choice("manual", "system"),
            "state": _choice("trusted", "leapt", "behind"),
            **_time("now", "deletion_time"),
            "ahead_ms": _INTEGER,
            "behind_ms": _INTEGER,
            "leap": _or_null(_object(_time("from", "to"))),
            "steps": _list(
                _object(
                    {
                        "number": _INTEGER,
                        "shift_ms": _INTEGER,
                        **_maybe_time("since"),
                        **_time("until", "to"),
                    }
                )
            ),
            "steps_back": _list(_object(_time("from", "to"))),
            "topics_ahead": _list(_TEXT),
            "clock_start_pause_ms": _INTEGER,
        }
    ),
    "TopicClock": _object(
        {
            **_TOPIC,
            "broker": _INTEGER,
            **_time("now"),
            "partitions": _rows(_object({**_RESET_ROW, **_LED})),
        }
    ),
    "TopicReset": _object(
        {**_TOPIC, **_time("now"), "partitions": _rows(_object(_RESET_ROW))},
    ),
}

# --- retention -----------------------------------------------------------------------------------

_GOING: Final = _object(
    {"segments": _COUNT, "records": _COUNT, "bytes": _COUNT, "policies": _list(_TEXT)}
)
_CONDITION: Final = _object(
    {
        "policy": _TEXT,
        **_maybe_time("due", "event_time"),
        "growth_bytes": _INTEGER_OR_NULL,
        "is_floored": _TRUTH,
    }
)
_COMPACTION: Final = _object(
    {
        "first_dirty_offset": _COUNT,
        "upper_offset": _COUNT,
        "clean_bytes": _COUNT,
        "dirty_bytes": _COUNT,
        "ratio": _NUMBER,
        "delay_ms": _INTEGER,
        "held_by": _TEXT_OR_NULL,
        "strategy": _TEXT,
        "last": _or_null(
            _object(
                {
                    **_time("ended"),
                    "bytes_read": _COUNT,
                    "bytes_written": _COUNT,
                    "error": _TEXT_OR_NULL,
                }
            )
        ),
    }
)
_SEGMENT: Final = _object(
    {
        "base_offset": _COUNT,
        "end_offset": _COUNT,
        "size": _COUNT,
        "is_active": _TRUTH,
        **_maybe_time(
            "first_time", "largest_time", "event_time", "first_append_time", "last_append_time"
        ),
        "has_unknown_append_times": _TRUTH,
        "lacks_times": _TRUTH,
        "policy": _TEXT_OR_NULL,
        **_maybe_time("due", "due_event_time"),
        "held_by": _TEXT_OR_NULL,
        "held_by_segment": _INTEGER_OR_NULL,
        "sentence": _TEXT,
        "conditions": _list(_CONDITION),
        **_maybe_time("rolls"),
        "rolls_by": _TEXT_OR_NULL,
        **_maybe_time("judged_append_time"),
    },
    {"compaction": _choice("clean", "next round", "dirty", "held", "active")},
)
_RETENTION: Final[Schema] = {
    "Explanation": _object(
        {
            **_TOPIC,
            **_time("now"),
            "preview": _or_null({"type": "object", "additionalProperties": _TEXT}),
            "settings": {
                "type": "object",
                "additionalProperties": {"type": ["string", "integer"]},
            },
            "basis_from": _TEXT,
            "partitions": _rows(_ref("ExplainedPartition")),
        },
        _time("deletion_time"),
    ),
    "ExplainedPartition": _object(
        {
            "partition": _COUNT,
            "log_start_offset": _COUNT,
            "high_watermark": _COUNT,
            "log_end_offset": _COUNT,
            "size": _COUNT,
            **_maybe_time("max_event_time", "last_append_time"),
            "going": _GOING,
            "segments": _list(_SEGMENT),
            **_LED,
        },
        {"going_as_it_is": _GOING, "compaction": _COMPACTION},
    ),
    "Diagnosis": _object(
        {
            "topic": _TEXT_OR_NULL,
            **_time("now"),
            "partitions_examined": _COUNT,
            "segments_unread": _COUNT,
            "errors": _list(
                _object(
                    {
                        "topic": _TEXT_OR_NULL,
                        "partition": _INTEGER_OR_NULL,
                        "error": _TEXT,
                        "message": _TEXT,
                    },
                    {"broker": _INTEGER},
                )
            ),
            "findings": _list(
                _object(
                    {
                        "broker": _INTEGER,
                        "topic": _TEXT_OR_NULL,
                        "partition": _INTEGER_OR_NULL,
                        "finding": _TEXT,
                        "figure": _NUMBER,
                        "unit": _TEXT,
                        "sentence": _TEXT,
                        "command": _TEXT,
                    }
                )
            ),
        }
    ),
}

# --- the cluster ---------------------------------------------------------------------------------

_BROKER: Final = _object(
    {
        "broker": _INTEGER,
        "state": _choice("serving", "fenced", "stopping", "away"),
        "session": _TEXT_OR_NULL,
        "rack": _TEXT_OR_NULL,
        "http": _TEXT_OR_NULL,
        "listeners": {"type": "object", "additionalProperties": _TEXT},
        "leads": _COUNT,
        "replicas": _COUNT,
        "in_sync": _COUNT,
        **dict.fromkeys(("failed_logs", "full_disk_logs", "slow_disk_logs"), _list(_TEXT)),
    }
)
_PARTITION: Final = _object(
    {
        "topic": _TEXT,
        "partition": _COUNT,
        "state": _choice("ok", "under-replicated", "under-min-isr", "offline"),
        "leader": _INTEGER_OR_NULL,
        "leader_epoch": _INTEGER,
        **dict.fromkeys(("replicas", "isr", "elr", "adding", "removing"), _list(_INTEGER)),
        "min_insync_replicas": _COUNT,
        "missing": _list(_object({"broker": _INTEGER, "why": _TEXT})),
        "followers": _or_null(
            _list(
                _object(
                    {
                        "broker": _INTEGER,
                        "lag": _INTEGER_OR_NULL,
                        "caught_up_ms_ago": _INTEGER_OR_NULL,
                    }
                )
            )
        ),
    }
)
_OWN: Final = _object(
    {
        "not_serving": _TEXT_OR_NULL,
        "not_ready": _list(_object({"reason": _TEXT, "sentence": _TEXT})),
        "metadata_error": _TEXT_OR_NULL,
        "suspended_partitions": _list(_TEXT),
        "unwritable_directories": {"type": "object", "additionalProperties": _TEXT},
        "inter_broker_protocol_version": _TEXT,
        "message_format_version": _TEXT,
        "transaction_max_timeout_ms": _INTEGER,
        "open_transactions": _list(
            _object(
                {
                    "topic": _TEXT,
                    **dict.fromkeys(
                        (
                            "partition",
                            "start_offset",
                            "producer_id",
                            "producer_epoch",
                            "idle_ms",
                        ),
                        _INTEGER,
                    ),
                }
            )
        ),
        "open_producers": _or_null(_list(_INTEGER)),
    }
)
_CLUSTERS: Final[Schema] = {
    "Cluster": _object(
        {
            "cluster_id": _TEXT,
            "broker": _INTEGER,
            "revision": _INTEGER,
            "controller": _or_null(_object({"broker": _INTEGER, "epoch": _INTEGER})),
            **_time("now"),
            "own": _OWN,
            "brokers": _list(_BROKER),
            "partitions": _list(_PARTITION),
        }
    )
}

# --- errors --------------------------------------------------------------------------------------

_ERRORS: Final[Schema] = {
    "Error": _object({"error": _TEXT, "message": _TEXT}),
    "FailedPartition": _object({"partition": _COUNT, "error": _TEXT, "message": _TEXT}, _LED),
}

SCHEMAS: Final[Schema] = {**_TIMES, **_CLOCKS, **_RETENTION, **_CLUSTERS, **_ERRORS}

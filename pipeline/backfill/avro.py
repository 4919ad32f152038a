"""The Avro schema of a backfill's values, and its id in a schema registry.

The schema follows from the columns: each field is a union with null where the column may be null. Times
are of logical type timestamp-micros, those without a zone local-timestamp-micros. The registry decides
whether the schema is compatible with those that the subject has.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.backfill import tables
from tidelog.pipeline.errors import PipelineError, UsageError

if TYPE_CHECKING:
    from tidelog.pipeline.jobs.backfill import BackfillOptions

INSTALL: Final = "pip install '.[avro]' in a clone of tidelog"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Final = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
}
_LOGICAL: Final = {
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


class Schema(NamedTuple):
    """A schema as JSON, and its id in the registry."""

    text: str
    number: int


def schema_of(table: Any, options: BackfillOptions) -> str:
    """Returns the schema of the value columns of a DataFrame. Raises UsageError."""
    named = options.value_columns.split(",") if options.value_columns else table.columns
    fields = {one.name: one for one in table.schema.fields}
    name = re.sub(r"[^A-Za-z0-9_]", "_", options.topic)
    name = name if _NAME.fullmatch(name) else f"_{name}"
    return json.dumps(_record(name, [fields[one] for one in named]))


def registered(table: Any, options: BackfillOptions) -> Schema:
    """Registers the schema, or finds it there. Raises PipelineError and UsageError."""
    try:
        from confluent_kafka import schema_registry as registry
    except ImportError as error:
        raise UsageError(f"--format avro needs {error.name}: {INSTALL}") from None
    text = schema_of(table, options)
    subject = options.subject or f"{options.topic}-value"
    try:
        client = registry.SchemaRegistryClient({"url": options.registry})
        number = client.register_schema(subject, registry.Schema(text, "AVRO"))
    except registry.SchemaRegistryError as error:
        raise PipelineError(
            f"the schema registry refused the schema for {subject}: {error.error_message}"
        ) from error
    except Exception as error:
        said = tables.without_password(f"the schema registry {options.registry}: {error}")
        raise PipelineError(said) from error
    return Schema(text, int(number))


def _record(name: str, fields: list[Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": _valid(one.name), **_field(f"{name}_{one.name}", one)} for one in fields
        ],
    }


def _field(name: str, field: Any) -> dict[str, Any]:
    found = _type(name, field.dataType)
    return {"type": ["null", found], "default": None} if field.nullable else {"type": found}


def _type(name: str, kind: Any) -> Any:
    """Returns the Avro type of a type of Spark."""
    title = kind.typeName()
    if title in _PLAIN:
        return _PLAIN[title]
    if title in _LOGICAL:
        return _LOGICAL[title]
    if title == "decimal":
        whole = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **whole}
    if title == "struct":
        return _record(name, list(kind.fields))
    if title == "array":
        inner = _type(f"{name}_item", kind.elementType)
        return {"type": "array", "items": ["null", inner] if kind.containsNull else inner}
    if title == "map" and kind.keyType.typeName() == "string":
        inner = _type(f"{name}_value", kind.valueType)
        return {"type": "map", "values": ["null", inner] if kind.valueContainsNull else inner}
    raise UsageError(f"Avro has no type for a column of {kind.simpleString()}: cast it first")


def _valid(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"column {name} cannot be a field of Avro: letters, digits and _ alone, no digit first"
        )
    return name

"""The OpenAPI 3.1 description of /v1, generated from the declarations at the first request for it."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidelog import __version__
from tidelog.broker.http.answers import json_line
from tidelog.broker.http.routes.answer_schemas import SCHEMAS
from tidelog.broker.http.routes.declared import ALWAYS, PARTS, ROUTES

if TYPE_CHECKING:
    from tidelog.broker.http.routes.route import Parameter, Route


@cache
def text() -> str:
    """Returns the description as JSON."""
    return json_line(document())


def document() -> dict[str, Any]:
    """Returns the description."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tidelog",
            "version": __version__,
            "description": "What Kafka's protocol cannot say, as JSON. A TIME is ISO 8601 with its "
            "zone, milliseconds since 1970, or relative to the broker's now.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _operation(route: Route) -> dict[str, Any]:
    named = set(re.findall(r"{(\w+)}", route.path))
    parameters = [_parameter(each, "path") for each in PARTS if each.name in named]
    parameters += [_parameter(each, "query") for each in route.parameters]
    operation: dict[str, Any] = {
        "summary": f"{route.does}.",
        "operationId": f"{route.method.lower()}{route.answer}",
        "parameters": parameters,
        "responses": {
            "200": _response("The answer", {"$ref": f"#/components/schemas/{route.answer}"}),
            **_failures(route),
        },
    }
    if route.fields:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _body(route)}},
        }
    return operation


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema = dict(parameter.schema)
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "description": f"{parameter.meaning}.",
        "schema": {"type": "array", "items": schema} if parameter.is_repeatable else schema,
    }


def _body(route: Route) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            each.name: {**each.schema, "description": f"{each.meaning}."} for each in route.fields
        },
        "required": [each.name for each in route.fields if each.is_required],
        "additionalProperties": False,
    }


def _failures(route: Route) -> dict[str, Any]:
    """Returns the response of each status that is an error, with the names that it may have."""
    errors = sorted({*ALWAYS, *route.errors})
    found = {}
    for status, same in groupby(errors, key=lambda error: error.status):
        names = [error.name for error in same]
        schema = {
            "allOf": [{"$ref": "#/components/schemas/Error"}],
            "properties": {"error": {"enum": names}},
        }
        found[str(status)] = _response(", ".join(names), schema)
    return found


def _response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}

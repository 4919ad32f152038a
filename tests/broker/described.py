"""Whether an answer of /v1 is as OpenAPI describes it: with all that is described, and nothing else."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tidelog.broker.http.routes.openapi import document


def closed(schema: Any) -> Any:
    """Returns a schema in which no object has a property that is not described."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: closed(each) for name, each in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def check(path: str, status: int, answer: Any) -> None:
    """Fails for an answer to a GET that is not described; any answer to an unknown path is right."""
    for pattern, operation in _operations():
        if pattern.fullmatch(path.partition("?")[0]):
            _validator(operation, status).validate(answer)


@cache
def _operations() -> list[tuple[re.Pattern[str], str]]:
    """The paths of all GET requests, as patterns."""
    return [
        (re.compile(re.sub(r"{\w+}", "[^/]+", path)), path)
        for path, found in document()["paths"].items()
        if "get" in found
    ]


@cache
def _validator(path: str, status: int) -> Draft202012Validator:
    described = document()
    responses = described["paths"][path]["get"]["responses"]
    assert str(status) in responses, f"{path} is not described to answer with {status}"
    schema = responses[str(status)]["content"]["application/json"]["schema"]
    components = {"components": closed(described["components"])}
    return Draft202012Validator({**schema, **components})

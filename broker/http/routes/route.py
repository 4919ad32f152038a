"""The classes of a request's declaration, and the parser of its query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.http.answers import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}
FLAG: Final = {"enum": list(TRUTH)}
"""The schema of a parameter that is true or false, in any case of letters."""


class Parameter(NamedTuple):
    """One parameter of a query, part of a path, or field of a body.

    `written` is the placeholder of its value in docs/http.md, and `schema` the JSON Schema of the value.
    """

    name: str
    written: str
    meaning: str
    schema: Mapping[str, Any]
    is_repeatable: bool = False
    is_required: bool = False


class Error(NamedTuple):
    """One error: its status and its name."""

    status: int
    name: str


class Route(NamedTuple):
    """One request. `does` is a sentence without its end, `answer` the name of a schema."""

    method: str
    path: str
    does: str
    answer: str
    errors: tuple[Error, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    fields: tuple[Parameter, ...] = ()
    """Those of the JSON object in the body."""

    def read(self, query: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
        """Returns the values of each parameter in a query. Raises HttpError for one that is not declared."""
        known = {each.name: each for each in self.parameters}
        given: dict[str, list[str]] = {}
        for name, value in query:
            if name not in known:
                listed = f"it may have {', '.join(known)}" if known else "it takes none"
                raise HttpError(
                    400,
                    "UNKNOWN_PARAMETER",
                    f"{name[:40]!r} is no parameter of this request: {listed}",
                )
            given.setdefault(name, []).append(value)
        for name, values in given.items():
            _check(known[name], values)
        return given


def _check(parameter: Parameter, values: list[str]) -> None:
    name, schema = parameter.name, parameter.schema
    if len(values) > 1 and not parameter.is_repeatable:
        raise HttpError(400, "BAD_REQUEST", f"{name} is given {len(values)} times")
    value = values[0].lower() if schema is FLAG else values[0]
    if value not in schema.get("enum", (value,)):
        expected = "true or false" if schema is FLAG else " or ".join(schema["enum"])
        raise HttpError(400, "BAD_REQUEST", f"{name}={value[:40]}: expected {expected}")

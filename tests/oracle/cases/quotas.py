"""Quotas: what can be set, what is kept of it, and which filters find it.

Each case removes what it has set, because a case is played more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.scenario import Case, Step, ask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RATE = "producer_byte_rate"
Parts = list[tuple[str, str | None]]

ENTITIES: list[Parts] = [
    [("user", "anna")],
    [("user", None)],
    [("client-id", None)],
    [("client-id", "c"), ("user", "anna")],
    [("client-id", "<default>")],
    [("ip", "127.0.0.1")],
    [("ip", None)],
    [("user", "anna"), ("ip", "127.0.0.1")],
    [("ip", "no such host.")],
    [("group", "anna")],
    [("", "anna")],
    [("user", "")],
    [],
]
VALUES: list[tuple[str, float]] = [
    (RATE, 1024.0),
    (RATE, 1024.5),
    (RATE, 0.0),
    (RATE, -1.0),
    (RATE, 1e300),
    ("consumer_byte_rate", 1.0),
    ("request_percentage", 90.25),
    ("request_percentage", 0.0),
    ("controller_mutation_rate", 0.5),
    ("connection_creation_rate", 3000.0),
    ("connection_creation_rate", 3000.5),
    ("connection_creation_rate", 3e9),
    ("no_such", 1.0),
]
# In the order in which Kafka describes them: that of a hash table.
CLIENT: list[tuple[str, float | None]] = [("controller_mutation_rate", 0.5), (RATE, 1024.0)]
ADDRESS: list[tuple[str, float | None]] = [("connection_creation_rate", 3000.0)]


def _alter(entity: Parts, ops: Sequence[tuple[str, float | None]], **more: Any) -> dict[str, Any]:
    """The body of a change; a value of None removes."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }
    return {"entries": [entry], "validate_only": False, **more}


def _described(entity: Parts, version: int, label: str) -> Step:
    """Asks for the quotas of one entity and no other."""
    components = [_part(kind, 1 if name is None else 0, name) for kind, name in entity]
    fields = {"components": components, "strict": True}
    return ask(label, "DescribeClientQuotas", version, fields)


def _part(kind: str, how: int, name: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": how, "match": name}


def _changes() -> Iterator[Case]:
    for version in (0, 1):
        steps = []
        for entity in ENTITIES:

            def change(
                label: str, *ops: tuple[str, float | None], only: bool = False, of: Parts = entity
            ) -> Step:
                fields = _alter(of, ops, validate_only=only)
                return ask(f"{label} {of} {ops}", "AlterClientQuotas", version, fields)

            is_address = entity[:1] == [("ip", "127.0.0.1")] or entity[:1] == [("ip", None)]
            good = ADDRESS if is_address else CLIENT
            steps += [change("only", each, only=True) for each in VALUES]
            steps += [
                change("set", *good),
                _described(entity, version, f"kept {entity}"),
                change("one bad", (good[0][0], 7.0), ("no_such", 1.0)),
                change("removed", ("no_such", None), (good[0][0], None)),
                _described(entity, version, f"left {entity}"),
                change("gone", *((key, None) for key, _ in good)),
                _described(entity, version, f"none {entity}"),
            ]
        fields = {"entries": [], "validate_only": False}
        steps.append(ask("nothing", "AlterClientQuotas", version, fields))
        yield Case(f"quotas changed v{version}", "create", tuple(steps), {"admin": "quotas"})


def _filters() -> Iterator[Case]:
    steps = []
    kept: list[Parts] = [[("user", "anna")], [("client-id", "c"), ("user", None)]]
    steps += [
        ask(f"set {each}", "AlterClientQuotas", 1, _alter(each, [(RATE, 7)])) for each in kept
    ]
    for version in (0, 1):
        for strict in (False, True):
            for components in quota_filters():
                fields: dict[str, Any] = {"components": components, "strict": strict}
                label = f"quotas v{version} {strict} {components}"[:120]
                steps.append(ask(label, "DescribeClientQuotas", version, fields))
    steps += [
        ask(f"remove {each}", "AlterClientQuotas", 1, _alter(each, [(RATE, None)])) for each in kept
    ]
    yield Case("quotas found", "create", tuple(steps), {"admin": "quotas"})


def quota_filters() -> list[list[dict[str, Any]]]:
    """Filters of clients' quotas, good and bad."""
    return [
        [_part("user", 0, "somebody")],
        [_part("user", 1)],
        [_part("user", 2), _part("client-id", 2)],
        [_part("ip", 0, "127.0.0.1")],
        [_part("ip", 2), _part("user", 2)],
        [_part("user", 2), _part("user", 1)],
        [_part("group", 2)],
        [_part("", 2)],
        [_part("user", 9)],
        [_part("user", 0)],
        [_part("user", 1, "somebody")],
        [_part("user", 2, "somebody")],
    ]


def quotas() -> list[Case]:
    """All of the above."""
    return [*_changes(), *_filters()]

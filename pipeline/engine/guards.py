"""Guards: limits on what a retention policy may do, by which a what-if has an exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.engine.whatif import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.pipeline.engine.whatif import Outcome


GUARDS: Final[dict[str, Callable[[Outcome], int]]] = {
    "max_deleted_bytes": lambda found: sum(each.size for each in found.deleted),
    "max_deleted_records": lambda found: sum(each.records for each in found.deleted),
    "max_killed_early": lambda found: sum(each.killed_early for each in found.deleted),
    "max_pinned_bytes": lambda found: max((each.held_size for each in found.pinned), default=0),
}


class Guard(NamedTuple):
    """A limit on what a policy may do, over all logs together."""

    name: str
    limit: int
    policy: str | None = None  # the policy it applies to; None: every policy


class Broken(NamedTuple):
    """A guard that a policy exceeds."""

    guard: Guard
    policy: str
    value: int


def parse_guard(text: str) -> Guard:
    """Parses `[POLICY:]NAME=NUMBER`, where NAME is one of GUARDS.

    Without POLICY it applies to every policy. Raises PolicyError.
    """
    scope, colon, rest = text.rpartition(":")
    name, equals, value = rest.partition("=")
    name = name.strip()
    if not equals or name not in GUARDS:
        raise PolicyError(f"{text!r} is no guard: write one of {', '.join(GUARDS)}, then =NUMBER")
    try:
        limit = int(value.replace("_", ""))
    except ValueError:
        raise PolicyError(f"{text!r}: {value!r} is not a whole number") from None
    return Guard(name, limit, scope if colon else None)


def broken(guards: Iterable[Guard], outcomes: Sequence[Outcome]) -> list[Broken]:
    """Returns the guards that are exceeded. Raises PolicyError for a guard of an unknown policy."""
    names = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    found: list[Broken] = []
    for guard in guards:
        if guard.policy is not None and guard.policy not in names:
            raise PolicyError(f"guard {guard.name}: there is no policy {guard.policy!r}")
        for name in names if guard.policy is None else [guard.policy]:
            value = sum(GUARDS[guard.name](each) for each in outcomes if each.policy == name)
            if value > guard.limit:
                found.append(Broken(guard, name, value))
    return found

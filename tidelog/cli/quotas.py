"""`tidelog quotas`: shows and changes what users, client ids and addresses may take, over Kafka's protocol.

An entity is a user, a client id, both, or an address. A default holds for every name that has no quota of
its own (docs/quotas.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_actions, add_flag, value_given
from tidelog.cli.cluster import Cluster
from tidelog.cli.nearest import did_you_mean
from tidelog.cli.output import print_answer, print_json, print_table
from tidelog.cli.shared import CommandError, UsageError
from tidelog.client.calls import quotas as calls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from tidelog.client.calls.quotas import Entity

_KINDS = {"user": "NAME", "client-id": "ID", "ip": "ADDRESS"}


def add_quotas(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog quotas`; without an action it lists quotas."""
    actions = {
        "list": (_list, "list the quotas of all, or of those that are named"),
        "set": (_change, "set quotas of one user, client id or address"),
        "unset": (_change, "remove quotas of one"),
    }
    parser.set_defaults(**dict.fromkeys(("user", "client_id", "ip")))
    parser.set_defaults(**dict.fromkeys(_default_names(), False))
    for action, one in add_actions(parser, actions):
        for kind, metavar in _KINDS.items():
            either = one.add_mutually_exclusive_group()
            either.add_argument(f"--{kind}", metavar=metavar, help=f"of this {_said(kind)}")
            what = f"of every {_said(kind)} that has none of its own"
            add_flag(either, f"--default-{kind}", what)
        if action == "set":
            what = "consumer_byte_rate=2000000, say"
            one.add_argument("quotas", metavar="QUOTA=NUMBER", nargs="+", help=what)
        elif action == "unset":
            one.add_argument("quotas", metavar="QUOTA", nargs="+")


def _default_names() -> list[str]:
    return [f"default_{kind.replace('-', '_')}" for kind in _KINDS]


def _said(kind: str) -> str:
    return {"client-id": "client id", "ip": "address"}.get(kind, kind)


def _entity(options: argparse.Namespace) -> Entity:
    """Returns the entity that the options name."""
    found: list[tuple[str, str | None]] = []
    for kind, default in zip(_KINDS, _default_names(), strict=True):
        name = getattr(options, kind.replace("-", "_"))
        if name is not None or getattr(options, default):
            found.append((kind, name))
    return tuple(found)


def _list(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        found = cluster.perform(calls.describe(_entity(options)))
    if options.json:
        print_json([{"entity": dict(entity), "quotas": quotas} for entity, quotas in found.items()])
        return
    rows = [
        (_shown(entity), key, f"{value:.15g}")
        for entity, quotas in found.items()
        for key, value in quotas.items()
    ]
    print_table(("of", "quota", ">value"), sorted(rows))


def _shown(entity: Entity) -> str:
    return ", ".join(
        f"every {_said(kind)}" if name is None else f"{_said(kind)} {name}" for kind, name in entity
    )


def _change(options: argparse.Namespace) -> None:
    entity = _entity(options)
    if not entity:
        raise UsageError("whose quota? --user, --client-id, --ip, or --default-user ...")
    changes: dict[str, float | None] = {}
    for text in options.quotas:
        name, equals, value = text.partition("=")
        if bool(equals) != (options.action == "set"):
            expected = "QUOTA=NUMBER" if options.action == "set" else "QUOTA alone"
            raise UsageError(f"{text}: expected {expected}")
        changes[name] = _number(text, value_given(name, value)) if equals else None
    with Cluster(options.broker) as cluster:
        if options.action == "unset":
            _check_set(cluster, entity, changes)
        cluster.perform(calls.alter(entity, changes))
    told: dict[str, Any] = {"entity": dict(entity), "changes": changes}
    verb = "Set" if options.action == "set" else "Removed"
    print_answer(options, told, f"{verb} {', '.join(options.quotas)} of {_shown(entity)}.")


def _check_set(cluster: Cluster, entity: Entity, names: Iterable[str]) -> None:
    """Raises CommandError for removing a quota that is not set, which brokers accept silently."""
    found = cluster.perform(calls.describe(entity))
    there = {name for one, quotas in found.items() if set(one) == set(entity) for name in quotas}
    for name in names:
        if name not in there:
            hint = did_you_mean(name, sorted(there))
            raise CommandError(f"{_shown(entity)} has no quota {name}{hint}")


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{text}: expected a number") from None

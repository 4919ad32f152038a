"""Declares the safety settings that nothing enforces yet, and what each of them leaves open.

Somebody who sets one of these relies on it, so the broker warns, in a line for each, for as long as the
setting has no effect. `broker/unenforced_settings.py` writes these lines; this file has only the table,
which the page of settings uses too. A value that asks for nothing, such as Kafka's "no limit", needs no
warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTENER_PREFIX = "listener.name."


class _Unenforced(NamedTuple):
    """What the setting leaves open, and the values that ask for nothing."""

    consequence: str
    harmless: frozenset[str] = frozenset({""})


_UNENFORCED: Mapping[str, _Unenforced] = {
    "authorizer.class.name": _Unenforced(
        "there are no access rules here: whoever reaches a listener may do everything"
    ),
    "client.quota.callback.class": _Unenforced(
        "no class decides on quotas: those of AlterClientQuotas hold"
    ),
    "create.topic.policy.class.name": _Unenforced("no policy checks the topics that are created"),
    "alter.config.policy.class.name": _Unenforced("no policy checks changes of settings"),
    "ssl.client.auth": _Unenforced("no client is asked for a certificate", frozenset({"", "none"})),
}
CONSEQUENCES: Mapping[str, str] = {name: rule.consequence for name, rule in _UNENFORCED.items()}
"""Every such setting, and what it leaves open."""

_LISTENER = _Unenforced("settings of a single listener are ignored: the listener runs without it")


def unenforced(given: Mapping[str, str | None]) -> dict[str, str]:
    """Of settings that somebody gave, those that promise safety in vain: name to what stays open."""
    found = {}
    for name, value in given.items():
        rule = _LISTENER if name.startswith(_LISTENER_PREFIX) else _UNENFORCED.get(name)
        if rule is not None and value is not None and value.strip() not in rule.harmless:
            found[name] = rule.consequence
    return found

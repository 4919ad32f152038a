"""Changes of passwords and log directories, good and bad; Kafka changes nothing either.

What tidelog never does is asked of Kafka so that it only looks (`validate_only`), or fails as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.scenario import Case, Step, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.scenario import Context


def passwords_changed() -> Iterator[Case]:
    steps = []
    for removed, made in (
        ([], []),
        ([("anna", 1)], []),
        ([("anna", 1), ("anna", 1), ("anna", 2)], []),
        ([("anna", 1)], [("anna", 1)]),
        ([("anna", 2)], [("anna", 1)]),
        ([("ben", 1)], [("cid", 1), ("cid", 1)]),
    ):
        fields = {
            "deletions": [{"name": user, "mechanism": kind} for user, kind in removed],
            "upsertions": [
                {
                    "name": user,
                    "mechanism": kind,
                    "iterations": 4096,
                    "salt": b"salt",
                    "salted_password": b"p" * 32,
                }
                for user, kind in made
            ],
        }
        steps.append(ask(f"passwords {removed} {made}", "AlterUserScramCredentials", 0, fields))
    yield Case("passwords changed", "create", tuple(steps), {"admin": "passwords changed"})


def logs_moved() -> Iterator[Case]:
    def move(version: int, path: str | None, topic: str | None, index: int = 0) -> Step:
        """A path of None is the log directory, a topic of None that of the case."""

        def fields(context: Context) -> dict[str, Any]:
            where = str(context.log_dir) if path is None else path
            number = context.partition + index if topic is None else index
            named = {"name": context.topic if topic is None else topic, "partitions": [number]}
            return {"dirs": [{"path": where, "topics": [named]}]}

        return ask(
            f"move v{version} {path} {topic} {index}", "AlterReplicaLogDirs", version, fields
        )

    steps = [
        move(version, path, topic, index)
        for version in range(3)
        for path in (None, "/nowhere", "")
        for topic, index in ((None, 0), (None, 10_000), ("no-such-topic", 0), ("bad name!", -1))
    ]
    yield Case("logs moved", "create-any", tuple(steps), {"admin": "logs moved"})


def refused_changes() -> list[Case]:
    """All of the above."""
    makers = (passwords_changed, logs_moved)
    return [case for maker in makers for case in maker()]

"""What clients do with a coordinator: groups, commits of one read by the others, administration.

Each client needs a second driver for a group of its own, and those of mixed groups come together; these wait
for one another, not for the processor, so that many run at once.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic

from tests.clients import topics
from tests.clients.clients import MIXED_GROUPS
from tests.clients.coordination import grouping
from tests.clients.coordination.administration import Administrator
from tests.clients.coordination.grouping import PARTITIONS, Member
from tests.clients.session import DriverError, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.clients.clients import Client
    from tests.clients.report import Report

GROUPS_AT_ONCE = 4
PARALLEL = 2


def name_of(clients: Sequence[Client]) -> str:
    """A group's name, told in the report."""
    names = dict.fromkeys(client.name.replace(" ", "-") for client in clients)
    return "_and_".join(names)


def groups_of(present: Sequence[Client]) -> list[tuple[Client, ...]]:
    """Who comes together: two of each client, and the mixed groups whose clients are all here."""
    own = [(client, client) for client in present if not client.no_groups]
    names = {client.name for client in present}
    mixed = [group for group in MIXED_GROUPS if names.issuperset(one.name for one in group)]
    by_name = {client.name: client for client in present}
    return [*own, *(tuple(by_name[one.name] for one in group) for group in mixed)]


def create_topics(server: str, groups: Sequence[str], present: Sequence[Client]) -> None:
    """The topics of all groups, and those whose offsets are committed."""
    settings = {"retention.ms": "-1"}
    wanted = [
        NewTopic(f"topic-of-{name}", PARTITIONS, topics.REPLICAS, config=settings)
        for name in groups
    ]
    wanted += [
        NewTopic(grouping.commits_topic(client), len(grouping.COMMITTED) + 1, topics.REPLICAS)
        for client in present
    ]
    topics.create(server, wanted)


def run(
    server: str, present: Sequence[Client], sessions: Mapping[str, Session], report: Report
) -> None:
    """Everything, for the clients whose drivers run; nothing is raised for a difference."""
    groups = groups_of(present)
    create_topics(server, [name_of(group) for group in groups], present)

    def share(group: tuple[Client, ...]) -> None:
        began = time.monotonic()
        name = name_of(group)
        try:
            with ExitStack() as stack:
                # Drivers of their own: a client is in its own group and in a mixed one.
                members = [
                    Member(one, stack.enter_context(Session(one.name, one.command(server))))
                    for one in group
                ]
                grouping.try_group(server, name, members, report)
        except DriverError as error:
            report.problems.append(f"{name}: {error}")
        report.seconds[f"group {name}"] = time.monotonic() - began

    def ask(client: Client) -> None:
        began = time.monotonic()
        session = sessions[client.name]
        if not client.no_commits:
            grouping.read_commits(session, client, committers, report)
        if client.admin:
            Administrator(server, session, client, report).run()
        report.seconds[f"{client.name} asks and administers"] = time.monotonic() - began

    committers = [client for client in present if not client.no_commits]
    with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
        list(pool.map(share, groups))
        list(pool.map(lambda c: grouping.commit(sessions[c.name], c, report), committers))
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(ask, present))
